"""Tests of memories and the fabric."""
