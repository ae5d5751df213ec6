"""What the estimator knows of a chip: sizes, latencies and bandwidths."""

from dataclasses import dataclass, fields, replace
from typing import Any

from abi.address import LINE_BYTES
from abi.core import CUBE_SIDE, VECTOR_LANES
from abi.geometry import CORES
from runtime.compiler.allocate import CoreBuffers

__all__ = ["CROSSBAR_CYCLES", "REFERENCE_BUFFERS", "Chip"]

CROSSBAR_CYCLES = 1
"""From a granted request to the memory behind the crossbar."""

REFERENCE_BUFFERS = CoreBuffers(l1=4096, l0a=512, l0b=512, l0c=1024, bias=64, ub=2048)
"""Lines of the buffers of the reference chip's cores."""


@dataclass(frozen=True, kw_only=True)
class Chip:
    """A chip; the defaults are the reference chip's.

    Attributes:
        cores: cores that share the work.
        buffers: lines of each core's buffers.
        hbm_latency: cycles from a request at HBM to its line.
        hbm_bytes_per_cycle: bytes that HBM moves in a cycle, in each direction, for all cores.
        bf16_depth: bf16 products that each output of the Cube gains in a cycle.
        icache_lines: lines of a scalar unit's instruction cache.
        reads_in_flight: lines that MTE2 has outstanding at most.
        launch_cycles: from the start of a kernel's packet to the start of its first block.
        dispatch_cycles: what the firmware takes to start one block more.

    Raises:
        ValueError: a number is not positive.
    """

    cores: int = CORES
    buffers: CoreBuffers = REFERENCE_BUFFERS
    hbm_latency: int = 24
    hbm_bytes_per_cycle: float = LINE_BYTES
    bf16_depth: int = 4
    icache_lines: int = 128
    reads_in_flight: int = 64
    launch_cycles: int = 413
    dispatch_cycles: int = 24

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "buffers" and value <= 0:
                raise ValueError(f"{field.name} must be positive, not {value!r}")

    @property
    def memory_latency(self) -> int:
        """Cycles from a request at the crossbar to its line."""
        return CROSSBAR_CYCLES + self.hbm_latency

    @property
    def int8_macs(self) -> int:
        """int8 multiply-accumulates of a core in a cycle."""
        return CUBE_SIDE * CUBE_SIDE

    @property
    def bf16_macs(self) -> int:
        """bf16 multiply-accumulates of a core in a cycle."""
        return CUBE_SIDE * self.bf16_depth

    @property
    def vector_operations(self) -> int:
        """Operations of a core's vector unit in a cycle."""
        return VECTOR_LANES

    def replace(self, **changes: Any) -> "Chip":
        """This chip with some parameters changed."""
        return replace(self, **changes)
