"""Prints programs of the scalar unit as text that the assembler takes."""

import re
from collections.abc import Mapping

from abi.isa import REGISTER_NAMES, Format
from runtime.toolchain.operands import FORMAT_SLOTS, NAMED, Kind, decode

__all__ = ["disassemble", "disassemble_word"]

WORD_BYTES = 4


def disassemble_word(word: int, pc: int = 0, labels: Mapping[int, str] | None = None) -> str:
    """One instruction; what is none, or has bits that the assembler never sets, is a `.word`.

    Targets are printed as the label at their address, or as the address itself.
    """
    decoded = decode(word)
    if decoded is None or (decoded.instruction.name == "fence" and word != 0x0F):
        return f".word {word:#010x}"
    instruction = decoded.instruction
    texts: dict[str, str] = {}
    for slot, value in zip(FORMAT_SLOTS[instruction.format], decoded.values, strict=True):
        if slot.kind is Kind.REGISTER:
            texts[slot.name] = REGISTER_NAMES[value]
        elif slot.kind is Kind.TARGET:
            address = pc + value
            texts[slot.name] = (labels or {}).get(address, hex(address))
        elif slot.kind is Kind.NUMBER:
            texts[slot.name] = hex(value) if instruction.format is Format.UPPER else str(value)
        else:
            texts[slot.name] = NAMED[slot.kind](value).name
    operands = re.sub(r"[a-z]\w*", lambda name: texts[name[0]], instruction.format.value)
    return f"{instruction.name} {operands}".strip()


def disassemble(code: bytes, symbols: Mapping[str, int] | None = None) -> str:
    """A whole program, loaded at 0: a line for each word, with its address and bits.

    Addresses that branches or jumps go to get labels; `symbols` names others.

    Raises:
        ValueError: `code` has no whole number of words.
    """
    if len(code) % WORD_BYTES:
        raise ValueError(f"code must have whole words of 4 bytes, not {len(code)!r} bytes")
    words = [
        int.from_bytes(code[at : at + WORD_BYTES], "little")
        for at in range(0, len(code), WORD_BYTES)
    ]
    labels = {}
    for index, word in enumerate(words):
        decoded = decode(word)
        if decoded is not None and "target" in decoded.named:
            address = WORD_BYTES * index + decoded["target"]
            if 0 <= address < len(code) and address % WORD_BYTES == 0:
                labels[address] = f"L_{address:x}"
    labels.update({address: name for name, address in (symbols or {}).items()})
    lines = []
    for index, word in enumerate(words):
        address = WORD_BYTES * index
        if address in labels:
            lines.append(f"{labels[address]}:")
        text = disassemble_word(word, address, labels)
        lines.append(f"    {text:<36}# {address:6x}: {word:08x}")
    return "\n".join(lines) + "\n" if lines else ""
