"""Interprets the scalar unit: RV32IM and what issues work to the pipes."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NoReturn

from abi.address import ADDRESS_BITS, LINE_BYTES
from abi.command_rules import broken_rule
from abi.core import PIPES, Pipe
from abi.geometry import CORES
from abi.isa import (
    ARGUMENTS_BASE,
    BASE_REGISTERS,
    RAM_BASE,
    RAM_BYTES,
    Format,
    Special,
)
from abi.status import Status
from runtime.toolchain.compute import BINARY, BRANCHES, IMMEDIATE, Closure
from runtime.toolchain.events import (
    Barrier,
    Event,
    Exit,
    FlagSet,
    FlagWait,
    Issue,
    Paused,
    StopError,
    Trap,
)
from runtime.toolchain.operands import Decoded, decode
from runtime.toolchain.scalar_memory import (
    CODE_LIMIT,
    Accessed,
    Placed,
    Read,
    ScalarMemory,
    Write,
)

__all__ = ["Read", "ScalarInterpreter"]

WORD_BYTES = 4
WORD_MASK = 0xFFFF_FFFF
NOWHERE = 32
"""Entry of the register list that takes what is written to x0; constants follow it."""

NO_LIMIT = 1 << 62

_broken_rule = lru_cache(maxsize=1 << 14)(broken_rule)


class ScalarInterpreter:
    """The scalar unit of a core, one block of a kernel after the other.

    Each instruction is decoded once, when it is first reached, into a closure; so a store to code
    is not seen by what executes it. Loads of global memory see the line that the unit holds, until
    `fence` or npu.barrier drops it (`scalar_memory`).

    Args:
        code: the kernel; code and constant data.
        read: `read(device address, nbytes)` reads a line of global memory (64 bytes, 64-aligned).
        write: `write(device address, bytes)` writes it. Both may raise `MemoryFaultError`.
        ram: the scalar unit's RAM, RAM_BYTES long, which keeps its contents between blocks.
        core, cores: number of this core, and of all.
        cycles: what `Special.CYCLES` reads.
        fence: called at each `fence`.
        accessed: `accessed(pc, is a store, device address, nbytes)` is called for each load and
            store through the window, after the load and before the store.

    Raises:
        ValueError: `ram` has another size.
    """

    def __init__(
        self,
        code: bytes,
        *,
        read: Read,
        write: Write,
        ram: bytearray | None = None,
        core: int = 0,
        cores: int = CORES,
        cycles: Callable[[], int] = lambda: 0,
        fence: Callable[[], None] = lambda: None,
        accessed: Accessed = lambda _pc, _store, _address, _nbytes: None,
    ) -> None:
        self.ram = bytearray(RAM_BYTES) if ram is None else ram
        if len(self.ram) != RAM_BYTES:
            raise ValueError(f"ram must have {RAM_BYTES} bytes, not {len(self.ram)!r}")
        self._code = bytes(code)
        self._cycles = cycles
        self._fence = fence
        self._specials = dict.fromkeys(Special, 0)
        self._specials[Special.CORE] = core
        self._specials[Special.CORES] = cores
        self._x = [0] * (NOWHERE + 1)
        self._constants: dict[int, int] = {}
        self._bases = [0] * BASE_REGISTERS
        self._memory = ScalarMemory(self.ram, self._bases, read, write, accessed)
        self._words = [[0] * 8 for _ in PIPES]
        self._waits = [0] * len(PIPES)
        self._sets = [0] * len(PIPES)
        self._count = min(len(self._code), CODE_LIMIT) // WORD_BYTES
        self._steps: list[Closure] = [partial(self._first, at) for at in range(self._count)]
        # Behind the code: what follows the last instruction, and where a jump leads away to.
        self._away_address = 0
        self._away = self._count + 1
        self._steps.append(lambda: self._fetch_away(WORD_BYTES * self._count))
        self._steps.append(lambda: self._fetch_away(self._away_address))
        self._at = self._count
        self._end: Event | None = None
        self.retired = 0
        """Instructions done since the interpreter was made."""

        self._makers: dict[Format, Callable[[int, Decoded], Closure]] = {
            Format.LOAD: self._make_load,
            Format.STORE: self._make_store,
            Format.GET: self._make_get,
            Format.WORD: self._make_word,
            Format.PAIR: self._make_word,
            Format.BASE: self._make_base,
            Format.FLAG: self._make_flag,
            Format.ISSUE: self._make_issue,
            Format.NONE: self._make_plain,
        }

    def start(
        self,
        *,
        entry: int = 0,
        arguments: bytes | Placed = b"",
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (0, 0, 0),
        code: Placed | None = None,
    ) -> None:
        """Begin a block: registers, base registers, staged words and masks as at its start.

        Args:
            entry: byte of the code at which it starts.
            arguments: the argument block, or where it lies.
            grid, block: (x, y, z).
            code: where the code lies; it may be larger than what the interpreter was made with,
                by lines that cannot be read. Without, loads of code see what it was made with.
        """
        memory = self._memory
        memory.drop()
        memory.code = self._code if code is None else code
        memory.arguments = bytes(arguments) if not isinstance(arguments, Placed) else arguments
        self._x[: NOWHERE + 1] = [0] * (NOWHERE + 1)
        self._x[2] = RAM_BASE + RAM_BYTES
        self._x[10] = ARGUMENTS_BASE
        self._bases[:] = [0] * BASE_REGISTERS
        for words in self._words:
            words[:] = [0] * 8
        self._waits[:] = [0] * len(PIPES)
        self._sets[:] = [0] * len(PIPES)
        x, y, z = block
        self._specials |= {
            Special.BLOCK: (x + grid[0] * (y + grid[1] * z)) & WORD_MASK,
            Special.BLOCK_X: x,
            Special.BLOCK_Y: y,
            Special.BLOCK_Z: z,
            Special.GRID_X: grid[0],
            Special.GRID_Y: grid[1],
            Special.GRID_Z: grid[2],
            Special.ARGUMENT_BYTES: memory.argument_bytes,
        }
        self._at = self._index(entry)
        self._end = self._misplaced(entry)

    def _misplaced(self, entry: int) -> Trap | None:
        """How a block fails before its first instruction."""
        placed = (self._memory.code, self._memory.arguments)
        lines = [(each.address, LINE_BYTES) for each in placed if isinstance(each, Placed)]
        for address, unit in ((entry, WORD_BYTES), *lines):
            if address % unit:
                return Trap(Status.MISALIGNED, entry, address)
        return None

    @property
    def registers(self) -> list[int]:
        """x0 to x31, unsigned."""
        return self._x[:NOWHERE]

    @registers.setter
    def registers(self, values: list[int]) -> None:
        self._x[1:NOWHERE] = [value & WORD_MASK for value in values[1:NOWHERE]]

    @property
    def bases(self) -> list[int]:
        """The base registers: device addresses."""
        return list(self._bases)

    @property
    def pc(self) -> int:
        """Address of the next instruction."""
        if self._end is not None:
            return self._end.pc
        return self._away_address if self._at == self._away else WORD_BYTES * self._at

    def run(self, limit: int = NO_LIMIT) -> Event:
        """Go on until the next event, or until `limit` instructions are done.

        After `Exit` or `Trap` the block has ended, and the same event is returned again.
        """
        if self._end is not None:
            return self._end
        steps, at, done = self._steps, self._at, 0
        try:
            while done < limit:
                at = steps[at]()
                done += 1
        except StopError as stop:
            event = stop.event
            self.retired += done + (not isinstance(event, Trap))
            if isinstance(event, Exit | Trap):
                self._at = at
                self._end = event
            else:
                self._at = at + 1
            return event
        self.retired += done
        self._at = at
        return Paused(self.pc)

    # Fetching and decoding.

    def _index(self, address: int) -> int:
        """Index of the closure at an aligned address."""
        if 0 <= address < WORD_BYTES * self._count:
            return address // WORD_BYTES
        self._away_address = address
        return self._away

    def _fetch_away(self, pc: int) -> NoReturn:
        """Fetch what is not code."""
        missing = self._memory.missing_code(pc)
        raise missing or StopError(Trap(Status.ADDRESS_FAULT, pc, pc))

    def _first(self, at: int) -> int:
        """Decodes an instruction when it is first reached, and does it."""
        pc = WORD_BYTES * at
        word = int.from_bytes(self._code[pc : pc + WORD_BYTES], "little")
        decoded = decode(word)
        step = self._illegal(pc, word) if decoded is None else self._make(at, decoded)
        self._steps[at] = step
        return step()

    def _illegal(self, pc: int, word: int) -> Closure:
        def run() -> int:
            reason = f"{word:#010x} is no instruction"
            raise StopError(Trap(Status.ILLEGAL_INSTRUCTION, pc, 0, reason=reason))

        return run

    def _make(self, at: int, decoded: Decoded) -> Closure:
        """The closure of an instruction."""
        name, pc = decoded.instruction.name, WORD_BYTES * at
        values, following = decoded.values, at + 1
        if name in BINARY:
            d, a, b = values
            return BINARY[name](self._x, d or NOWHERE, a, b, following)
        if name in IMMEDIATE:
            d, a, value = values
            return IMMEDIATE[name](self._x, d or NOWHERE, a, self._constant(value), following)
        if name in BRANCHES:
            a, b, distance = values
            return self._make_branch(name, a, b, pc, pc + distance & WORD_MASK)
        if name in ("lui", "auipc"):
            value = (values[1] << 12) + (pc if name == "auipc" else 0)
            return BINARY["add"](self._x, values[0] or NOWHERE, 0, self._constant(value), following)
        if name == "jal":
            return self._make_jump(values[0], pc, pc + values[1] & WORD_MASK)
        if name == "jalr":
            return self._make_jump_register(pc, decoded)
        return self._makers[decoded.instruction.format](at, decoded)

    def _constant(self, value: int) -> int:
        """Where in the register list a constant is."""
        value &= WORD_MASK
        if value not in self._constants:
            self._constants[value] = len(self._x)
            self._x.append(value)
        return self._constants[value]

    def _make_branch(self, name: str, a: int, b: int, pc: int, target: int) -> Closure:
        following = pc // WORD_BYTES + 1
        if target % WORD_BYTES == 0 and target < WORD_BYTES * self._count:
            return BRANCHES[name](self._x, a, b, target // WORD_BYTES, following)
        branch = BRANCHES[name](self._x, a, b, -1, following)

        def run() -> int:
            at = branch()
            return self._jump(pc, target) if at < 0 else at

        return run

    def _jump(self, pc: int, target: int) -> int:
        """Index of the target of a jump that is taken."""
        if target % WORD_BYTES:
            raise StopError(Trap(Status.MISALIGNED, pc, target))
        return self._index(target)

    def _make_jump(self, rd: int, pc: int, target: int) -> Closure:
        x, d, link = self._x, rd or NOWHERE, pc + WORD_BYTES

        def run() -> int:
            at = self._jump(pc, target)
            x[d] = link
            return at

        def run_inside() -> int:
            x[d] = link
            return target // WORD_BYTES

        inside = target % WORD_BYTES == 0 and target < WORD_BYTES * self._count
        return run_inside if inside else run

    def _make_jump_register(self, pc: int, decoded: Decoded) -> Closure:
        d, immediate, a = decoded.values
        x, d, link = self._x, d or NOWHERE, pc + WORD_BYTES

        def run() -> int:
            at = self._jump(pc, (x[a] + immediate) & 0xFFFF_FFFE)
            x[d] = link
            return at

        return run

    # Memory.

    def _make_load(self, at: int, decoded: Decoded) -> Closure:
        d, immediate, a = decoded.values
        name, pc, following = decoded.instruction.name, WORD_BYTES * at, at + 1
        nbytes = {"b": 1, "h": 2, "w": 4}[name[1]]
        sign = 0 if name.endswith("u") or nbytes == WORD_BYTES else 1 << 8 * nbytes - 1
        x, d, ram, last = self._x, d or NOWHERE, self.ram, RAM_BYTES - nbytes
        odd, load = nbytes - 1, self._memory.load

        def run() -> int:
            address = (x[a] + immediate) & WORD_MASK
            offset = address - RAM_BASE
            if 0 <= offset <= last and not address & odd:
                value = int.from_bytes(ram[offset : offset + nbytes], "little")
            else:
                value = int.from_bytes(load(pc, address, nbytes), "little")
            x[d] = (value ^ sign) - sign & WORD_MASK if sign else value
            return following

        return run

    def _make_store(self, at: int, decoded: Decoded) -> Closure:
        b, immediate, a = decoded.values
        pc, following = WORD_BYTES * at, at + 1
        nbytes = {"b": 1, "h": 2, "w": 4}[decoded.instruction.name[1]]
        x, ram, last = self._x, self.ram, RAM_BYTES - nbytes
        odd, mask, store = nbytes - 1, (1 << 8 * nbytes) - 1, self._memory.store

        def run() -> int:
            address = (x[a] + immediate) & WORD_MASK
            raw = (x[b] & mask).to_bytes(nbytes, "little")
            offset = address - RAM_BASE
            if 0 <= offset <= last and not address & odd:
                ram[offset : offset + nbytes] = raw
            else:
                store(pc, address, raw)
            return following

        return run

    # Work for the pipes.

    def _make_get(self, at: int, decoded: Decoded) -> Closure:
        d, special, following = decoded["rd"] or NOWHERE, Special(decoded["special"]), at + 1
        x, specials = self._x, self._specials

        def run() -> int:
            x[d] = specials[special]
            return following

        def run_cycles() -> int:
            x[d] = self._cycles() & WORD_MASK
            return following

        return run_cycles if special is Special.CYCLES else run

    def _make_word(self, at: int, decoded: Decoded) -> Closure:
        pipe, index, *sources = decoded.values
        x, words, following = self._x, self._words[pipe], at + 1
        first, last = sources[0], sources[-1]

        def run() -> int:
            words[index] = x[first]
            return following

        def run_pair() -> int:
            words[index] = x[first]
            words[index + 1] = x[last]
            return following

        return run_pair if len(sources) == 2 else run

    def _make_base(self, at: int, decoded: Decoded) -> Closure:
        base, low, high = decoded.values
        x, bases, pc, following = self._x, self._bases, WORD_BYTES * at, at + 1

        def run() -> int:
            address = x[low] + (x[high] << 32)
            if address >> ADDRESS_BITS:
                reason = f"a base register holds {ADDRESS_BITS} bits"
                raise StopError(Trap(Status.ADDRESS_FAULT, pc, address, reason=reason))
            bases[base] = address
            return following

        return run

    def _make_flag(self, at: int, decoded: Decoded) -> Closure:
        pipe, flag = decoded.values
        waits = decoded.instruction.name == "npu.wait"
        pc, following = WORD_BYTES * at, at + 1
        if pipe == Pipe.SCALAR:
            return self._stopping(FlagWait(flag, pc) if waits else FlagSet(flag, pc))
        masks, bit = self._waits if waits else self._sets, 1 << flag

        def run() -> int:
            masks[pipe] |= bit
            return following

        return run

    def _make_issue(self, at: int, decoded: Decoded) -> Closure:
        pipe, a, pc = Pipe(decoded["pipe"]), decoded["rs1"], WORD_BYTES * at
        x, words = self._x, self._words[pipe]

        def run() -> int:
            words[0] = x[a]
            command = b"".join(word.to_bytes(WORD_BYTES, "little") for word in words)
            broken = _broken_rule(int(pipe), int.from_bytes(command, "little"))
            if broken is not None:
                raise StopError(Trap(Status.BAD_COMMAND, pc, 0, pipe, broken))
            wait, give = self._waits[pipe], self._sets[pipe]
            self._waits[pipe] = self._sets[pipe] = 0
            base = self._bases[words[0] >> 8 & BASE_REGISTERS - 1]
            raise StopError(Issue(pipe, command, base, wait, give, pc))

        return run

    def _make_plain(self, at: int, decoded: Decoded) -> Closure:
        pc, following = WORD_BYTES * at, at + 1
        match decoded.instruction.name:
            case "fence":
                return self._make_fence(following)
            case "npu.barrier":
                return self._make_barrier(pc)
            case "npu.exit":
                return self._stopping(Exit(pc))
        return self._stopping(Trap(Status.BREAKPOINT, pc, 0))

    def _make_fence(self, following: int) -> Closure:
        def run() -> int:
            self._memory.drop()
            self._fence()
            return following

        return run

    def _make_barrier(self, pc: int) -> Closure:
        event = Barrier(pc)

        def run() -> int:
            # What memory holds when the pipes have ended is read anew.
            self._memory.drop()
            raise StopError(event)

        return run

    def _stopping(self, event: Event) -> Closure:
        def run() -> int:
            raise StopError(event)

        return run
