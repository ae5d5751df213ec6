"""How a benchmark fails."""

__all__ = ["BenchError"]


class BenchError(RuntimeError):
    """The hosted part of a benchmark failed, and has printed why; or its premise did not hold."""
