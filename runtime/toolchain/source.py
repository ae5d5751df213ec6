"""The assembler's text: labels, instructions, numbers, comments."""

import re
from collections.abc import Callable

from abi.isa import INSTRUCTIONS
from runtime.toolchain.assembler import Assembler, AssemblyError, Operand
from runtime.toolchain.operands import FORMAT_SLOTS, Kind

__all__ = ["assemble", "assemble_into"]

_COMMENT = re.compile(r"(#|//|;).*")
_LABEL = re.compile(r"\s*([A-Za-z_.$][\w.$]*)\s*:")
_ADDRESSED = re.compile(r"(.*)\(\s*([\w.$]+)\s*\)")
_NUMBER = re.compile(r"[+-]?(0[xX][0-9a-fA-F_]+|0[bB][01_]+|[0-9][0-9_]*)")


def assemble(text: str) -> bytes:
    """Assemble a program, which is loaded at address 0.

    A line is `label:`, an instruction of `abi.isa` with its operands as in its format, a
    pseudo-instruction (li, la, mv, nop, j, call, ret, not, neg, beqz, bnez), `.word value, ...`
    or `.equ name, number`. Comments start with `#`, `//` or `;`. Numbers are decimal, 0x or 0b.
    Registers have their x or ABI names; pipes and special values those of `Pipe` and `Special`.
    A number as target is an address in the program.

    Raises:
        AssemblyError: with the number of the line.
    """
    asm = Assembler()
    assemble_into(asm, text)
    return asm.assemble()


def assemble_into(asm: Assembler, text: str) -> None:
    """Append a text to a program.

    Raises:
        AssemblyError: with the number of the line.
    """
    source = _Source(asm)
    for number, line in enumerate(text.splitlines(), 1):
        asm.at(f"line {number}")
        source.line(line, number)


class _Source:
    def __init__(self, asm: Assembler) -> None:
        self._asm = asm
        self._constants: dict[str, int] = {}
        self._number = 0
        self._pseudo: dict[str, tuple[str, Callable[..., None]]] = {
            "li": ("register, number", asm.li),
            "la": ("register, target", asm.la),
            "mv": ("register, register", asm.mv),
            "nop": ("", asm.nop),
            "j": ("target", asm.j),
            "call": ("target", asm.call),
            "ret": ("", asm.ret),
            "not": ("register, register", asm.invert),
            "neg": ("register, register", asm.neg),
            "beqz": ("register, target", asm.beqz),
            "bnez": ("register, target", asm.bnez),
        }

    def line(self, line: str, number: int) -> None:
        self._number = number
        rest = _COMMENT.sub("", line)
        while match := _LABEL.match(rest):
            self._asm.label(match[1])
            rest = rest[match.end() :]
        if not rest.strip():
            return
        name, *following = rest.split(None, 1)
        text = following[0].strip() if following else ""
        operands = [part.strip() for part in text.split(",")] if text else []
        if not all(operands):
            raise self._error(f"{name}: an operand is missing in {text!r}")
        self._statement(name.lower(), operands)

    def _statement(self, name: str, operands: list[str]) -> None:
        if name == ".word":
            if not operands:
                raise self._error(".word needs a value")
            for operand in operands:
                self._asm.word(self._target(operand))
        elif name == ".equ":
            if len(operands) != 2:
                raise self._error(f".equ has 2 operands (name, number), not {len(operands)}")
            self._constants[operands[0]] = self._integer(operands[1])
        elif name in self._pseudo:
            self._pseudo_instruction(name, operands)
        elif name in INSTRUCTIONS:
            self._instruction(name, operands)
        else:
            raise self._error(f"there is no instruction {name!r}")

    def _pseudo_instruction(self, name: str, operands: list[str]) -> None:
        form, emit = self._pseudo[name]
        kinds = form.split(", ") if form else []
        if len(kinds) != len(operands):
            raise self._error(f"{name} has {len(kinds)} operands ({form}), not {len(operands)}")
        values: list[Operand] = []
        for kind, operand in zip(kinds, operands, strict=True):
            if kind == "number":
                values.append(self._integer(operand))
            elif kind == "target" and name != "la":
                values.append(self._target(operand))
            else:
                values.append(operand)
        emit(*values)

    def _instruction(self, name: str, operands: list[str]) -> None:
        instruction = INSTRUCTIONS[name]
        if "(" in instruction.format.value and operands:
            match = _ADDRESSED.fullmatch(operands[-1])
            if match is None:
                raise self._error(f"{name} must have the form {instruction.format.value}")
            operands = [*operands[:-1], match[1].strip() or "0", match[2]]
        slots = FORMAT_SLOTS[instruction.format]
        values: list[Operand] = []
        for index, operand in enumerate(operands):
            kind = slots[index].kind if index < len(slots) else Kind.REGISTER
            if kind is Kind.NUMBER:
                values.append(self._integer(operand))
            elif kind is Kind.TARGET:
                values.append(self._target(operand))
            else:
                values.append(operand)
        self._asm.emit(name, *values)

    def _target(self, text: str) -> Operand:
        if text in self._constants or _NUMBER.fullmatch(text):
            return self._integer(text)
        return text

    def _integer(self, text: str) -> int:
        if text in self._constants:
            return self._constants[text]
        if not _NUMBER.fullmatch(text):
            raise self._error(f"a number is expected, not {text!r}")
        digits = text.lstrip("+-")
        base = {"0x": 16, "0b": 2}.get(digits[:2].lower(), 10)
        value = int(digits if base == 10 else digits[2:], base)
        return -value if text.startswith("-") else value

    def _error(self, text: str) -> AssemblyError:
        return AssemblyError(f"line {self._number}: {text}")
