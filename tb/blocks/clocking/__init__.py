"""Tests of clock gating."""
