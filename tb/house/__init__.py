"""Tests of the house rules: imports, files, lock file, documentation."""
