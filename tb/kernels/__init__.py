"""Tests of the kernel library, on the golden models."""
