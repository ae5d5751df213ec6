"""Benchmarks: figures, each beside its reference in the same run. They are no tests."""

from importlib import import_module

__all__ = ["BENCHES", "describe", "measure"]

BENCHES = {
    "engine": "simulation speed against bare Verilator and the stock cocotb runner",
    "mmio": "register reads through the driver against cocotbext-axi",
    "dma": "share of the host link's bandwidth that copies reach",
    "gemm": "share of the Cube's peak that int8 matrix products reach",
    "kernels": "cycles of the library's kernels, and how busy their limiting pipe is",
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


def describe(name: str, figures: dict[str, float]) -> str:
    """The figures for people: a line for each, or as the benchmark itself lays them out."""
    own = getattr(import_module(f"tb.bench.{name}"), "describe", None)
    if own is not None:
        return str(own(figures))
    width = max(len(key) for key in figures)
    return "\n".join(f"{key:<{width}}  {value:,.6g}" for key, value in figures.items())
