"""Tests of the simulation engine."""
