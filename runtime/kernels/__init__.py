"""Kernels of the library: what runs on the cores, planned and compiled on the host."""
