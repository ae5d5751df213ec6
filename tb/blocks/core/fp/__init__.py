"""Tests of the fp32 arithmetic."""
