"""On-chip memories and HBM arrays."""
