"""Benchmarks: figures, each beside its reference in the same run. They are no tests."""

from importlib import import_module

__all__ = ["BENCHES", "measure"]

BENCHES = {
    "engine": "simulation speed against bare Verilator and the stock cocotb runner",
    "mmio": "register reads through the driver against cocotbext-axi",
    "dma": "share of the host link's bandwidth that copies reach",
    "gemm": "share of the Cube's peak that int8 matrix products reach",
}
"""What each benchmark measures; its module in this package has the benchmark's name."""


def measure(name: str, seed: int) -> dict[str, float]:
    """Run a benchmark; returns its figures by name.

    Raises:
        KeyError: there is no such benchmark.
    """
    if name not in BENCHES:
        raise KeyError(name)
    figures: dict[str, float] = import_module(f"tb.bench.{name}").measure(seed)
    return figures
