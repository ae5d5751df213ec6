"""The simulated machine around the chip: host memory and the interrupt catcher."""
