"""Traces: every layer of a run on one time axis."""
