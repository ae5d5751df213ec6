"""Tests of the pipes that move data."""
