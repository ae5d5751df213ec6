"""Trace: how events leave the chip."""
