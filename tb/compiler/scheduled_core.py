"""A core of golden models on which the pipes take turns at random, as far as flags allow.

A command runs in one step, at a random time between the moment at which its flags are there and
the last moment that the flags allow. So a kernel whose flags do not order its accesses gives wrong
results for some seed.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from abi.address import HBM_BASE
from abi.core import COMMANDS, FLAG_MAXIMUM, FLAGS, PIPES, CommandOpcode, Pipe
from abi.status import Status
from runtime.planner.chip import REFERENCE_BUFFERS as BUFFERS
from runtime.toolchain.events import Barrier, Exit, FlagSet, FlagWait, Issue, Trap
from runtime.toolchain.interpreter import ScalarInterpreter
from runtime.toolchain.object import KernelObject
from tb.models.pipes import PipesModel

__all__ = ["BUFFERS", "ScheduledCore"]

QUEUE_DEPTH = 4

Array = NDArray[np.generic]


class ScheduledCore:
    """Runs compiled kernels.

    Attributes:
        memory, model: global memory, and the buffers.
        commands: how many ran.
        drop_wait: leave out the first wait of each pipe that has one, as a broken kernel would.
    """

    def __init__(self, *, seed: int, memory_bytes: int = 1 << 22) -> None:
        self.random = random.Random(seed)
        self.memory = np.random.default_rng(seed).integers(0, 256, memory_bytes, np.uint8)
        self.model = PipesModel(
            {HBM_BASE: self.memory},
            l1_lines=BUFFERS.l1,
            l0a_lines=BUFFERS.l0a,
            l0b_lines=BUFFERS.l0b,
            l0c_lines=BUFFERS.l0c,
            bias_lines=BUFFERS.bias,
            ub_lines=BUFFERS.ub,
        )
        self.commands = 0
        self.drop_wait = False
        self._top = 0

    def place(self, array: Array) -> int:
        """Copy an array to memory; returns its device address. What surrounds it is random."""
        raw = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        start = self._top + 64 + self.random.randrange(64)
        start -= start % array.dtype.itemsize
        self.memory[start : start + raw.size] = raw
        self._top = start + raw.size + 64
        return HBM_BASE + start

    def read(self, address: int, shape: tuple[int, ...], dtype: type[np.generic]) -> Array:
        """An array in memory."""
        start = address - HBM_BASE
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.memory[start : start + nbytes].copy().view(dtype).reshape(shape)

    def run(
        self,
        kernel: KernelObject,
        arguments: Sequence[int | float],
        grid: tuple[int, int, int] = (1, 1, 1),
    ) -> None:
        """Run all blocks of a grid, in random order."""
        names = [argument.name for argument in kernel.arguments]
        raw = kernel.pack_arguments(dict(zip(names, arguments, strict=True)))
        x, y, z = grid
        blocks = [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
        self.random.shuffle(blocks)
        for block in blocks:
            scalar = ScalarInterpreter(
                kernel.code,
                read=lambda address, n: self.model.memory.read(address, n).tobytes(),
                write=lambda address, part: self.model.memory.write(
                    address, np.frombuffer(part, np.uint8)
                ),
            )
            scalar.start(arguments=raw, grid=grid, block=block)
            _Block(self, scalar).run()


class _Block:
    def __init__(self, core: ScheduledCore, scalar: ScalarInterpreter) -> None:
        self.core = core
        self.scalar = scalar
        self.flags = [0] * FLAGS
        self.dropped: set[Pipe] = set()
        self.queues: dict[Pipe, deque[Issue]] = {pipe: deque() for pipe in PIPES}

    def run(self) -> None:
        event = self.scalar.run()
        while True:
            if isinstance(event, Trap):
                raise AssertionError(f"block trapped: {event}")
            advance = self._may_advance(event)
            ready = [
                pipe
                for pipe, queue in self.queues.items()
                if queue and all(self.flags[f] for f in _bits(queue[0].wait))
            ]
            choices: list[Pipe] = [*ready, *([Pipe.SCALAR] * 2 if advance else [])]
            assert choices, f"deadlock at {event}, flags {self.flags}"
            chosen = self.core.random.choice(choices)
            if chosen is not Pipe.SCALAR:
                self._execute(self.queues[chosen].popleft())
                continue
            if isinstance(event, Exit):
                assert not any(self.flags), f"flags left over: {self.flags}"
                return
            self._apply(event)
            event = self.scalar.run()

    def _may_advance(self, event: object) -> bool:
        match event:
            case Issue():
                return len(self.queues[event.pipe]) < QUEUE_DEPTH
            case FlagWait():
                return self.flags[event.flag] > 0
            case Barrier() | Exit():
                return not any(self.queues.values())
        return True

    def _apply(self, event: object) -> None:
        match event:
            case Issue():
                if self.core.drop_wait and event.wait and event.pipe not in self.dropped:
                    self.dropped.add(event.pipe)
                    event = replace(event, wait=event.wait & (event.wait - 1))
                self.queues[event.pipe].append(event)
            case FlagWait():
                self.flags[event.flag] -= 1
            case FlagSet():
                self._give(event.flag)

    def _give(self, flag: int) -> None:
        self.flags[flag] += 1
        assert self.flags[flag] <= FLAG_MAXIMUM, f"flag {flag} overflows"

    def _execute(self, issue: Issue) -> None:
        for flag in _bits(issue.wait):
            self.flags[flag] -= 1
        opcode = CommandOpcode(issue.command[0])
        fields = COMMANDS[opcode].unpack_bytes(issue.command)
        status, address = self.core.model.execute(opcode, fields, issue.base)
        assert status is Status.OK, f"{opcode.name} at pc {issue.pc:#x}: {status.name} {address:#x}"
        self.core.commands += 1
        for flag in _bits(issue.set):
            self._give(flag)


def _bits(mask: int) -> list[int]:
    return [i for i in range(FLAGS) if mask >> i & 1]
