"""Tests of single RTL blocks."""
