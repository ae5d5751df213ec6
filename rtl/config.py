"""Parameters of the chip. Counts that the register maps depend on come from `abi.geometry`."""

from dataclasses import dataclass, fields, replace

from abi.address import LINE_BYTES
from abi.geometry import CORES, DMA_CHANNELS, QUEUES, VECTORS

__all__ = ["NpuConfig"]


@dataclass(frozen=True, kw_only=True)
class NpuConfig:
    """The reference chip, at 1 GHz: one cycle is 1 ns.

    Raises:
        ValueError: a size is not a positive power of two, or a latency is below 1.
    """

    hbm_bytes: int = 64 << 20
    """Capacity of HBM in bytes."""

    hbm_latency: int = 24
    """Cycles from a read request at HBM to its line."""

    l1_lines: int = 4096
    """L1 buffer: 256 KiB."""

    l0a_lines: int = 512
    """L0A buffer, left operand: 32 KiB."""

    l0b_lines: int = 512
    """L0B buffer, right operand: 32 KiB."""

    l0c_lines: int = 1024
    """L0C buffer, int32 or fp32 sums: 64 KiB, in two halves."""

    bias_lines: int = 64
    """Bias buffer: 1024 int32."""

    ub_lines: int = 2048
    """UB, of the vector unit: 128 KiB, in four banks."""

    bf16_depth: int = 4
    """bf16 products that each output of the Cube gains in a cycle."""

    icache_lines: int = 128
    """Instruction cache of a scalar unit: 8 KiB."""

    reads_in_flight: int = 64
    """Lines that a DMA channel or MTE2 has outstanding at most."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("latency"):
                if value < 1:
                    raise ValueError(f"{field.name} must be at least 1 cycle, not {value!r}")
            elif value < 2 or value & (value - 1):
                raise ValueError(f"{field.name} must be a power of two >= 2, not {value!r}")
        if self.hbm_bytes < 16 * LINE_BYTES:
            raise ValueError(f"hbm_bytes must be at least 1024, not {self.hbm_bytes!r}")

    @property
    def queues(self) -> int:
        """User queues."""
        return QUEUES

    @property
    def dma_channels(self) -> int:
        """DMA channels."""
        return DMA_CHANNELS

    @property
    def cores(self) -> int:
        """AI cores."""
        return CORES

    @property
    def vectors(self) -> int:
        """MSI-X vectors."""
        return VECTORS

    def replace(self, **changes: int) -> "NpuConfig":
        """This chip with some parameters changed."""
        return replace(self, **changes)
