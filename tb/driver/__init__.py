"""Tests of the driver on the model machine."""
