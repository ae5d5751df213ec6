"""Tests of the vector unit and its buffer."""
