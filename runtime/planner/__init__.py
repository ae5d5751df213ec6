"""The estimator: cycles and bytes of an operator on the chip, before it runs."""
