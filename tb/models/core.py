"""Golden model of the AI core: executes a program bit-exactly on numpy memories.

What a program computes does not depend on time as long as its flags order every access, so the
model runs each command in one step. It keeps what can be seen from outside: pipe queues of
QUEUE_DEPTH commands, flags, the first fault, the counters that do not depend on time.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from abi.address import ADDRESS_BITS, LINE_BYTES
from abi.core import (
    ABSOLUTE,
    COMMAND_BYTES,
    COMMANDS,
    CUBE_SIDE,
    FLAG_MAXIMUM,
    FLAGS,
    CommandOpcode,
    MoveTarget,
    Pipe,
)
from abi.packet import KERNEL_ARGUMENTS
from abi.status import Status

__all__ = ["PIPE_OF", "QUEUE_DEPTH", "SEQUENCER", "CoreModel", "CoreResult"]

QUEUE_DEPTH = 4
"""Commands that wait in front of a pipe, its head included."""

SEQUENCER = 0xFF
"""`CoreResult.pipe` when the sequencer failed."""

PIPE_OF = {
    CommandOpcode.LOAD: Pipe.MTE2,
    CommandOpcode.MOVE: Pipe.MTE1,
    CommandOpcode.MMAD: Pipe.CUBE,
    CommandOpcode.STORE: Pipe.FIXPIPE,
}
"""The pipe of each command that has a fixed one."""

_AT_LEAST_1 = {
    CommandOpcode.LOAD: ("row_bytes", "rows"),
    CommandOpcode.MOVE: ("row_lines", "rows"),
    CommandOpcode.MMAD: ("rows", "k_tiles", "n_tiles"),
    CommandOpcode.STORE: ("columns", "rows"),
}

Fields = dict[str, int]


@dataclass(frozen=True)
class CoreResult:
    """Outcome of a program, as CORE_STATE, CORE_FAULT_ADDRESS and the counters show it.

    `pipe`, `command` and `address` are 0 for status OK. `retired` counts finished commands, END
    and JUMP included; `macs`, `read_bytes` (whole lines of LOADs) and `write_bytes` are those of
    this program.
    """

    status: Status
    pipe: int
    command: int
    address: int
    retired: int
    macs: int
    read_bytes: int
    write_bytes: int


class _FaultError(Exception):
    def __init__(self, status: Status, address: int = 0) -> None:
        super().__init__(status, address)
        self.status = status
        self.address = address % 2**64 & ~(LINE_BYTES - 1)


def _check(end: int, lines: int) -> None:
    if end >= lines:
        raise _FaultError(Status.BUFFER_OVERFLOW)


def _ceil(value: int, unit: int) -> int:
    return -(-value // unit)


class CoreModel:
    """An AI core with its buffers, which keep their contents from one program to the next.

    Args:
        regions: global memory: base device address (a multiple of 64) to a writable uint8 array
            (a multiple of 64 bytes). All else is an ADDRESS_FAULT.
        l1_lines, l0a_lines, l0b_lines, l0c_lines, bias_lines: sizes in lines of 64 bytes.

    Attributes: `l1`, `l0a`, `l0b`, `l0c`, `bias`: uint8 arrays of shape (lines, 64).
    """

    def __init__(
        self,
        regions: Mapping[int, NDArray[np.uint8]],
        *,
        l1_lines: int = 4096,
        l0a_lines: int = 512,
        l0b_lines: int = 512,
        l0c_lines: int = 1024,
        bias_lines: int = 64,
    ) -> None:
        for base, array in regions.items():
            if base % LINE_BYTES or array.nbytes % LINE_BYTES or array.dtype != np.uint8:
                raise ValueError(f"a region must be uint8 and whole lines, not one at {base!r}")
        self.regions = dict(regions)
        self.l1 = np.zeros((l1_lines, LINE_BYTES), np.uint8)
        self.l0a = np.zeros((l0a_lines, LINE_BYTES), np.uint8)
        self.l0b = np.zeros((l0b_lines, LINE_BYTES), np.uint8)
        self.l0c = np.zeros((l0c_lines, LINE_BYTES), np.uint8)
        self.bias = np.zeros((bias_lines, LINE_BYTES), np.uint8)
        self._arguments = [0] * KERNEL_ARGUMENTS
        self._macs = self._read_bytes = self._write_bytes = 0

    # Global memory.

    def _region(self, address: int) -> tuple[NDArray[np.uint8], int]:
        for base, array in self.regions.items():
            if base <= address < base + array.nbytes:
                return array, address - base
        raise _FaultError(Status.ADDRESS_FAULT, address)

    def read(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """Bytes of global memory, as the core reads them."""
        parts = []
        while nbytes:
            array, offset = self._region(address)
            part = array[offset : offset + nbytes]
            parts.append(part)
            address, nbytes = address + part.size, nbytes - part.size
        return np.concatenate(parts)

    def write(self, address: int, data: NDArray[np.uint8]) -> None:
        """Write bytes of global memory, as the core writes them."""
        while data.size:
            array, offset = self._region(address)
            part = data[: array.nbytes - offset]
            array[offset : offset + part.size] = part
            address, data = address + part.size, data[part.size :]

    def _rows(self, command: Fields, row_bytes: int) -> list[int]:
        """Addresses of the rows of a LOAD or STORE."""
        offset = command["offset"]
        base = 0
        if command["argument"] == ABSOLUTE:
            offset %= 1 << ADDRESS_BITS
        else:
            base = self._arguments[command["argument"]]
            if base >> ADDRESS_BITS:
                raise _FaultError(Status.ADDRESS_FAULT, base)
        first = base + offset
        last = first + (command["rows"] - 1) * command["stride"]
        for address in (first, last):
            if address < 0 or address + row_bytes > 1 << ADDRESS_BITS:
                raise _FaultError(Status.ADDRESS_FAULT, address)
        return [first + i * command["stride"] for i in range(command["rows"])]

    # Commands.

    def _load(self, c: Fields) -> None:
        lines = _ceil(c["row_bytes"], LINE_BYTES)
        _check(c["line"] + (c["rows"] - 1) * c["pitch"] + lines - 1, len(self.l1))
        for i, address in enumerate(self._rows(c, c["row_bytes"])):
            row = np.zeros(lines * LINE_BYTES, np.uint8)
            row[: c["row_bytes"]] = self.read(address, c["row_bytes"])
            first = c["line"] + i * c["pitch"]
            self.l1[first : first + lines] = row.reshape(lines, LINE_BYTES)
            end = address + c["row_bytes"] - 1
            self._read_bytes += (end // LINE_BYTES - address // LINE_BYTES + 1) * LINE_BYTES

    def _move(self, c: Fields) -> None:
        target = {
            MoveTarget.L0A: self.l0a,
            MoveTarget.L0B: self.l0b,
            MoveTarget.L0C: self.l0c,
            MoveTarget.BIAS: self.bias,
        }[MoveTarget(c["target"])]
        rows, lines = c["rows"], c["row_lines"]
        _check(c["source"] + (rows - 1) * c["source_pitch"] + lines - 1, len(self.l1))
        _check(c["line"] + (rows - 1) * c["pitch"] + lines - 1, len(target))
        for i in range(rows):
            source, line = c["source"] + i * c["source_pitch"], c["line"] + i * c["pitch"]
            target[line : line + lines] = self.l1[source : source + lines]

    def _mmad(self, c: Fields) -> None:
        rows, k_tiles, n_tiles = c["rows"], c["k_tiles"], c["n_tiles"]
        depth, width = k_tiles * CUBE_SIDE, n_tiles * CUBE_SIDE
        a_lines, b_lines = _ceil(depth, LINE_BYTES), _ceil(width, LINE_BYTES)
        _check(c["a_line"] + (rows - 1) * c["a_pitch"] + a_lines - 1, len(self.l0a))
        _check(c["b_line"] + (depth - 1) * c["b_pitch"] + b_lines - 1, len(self.l0b))
        _check(c["c_line"] + (rows - 1) * c["c_pitch"] + n_tiles - 1, len(self.l0c))
        a_at = c["a_line"] + np.arange(rows)[:, None] * c["a_pitch"] + np.arange(a_lines)
        b_at = c["b_line"] + np.arange(depth)[:, None] * c["b_pitch"] + np.arange(b_lines)
        c_at = c["c_line"] + np.arange(rows)[:, None] * c["c_pitch"] + np.arange(n_tiles)
        a = self.l0a[a_at].reshape(rows, -1)[:, :depth].view(np.int8).astype(np.float64)
        b = self.l0b[b_at].reshape(depth, -1)[:, :width].view(np.int8).astype(np.float64)
        sums = self.l0c.view(np.int32)
        self._macs += rows * depth * width
        if np.unique(c_at).size == c_at.size:
            # Exact: every partial sum is far below 2**53.
            product = (a @ b).astype(np.int64).astype(np.int32)
            product = product.reshape(rows, n_tiles, CUBE_SIDE)
            sums[c_at] = product + sums[c_at] if c["accumulate"] else product
            return
        # Rows that share lines of L0C: the order of the Cube decides.
        for n in range(n_tiles):
            for k in range(k_tiles):
                tile = np.s_[k * CUBE_SIDE : (k + 1) * CUBE_SIDE]
                step = (a[:, tile] @ b[tile, n * CUBE_SIDE : (n + 1) * CUBE_SIDE]).astype(np.int32)
                for m in range(rows):
                    old = sums[c_at[m, n]] if k or c["accumulate"] else 0
                    sums[c_at[m, n]] = step[m] + old

    def _store(self, c: Fields) -> None:
        rows, columns = c["rows"], c["columns"]
        lines = _ceil(columns, CUBE_SIDE)
        _check(c["c_line"] + (rows - 1) * c["c_pitch"] + lines - 1, len(self.l0c))
        if c["bias"]:
            _check(c["bias_line"] + lines - 1, len(self.bias))
        addresses = self._rows(c, columns if c["requantise"] else 4 * columns)
        for i, address in enumerate(addresses):
            first = c["c_line"] + i * c["c_pitch"]
            x = self.l0c[first : first + lines].view(np.int32).reshape(-1)
            if c["bias"]:
                bias = self.bias[c["bias_line"] : c["bias_line"] + lines]
                x = x + bias.view(np.int32).reshape(-1)
            if c["relu"]:
                x = np.maximum(x, 0)
            out = x[:columns].view(np.uint8)
            if c["requantise"]:
                scaled = x.astype(np.int64) * c["multiplier"] + ((1 << c["shift"]) >> 1)
                out = np.clip(scaled >> c["shift"], -128, 127).astype(np.int8).view(np.uint8)
                out = out[:columns]
            self.write(address, out)
            self._write_bytes += out.size

    def execute(self, command: bytes, arguments: Sequence[int] = ()) -> tuple[Status, int]:
        """Execute one LOAD, MOVE, MMAD or STORE, without flags; returns status and address."""
        decoded = self.decode(command)
        if decoded is None:
            raise ValueError(f"command must be valid, not {command!r}")
        self._arguments = [*arguments, *[0] * (KERNEL_ARGUMENTS - len(arguments))]
        try:
            self._work(*decoded)
        except _FaultError as fault:
            return fault.status, fault.address
        return Status.OK, 0

    def _work(self, opcode: CommandOpcode, command: Fields) -> None:
        match opcode:
            case CommandOpcode.LOAD:
                self._load(command)
            case CommandOpcode.MOVE:
                self._move(command)
            case CommandOpcode.MMAD:
                self._mmad(command)
            case CommandOpcode.STORE:
                self._store(command)

    # The sequencer.

    @staticmethod
    def decode(raw: bytes) -> tuple[CommandOpcode, Fields] | None:
        """Opcode and fields of a command, or None if the sequencer would refuse it."""
        if raw[0] not in list(CommandOpcode):
            return None
        opcode = CommandOpcode(raw[0])
        c = COMMANDS[opcode].unpack_bytes(raw)
        bad = any(value for name, value in c.items() if name.startswith("reserved"))
        bad |= any(c[name] == 0 for name in _AT_LEAST_1.get(opcode, ()))
        bad |= "argument" in c and KERNEL_ARGUMENTS <= c["argument"] < ABSOLUTE
        match opcode:
            case CommandOpcode.NOP:
                bad |= c["pipe"] >= len(Pipe)
            case CommandOpcode.END:
                bad |= c["pipe"] != 0
            case CommandOpcode.MOVE:
                bad |= c["target"] >= len(MoveTarget)
            case CommandOpcode.STORE:
                bad |= c["shift"] > 62
        return None if bad else (opcode, c)

    def run(
        self,
        commands: bytes,
        arguments: Sequence[int] = (),
        *,
        length: int | None = None,
        limit: int = 1_000_000,
    ) -> CoreResult:
        """Execute a program.

        Args:
            commands: the program, 32 bytes a command.
            arguments: values of the base registers (missing ones are 0).
            length: CORE_LENGTH; by default the number of commands given.
            limit: most commands to dispatch.

        Raises:
            ValueError: `commands` are no whole commands, or there are too many arguments.
            RuntimeError: the program dispatched `limit` commands without an end.
        """
        if len(commands) % COMMAND_BYTES:
            raise ValueError(f"a program must be whole commands, not {len(commands)!r} bytes")
        if len(arguments) > KERNEL_ARGUMENTS:
            raise ValueError(f"arguments must be at most {KERNEL_ARGUMENTS}, not {arguments!r}")
        length = len(commands) // COMMAND_BYTES if length is None else length
        self._arguments = [*arguments, *[0] * (KERNEL_ARGUMENTS - len(arguments))]
        self._macs = self._read_bytes = self._write_bytes = 0
        run = _Run(self, commands, length)
        status, pipe, command, address = Status.OK, 0, 0, 0
        try:
            while not run.step():
                if run.dispatched > limit:
                    raise RuntimeError(f"the program must end within {limit} commands")
        except _FaultError as fault:
            status, pipe, command, address = fault.status, run.pipe, run.command, fault.address
        counted = (run.retired, self._macs, self._read_bytes, self._write_bytes)
        return CoreResult(status, pipe, command, address, *counted)


class _Run:
    """One program on its way: the sequencer, the queues and the flags."""

    def __init__(self, core: CoreModel, commands: bytes, length: int) -> None:
        self.core = core
        self.commands = commands
        self.length = length
        self.next = 0
        self.dispatched = 0
        self.retired = 0
        self.flags = [0] * FLAGS
        self.queues: dict[Pipe, deque[tuple[int, CommandOpcode, Fields]]] = {
            pipe: deque() for pipe in Pipe
        }
        # Where the command that is worked at belongs; names the culprit of a fault.
        self.pipe = SEQUENCER
        self.command = 0

    def _ready(self, wait: int) -> bool:
        return all(self.flags[i] for i in range(FLAGS) if wait >> i & 1)

    def _take(self, wait: int) -> None:
        for i in range(FLAGS):
            self.flags[i] -= wait >> i & 1

    def _retire(self, flags: int) -> None:
        for i in range(FLAGS):
            self.flags[i] += flags >> i & 1
            if self.flags[i] > FLAG_MAXIMUM:
                raise _FaultError(Status.FLAG_OVERFLOW)
        self.retired += 1

    def _sequence(self) -> tuple[bool, bool]:
        """Work at the next command; returns whether it went on, and whether the program ended."""
        self.pipe, self.command = SEQUENCER, self.next
        if self.next >= self.length:
            raise _FaultError(Status.BAD_COMMAND)
        raw = self.commands[self.next * COMMAND_BYTES : (self.next + 1) * COMMAND_BYTES]
        raw = raw.ljust(COMMAND_BYTES, bytes(1))
        decoded = CoreModel.decode(raw)
        if decoded is None:
            raise _FaultError(Status.BAD_COMMAND)
        opcode, c = decoded
        if opcode in (CommandOpcode.JUMP, CommandOpcode.END):
            end = opcode is CommandOpcode.END
            if not self._ready(c["wait"]) or (end and any(self.queues.values())):
                return False, False
            self._take(c["wait"])
            self._retire(c["set"])
            self.next = self.next + 1 if end else c["target"]
            self.dispatched += 1
            return True, end
        queue = self.queues[PIPE_OF.get(opcode, Pipe(c.get("pipe", 0)))]
        if len(queue) == QUEUE_DEPTH:
            return False, False
        queue.append((self.next, opcode, c))
        self.next += 1
        self.dispatched += 1
        return True, False

    def step(self) -> bool:
        """Sequence one command and run the head of every pipe; returns True at the end."""
        progress, ended = self._sequence()
        if ended:
            return True
        for pipe, queue in self.queues.items():
            if queue and self._ready(queue[0][2]["wait"]):
                self.pipe, (self.command, opcode, c) = pipe, queue.popleft()
                self._take(c["wait"])
                self.core._work(opcode, c)
                self._retire(c["set"])
                progress = True
        if not progress:
            stuck = [(pipe, queue[0][0]) for pipe, queue in self.queues.items() if queue]
            self.pipe, self.command = stuck[0] if stuck else (SEQUENCER, self.next)
            raise _FaultError(Status.FLAG_DEADLOCK)
        return False
