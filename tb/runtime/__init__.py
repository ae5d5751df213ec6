"""Tests of the runtime that need no machine: planners and programs against the golden core."""
