"""A launch as the estimator sees it: a compiled kernel, its arguments, its grid."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from abi.kernel_object import ArgumentKind
from runtime.planner.chip import Chip
from runtime.planner.scalar import BlockSteps, InstructionCache, block_steps
from runtime.planner.timeline import Timeline, run_blocks
from runtime.toolchain.object import KernelObject

__all__ = ["Launch"]

FIRST_ARRAY = 1 << 40
ARRAY_DISTANCE = 1 << 32
"""Made-up addresses of arrays, which are aligned as the runtime's heap aligns them."""


@dataclass(frozen=True)
class Launch:
    """A kernel with numbers for arguments; None stands for an array of its own.

    Attributes:
        read: global memory by (array's number, offset, bytes), for kernels that look at it;
            zeros if it is None.
    """

    kernel: KernelObject
    arguments: tuple[int | float | None, ...]
    blocks: int = 1
    read: Callable[[int, int, int], bytes] | None = None

    def packed(self) -> bytes:
        """The argument block.

        Raises:
            ValueError: there are too many or too few arguments, or one does not fit.
        """
        values: dict[str, int | float] = {}
        arrays = 0
        for argument, value in zip(self.kernel.arguments, self.arguments, strict=True):
            if argument.kind is ArgumentKind.POINTER:
                values[argument.name] = FIRST_ARRAY + ARRAY_DISTANCE * arrays
                arrays += 1
            else:
                values[argument.name] = value or 0
        return self.kernel.pack_arguments(values)

    def estimate(self, chip: Chip, numbers: Sequence[int] | None = None) -> Timeline:
        """Simulate all blocks, or those of these numbers, in this order.

        Raises:
            ValueError: a block fails or does not end.
        """
        packed = self.packed()
        chosen = range(self.blocks) if numbers is None else numbers

        def read(address: int, nbytes: int) -> bytes:
            if self.read is None:
                return bytes(nbytes)
            array, offset = divmod(address - FIRST_ARRAY, ARRAY_DISTANCE)
            return self.read(array, offset, nbytes)

        def source(number: int, cache: InstructionCache) -> BlockSteps:
            return block_steps(
                chip,
                self.kernel.code,
                cache,
                entry=self.kernel.entry,
                arguments=packed,
                grid=(self.blocks, 1, 1),
                block=(chosen[number], 0, 0),
                read=read,
            )

        return run_blocks(chip, len(chosen), source)
