"""The completion unit."""
