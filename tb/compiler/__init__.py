"""Tests of the kernel compiler, on the golden models."""
