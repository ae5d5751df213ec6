"""Registers of intermediate results, and what each still holds.

A value stays known until its register is needed for another, so that the next command that needs
it, or a number near to it, has it at hand.
"""

from abi.isa import RAM_BASE
from runtime.compiler.errors import CompileError
from runtime.compiler.scalar import Constant, Scalar, Variable
from runtime.compiler.values import Values
from runtime.toolchain.assembler import Assembler

__all__ = ["IMMEDIATES", "TEMPORARIES", "Registers"]

TEMPORARIES = (5, 6, 7, 28, 29, 30, 31, 11, 12, 13, 14, 15, 16, 17)
"""t0 to t6, a1 to a7."""

IMMEDIATES = range(-2048, 2048)
"""Numbers that an instruction holds."""

RAM_REACH = len(IMMEDIATES) // 2
"""Bytes that a load or store reaches above an address."""


class Registers:
    """Hands out the temporaries; those in use are pinned. The least recently used goes first."""

    def __init__(self, asm: Assembler, values: Values) -> None:
        self._asm = asm
        self._values = values
        # In order of their last use.
        self._held: dict[int, Scalar | None] = dict.fromkeys(TEMPORARIES)
        self._pins: dict[int, int] = {}

    def take(self, value: Scalar | None = None) -> int:
        """A pinned register, which is to hold `value` from now on.

        Raises:
            CompileError: all are pinned.
        """
        free = [register for register in self._held if register not in self._pins]
        if not free:
            raise CompileError(
                f"an expression must need at most {len(TEMPORARIES)} registers: split it up"
            )
        register = next((r for r in free if self._held[r] is None), free[0])
        self._held[register] = value
        self._pin(register)
        return register

    def find(self, value: Scalar) -> int | None:
        """The register that holds a canonical value, pinned, if there is one."""
        for register, held in self._held.items():
            if held is value:
                self._pin(register)
                return register
        return None

    def constant(self, number: int) -> int:
        """A pinned register that holds a number."""
        value = self._values.canonical(Constant(number))
        assert isinstance(value, Constant)
        if value.value == 0:
            return 0
        found = self.find(value)
        if found is not None:
            return found
        if value.value in IMMEDIATES:
            register = self.take(value)
            self._asm.emit("addi", register, 0, value.value)
            return register
        for near, held in self._held.items():
            if not isinstance(held, Constant):
                continue
            # Sums wrap.
            distance = Constant(value.value - held.value).value
            if distance in IMMEDIATES:
                self._pin(near)
                register = self.take(value)
                self._asm.emit("addi", register, near, distance)
                self.release(near)
                return register
        high = (value.value + 0x800 >> 12) & 0xFFFFF
        base = self._values.canonical(Constant(high << 12))
        upper = self.take(base)
        self._asm.emit("lui", upper, high)
        if base is value:
            return upper
        self.release(upper)
        return self.constant(number)

    def ram(self, offset: int) -> tuple[int, int]:
        """A pinned register and an immediate that address a byte of the scalar unit's RAM."""
        return self.constant(RAM_BASE + offset // RAM_REACH * RAM_REACH), offset % RAM_REACH

    def release(self, *registers: int) -> None:
        """Unpin; others than temporaries are left alone."""
        for register in registers:
            if register in self._pins:
                self._pins[register] -= 1
                if not self._pins[register]:
                    del self._pins[register]

    def changed(self, variable: Variable) -> None:
        """What depends on a variable is known no longer."""
        for register, held in self._held.items():
            if held is not None and variable in self._values.variables(held):
                self._held[register] = None

    def forget(self) -> None:
        """Several ways lead to here: nothing is known."""
        assert not self._pins
        self._held = dict.fromkeys(TEMPORARIES)

    def state(self) -> dict[int, Scalar | None]:
        """What each holds."""
        return dict(self._held)

    def merge(self, other: dict[int, Scalar | None]) -> None:
        """Another way leads to here: only what both agree on is known."""
        for register, held in self._held.items():
            if other[register] is not held:
                self._held[register] = None

    def _pin(self, register: int) -> None:
        self._pins[register] = self._pins.get(register, 0) + 1
        self._held[register] = self._held.pop(register)
