"""Full-stack tests, in the runtime API: the same on the model and on the RTL."""
