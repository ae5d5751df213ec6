"""What a kernel uses of flags and scalar RAM as its code alone tells, against what it declares.

Only what surely happens on some way through the code is counted: data between instructions is
not taken for code. So the kernel may use more, which `inspection.check_object` sees.
"""

from dataclasses import dataclass
from functools import lru_cache

from abi.isa import ARGUMENTS_BASE, RAM_BASE, RAM_BYTES, Format
from runtime.toolchain.object import KernelObject, ObjectError
from runtime.toolchain.operands import Decoded, decode

__all__ = ["CodeUse", "check_declared", "code_use"]

WORD_BYTES = 4
WORD_MASK = 0xFFFF_FFFF
STACK_POINTER, ARGUMENTS_REGISTER = 2, 10
AT_START = {0: 0, STACK_POINTER: RAM_BASE + RAM_BYTES, ARGUMENTS_REGISTER: ARGUMENTS_BASE}
ALWAYS = ("beq", "bge", "bgeu")
ACCESS_BYTES = {"b": 1, "h": 2, "w": 4}
STOPS = ("ecall", "ebreak", "npu.exit")

_decode = lru_cache(maxsize=1 << 14)(decode)


@dataclass(frozen=True)
class CodeUse:
    """What code surely uses.

    Args:
        flags: mask of the flags.
        ram_bytes: bytes of the scalar RAM that loads and stores at constant addresses touch.
    """

    flags: int
    ram_bytes: int


class _Walk:
    """Follows the code from its entry, with the registers whose values are known."""

    def __init__(self, code: bytes, entry: int) -> None:
        self._code = code
        self._seen: set[int] = set()
        self._heads = [(entry, AT_START)]
        self.flags = 0
        self.ram: set[int] = set()

    def run(self) -> CodeUse:
        """Go all ways; a way ends where its target is not constant."""
        while self._heads:
            pc, known = self._heads.pop()
            following: int | None = pc
            known = dict(known)
            while following is not None:
                following = self._step(following, known)
        return CodeUse(self.flags, len(self.ram))

    def _step(self, pc: int, known: dict[int, int]) -> int | None:
        """Do an instruction; the address of the next one, or None where the way ends."""
        if pc in self._seen or pc % WORD_BYTES or not 0 <= pc <= len(self._code) - WORD_BYTES:
            return None
        self._seen.add(pc)
        decoded = _decode(int.from_bytes(self._code[pc : pc + WORD_BYTES], "little"))
        if decoded is None or decoded.instruction.name in STOPS:
            return None
        name, form = decoded.instruction.name, decoded.instruction.format
        if form is Format.BRANCH:
            first, second, distance = decoded.values
            if first != second or name in ALWAYS:
                self._heads.append((pc + distance, dict(known)))
            return None if first == second and name in ALWAYS else pc + WORD_BYTES
        if form is Format.JUMP:
            known.pop(decoded["rd"], None)
            known[0] = 0
            return pc + decoded["target"]
        if name == "jalr":
            return None
        if form is Format.FLAG:
            self.flags |= 1 << decoded["flag"]
        elif form in (Format.LOAD, Format.STORE):
            self._access(decoded, known)
        self._learn(decoded, known)
        return pc + WORD_BYTES

    def _access(self, decoded: Decoded, known: dict[int, int]) -> None:
        base = known.get(decoded["rs1"])
        if base is None:
            return
        address = (base + decoded["immediate"]) & WORD_MASK
        nbytes = ACCESS_BYTES[decoded.instruction.name[1]]
        if 0 <= address - RAM_BASE <= RAM_BYTES - nbytes:
            self.ram |= set(range(address, address + nbytes))

    @staticmethod
    def _learn(decoded: Decoded, known: dict[int, int]) -> None:
        """What an instruction makes of its result register."""
        if "rd" not in decoded.named:
            return
        name, result = decoded.instruction.name, None
        if name == "lui":
            result = decoded["immediate"] << 12 & WORD_MASK
        elif name == "addi" and decoded["rs1"] in known:
            result = (known[decoded["rs1"]] + decoded["immediate"]) & WORD_MASK
        if result is None:
            known.pop(decoded["rd"], None)
        else:
            known[decoded["rd"]] = result
        known[0] = 0


@lru_cache(maxsize=256)
def code_use(code: bytes, entry: int) -> CodeUse:
    """What code surely uses, from its entry on."""
    return _Walk(code, entry).run()


def check_declared(kernel: KernelObject) -> None:
    """Check that a kernel declares what its code alone tells that it uses.

    Raises:
        ObjectError: it uses flags or scalar RAM that it does not declare.
    """
    use = code_use(kernel.code, kernel.entry)
    missing = use.flags & ~kernel.flags
    if missing:
        raise ObjectError(
            f"flags must have those that the code of {kernel.name} uses, {use.flags:#x}, "
            f"not {kernel.flags:#x}"
        )
    if use.ram_bytes > kernel.ram_bytes:
        raise ObjectError(
            f"ram_bytes must be at least the {use.ram_bytes} that the code of {kernel.name} uses, "
            f"not {kernel.ram_bytes!r}"
        )
