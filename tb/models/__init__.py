"""Golden models in numpy."""
