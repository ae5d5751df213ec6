"""Address checks of every initiator."""
