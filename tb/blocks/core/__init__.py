"""Tests of the AI core: its pipes, its sequencer and whole programs."""
