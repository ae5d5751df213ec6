"""Memory that outlives the call that frees it: blocks return once all work on them is done."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from driver.errors import NpuError, OutOfMemoryError
from driver.kmd.ioctl import MemoryKind
from driver.umd.client import Allocation, Client

if TYPE_CHECKING:
    from runtime.stream import Stream

__all__ = ["Block", "Heap"]


class Block:
    """An allocation and the work that uses it: for each stream the last timeline value.

    `freed`: its owner has given it up. `released`: it is back, and may be somebody else's.
    """

    __slots__ = ("_give_back", "allocation", "freed", "generation", "released", "uses")

    def __init__(
        self, allocation: Allocation, generation: int, give_back: Callable[[], None]
    ) -> None:
        self.allocation = allocation
        self.generation = generation
        self._give_back = give_back
        self.uses: dict[Stream, int] = {}
        self.freed = False
        self.released = False

    def release(self) -> None:
        """Give it back; no work may use it."""
        self.released = True
        self._give_back()

    def idle(self) -> bool:
        """Whether all work on it is done."""
        for stream, value in list(self.uses.items()):
            if not stream.is_done(value):
                return False
            del self.uses[stream]
        return True


class Heap:
    """Allocates blocks of one session and takes them back when they are idle.

    Attributes: `deferred`, blocks that were freed while work still used them.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._generation = client.session.generation
        self.deferred: list[Block] = []

    def allocate(self, nbytes: int, kind: MemoryKind) -> Block:
        """Take memory; when there is none, first finish work that holds freed blocks.

        Raises:
            OutOfMemoryError: there is none even then.
            StaleHandleError: the device was reset since the heap was made.
        """
        self.reap()
        try:
            return self._allocate(nbytes, kind)
        except OutOfMemoryError:
            if not self.deferred:
                raise
        for block in self.deferred:
            for stream, value in list(block.uses.items()):
                with suppress(NpuError):  # The stream keeps its error; here only memory matters.
                    stream.finish(value)
        self.reap()
        return self._allocate(nbytes, kind)

    def _allocate(self, nbytes: int, kind: MemoryKind) -> Block:
        self._client.session.check_generation(self._generation)
        allocation = self._client.allocate(nbytes, kind)
        return Block(allocation, self._generation, lambda: self._client.free(allocation.handle))

    def free(self, block: Block) -> None:
        """Take a block back as soon as it is idle."""
        block.freed = True
        self.deferred.append(block)
        self.reap()

    def abandon(self, block: Block) -> None:
        """As `free`, from a finaliser: nothing is touched before the next call."""
        if not block.freed:
            block.freed = True
            self.deferred.append(block)

    def reap(self) -> None:
        """Give back all freed blocks that are idle; an unfinished one holds up no other."""
        if not self.deferred:
            return
        generation = self._client.session.generation
        kept = []
        pending, self.deferred = self.deferred, []
        for block in pending:
            if block.generation != generation:
                continue
            if block.idle():
                block.release()
            else:
                kept.append(block)
        self.deferred += kept

    def clear(self) -> None:
        """Forget everything: the device was reset or closed."""
        self.deferred.clear()
