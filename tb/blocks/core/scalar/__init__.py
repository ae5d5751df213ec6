"""Tests of the scalar unit."""
