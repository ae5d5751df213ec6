"""Tests of the toolchain, which need no simulator."""
