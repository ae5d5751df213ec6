"""Tests of the MMU."""
