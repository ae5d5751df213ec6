"""Builds programs of core commands."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from abi.core import COMMAND_BYTES, COMMANDS, FLAGS, CommandOpcode, MoveTarget

__all__ = ["Flags", "Program"]

Flags = Sequence[int]
"""Numbers of hardware flags."""


def _mask(flags: Flags) -> int:
    mask = 0
    for flag in flags:
        if not 0 <= flag < FLAGS or mask >> flag & 1:
            raise ValueError(f"flags must be distinct and below {FLAGS}, not {list(flags)!r}")
        mask |= 1 << flag
    return mask


@dataclass
class Program:
    """Core commands in program order. Each method appends one; `wait` and `set` are flags.

    Raises:
        ValueError: a field does not fit its command.
    """

    commands: list[bytes] = field(default_factory=list)

    def load(
        self,
        *,
        argument: int,
        offset: int,
        line: int,
        row_bytes: int,
        rows: int = 1,
        stride: int = 0,
        pitch: int = 0,
        wait: Flags = (),
        set_: Flags = (),
    ) -> None:
        """MTE2: rows of global memory into L1."""
        self._append(
            CommandOpcode.LOAD,
            wait,
            set_,
            argument=argument,
            offset=offset,
            line=line,
            row_bytes=row_bytes,
            rows=rows,
            stride=stride,
            pitch=pitch,
        )

    def move(
        self,
        target: MoveTarget,
        *,
        source: int,
        line: int,
        row_lines: int,
        rows: int = 1,
        source_pitch: int = 0,
        pitch: int = 0,
        wait: Flags = (),
        set_: Flags = (),
    ) -> None:
        """MTE1: rows of lines from L1 into a buffer of the Cube."""
        self._append(
            CommandOpcode.MOVE,
            wait,
            set_,
            target=target,
            source=source,
            source_pitch=source_pitch,
            line=line,
            pitch=pitch,
            row_lines=row_lines,
            rows=rows,
        )

    def mmad(
        self,
        *,
        accumulate: bool,
        a_line: int,
        a_pitch: int,
        b_line: int,
        b_pitch: int,
        c_line: int,
        c_pitch: int,
        rows: int,
        k_tiles: int,
        n_tiles: int,
        wait: Flags = (),
        set_: Flags = (),
    ) -> None:
        """CUBE: C = A x B, or C += A x B."""
        self._append(
            CommandOpcode.MMAD,
            wait,
            set_,
            accumulate=int(accumulate),
            a_line=a_line,
            a_pitch=a_pitch,
            b_line=b_line,
            b_pitch=b_pitch,
            c_line=c_line,
            c_pitch=c_pitch,
            rows=rows,
            k_tiles=k_tiles,
            n_tiles=n_tiles,
        )

    def store(
        self,
        *,
        argument: int,
        offset: int,
        columns: int,
        c_line: int,
        c_pitch: int = 0,
        rows: int = 1,
        stride: int = 0,
        bias_line: int | None = None,
        relu: bool = False,
        requantise: tuple[int, int] | None = None,
        wait: Flags = (),
        set_: Flags = (),
    ) -> None:
        """FIXPIPE: rows of L0C to global memory; `requantise` is (multiplier, shift)."""
        multiplier, shift = requantise or (0, 0)
        self._append(
            CommandOpcode.STORE,
            wait,
            set_,
            argument=argument,
            bias=int(bias_line is not None),
            relu=int(relu),
            requantise=int(requantise is not None),
            shift=shift,
            offset=offset,
            bias_line=bias_line or 0,
            stride=stride,
            columns=columns,
            rows=rows,
            c_line=c_line,
            c_pitch=c_pitch,
            multiplier=multiplier,
        )

    def finish(self) -> bytes:
        """Append END and give the program's bytes."""
        self._append(CommandOpcode.END, (), ())
        return b"".join(self.commands)

    def __len__(self) -> int:
        return len(self.commands)

    def _append(self, opcode: CommandOpcode, wait: Flags, set_: Flags, **fields: int) -> None:
        record = COMMANDS[opcode]
        word = record.pack(opcode=opcode, wait=_mask(wait), set=_mask(set_), **fields)
        self.commands.append(word.to_bytes(COMMAND_BYTES, "little"))
