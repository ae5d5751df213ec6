"""The environment check that runs before anything is installed."""
