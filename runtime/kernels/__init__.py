"""Kernels: programs of core commands, planned on the host and kept in device memory."""
