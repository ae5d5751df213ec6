"""What the computing instructions do, as closures for the interpreter.

A maker takes the list of registers, where the result goes, where the operands are, and the index
of the next instruction, which the closure returns. Registers hold unsigned words. Immediates are
further entries of the same list, so that `addi` is `add`.
"""

from collections.abc import Callable

__all__ = ["BINARY", "BRANCHES", "IMMEDIATE", "Closure", "signed"]

Closure = Callable[[], int]
Maker = Callable[[list[int], int, int, int, int], Closure]
BranchMaker = Callable[[list[int], int, int, int, int], Closure]

WORD_MASK = 0xFFFF_FFFF
SIGN = 0x8000_0000


def signed(word: int) -> int:
    """A word as a two's complement number."""
    return (word ^ SIGN) - SIGN


def _add(x: list[int], d: int, a: int, b: int, following: int) -> Closure:
    def run() -> int:
        x[d] = (x[a] + x[b]) & WORD_MASK
        return following

    return run


def _sub(x: list[int], d: int, a: int, b: int, following: int) -> Closure:
    def run() -> int:
        x[d] = (x[a] - x[b]) & WORD_MASK
        return following

    return run


def _sll(x: list[int], d: int, a: int, b: int, following: int) -> Closure:
    def run() -> int:
        x[d] = x[a] << (x[b] & 31) & WORD_MASK
        return following

    return run


def _srl(x: list[int], d: int, a: int, b: int, following: int) -> Closure:
    def run() -> int:
        x[d] = x[a] >> (x[b] & 31)
        return following

    return run


def _sra(x: list[int], d: int, a: int, b: int, following: int) -> Closure:
    def run() -> int:
        x[d] = signed(x[a]) >> (x[b] & 31) & WORD_MASK
        return following

    return run


def _slt(x: list[int], d: int, a: int, b: int, following: int) -> Closure:
    def run() -> int:
        x[d] = 1 if x[a] ^ SIGN < x[b] ^ SIGN else 0
        return following

    return run


def _sltu(x: list[int], d: int, a: int, b: int, following: int) -> Closure:
    def run() -> int:
        x[d] = 1 if x[a] < x[b] else 0
        return following

    return run


def _xor(x: list[int], d: int, a: int, b: int, following: int) -> Closure:
    def run() -> int:
        x[d] = x[a] ^ x[b]
        return following

    return run


def _or(x: list[int], d: int, a: int, b: int, following: int) -> Closure:
    def run() -> int:
        x[d] = x[a] | x[b]
        return following

    return run


def _and(x: list[int], d: int, a: int, b: int, following: int) -> Closure:
    def run() -> int:
        x[d] = x[a] & x[b]
        return following

    return run


def _mul(x: list[int], d: int, a: int, b: int, following: int) -> Closure:
    def run() -> int:
        x[d] = x[a] * x[b] & WORD_MASK
        return following

    return run


def _mulh(x: list[int], d: int, a: int, b: int, following: int) -> Closure:
    def run() -> int:
        x[d] = signed(x[a]) * signed(x[b]) >> 32 & WORD_MASK
        return following

    return run


def _mulhsu(x: list[int], d: int, a: int, b: int, following: int) -> Closure:
    def run() -> int:
        x[d] = signed(x[a]) * x[b] >> 32 & WORD_MASK
        return following

    return run


def _mulhu(x: list[int], d: int, a: int, b: int, following: int) -> Closure:
    def run() -> int:
        x[d] = x[a] * x[b] >> 32
        return following

    return run


def _quotient(a: int, b: int) -> int:
    """Signed, towards zero; b is not 0."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _div(x: list[int], d: int, a: int, b: int, following: int) -> Closure:
    def run() -> int:
        top, bottom = signed(x[a]), signed(x[b])
        x[d] = (_quotient(top, bottom) if bottom else -1) & WORD_MASK
        return following

    return run


def _divu(x: list[int], d: int, a: int, b: int, following: int) -> Closure:
    def run() -> int:
        x[d] = x[a] // x[b] if x[b] else WORD_MASK
        return following

    return run


def _rem(x: list[int], d: int, a: int, b: int, following: int) -> Closure:
    def run() -> int:
        top, bottom = signed(x[a]), signed(x[b])
        x[d] = (top - _quotient(top, bottom) * bottom if bottom else top) & WORD_MASK
        return following

    return run


def _remu(x: list[int], d: int, a: int, b: int, following: int) -> Closure:
    def run() -> int:
        x[d] = x[a] % x[b] if x[b] else x[a]
        return following

    return run


BINARY: dict[str, Maker] = {
    "add": _add,
    "sub": _sub,
    "sll": _sll,
    "slt": _slt,
    "sltu": _sltu,
    "xor": _xor,
    "srl": _srl,
    "sra": _sra,
    "or": _or,
    "and": _and,
    "mul": _mul,
    "mulh": _mulh,
    "mulhsu": _mulhsu,
    "mulhu": _mulhu,
    "div": _div,
    "divu": _divu,
    "rem": _rem,
    "remu": _remu,
}
"""Instructions of two registers."""

IMMEDIATE: dict[str, Maker] = {
    "addi": _add,
    "slti": _slt,
    "sltiu": _sltu,
    "xori": _xor,
    "ori": _or,
    "andi": _and,
    "slli": _sll,
    "srli": _srl,
    "srai": _sra,
}
"""Instructions of a register and a constant."""


def _beq(x: list[int], a: int, b: int, taken: int, following: int) -> Closure:
    return lambda: taken if x[a] == x[b] else following


def _bne(x: list[int], a: int, b: int, taken: int, following: int) -> Closure:
    return lambda: taken if x[a] != x[b] else following


def _blt(x: list[int], a: int, b: int, taken: int, following: int) -> Closure:
    return lambda: taken if x[a] ^ SIGN < x[b] ^ SIGN else following


def _bge(x: list[int], a: int, b: int, taken: int, following: int) -> Closure:
    return lambda: taken if x[a] ^ SIGN >= x[b] ^ SIGN else following


def _bltu(x: list[int], a: int, b: int, taken: int, following: int) -> Closure:
    return lambda: taken if x[a] < x[b] else following


def _bgeu(x: list[int], a: int, b: int, taken: int, following: int) -> Closure:
    return lambda: taken if x[a] >= x[b] else following


BRANCHES: dict[str, BranchMaker] = {
    "beq": _beq,
    "bne": _bne,
    "blt": _blt,
    "bge": _bge,
    "bltu": _bltu,
    "bgeu": _bgeu,
}
"""Branches: operands, index of the target, index of the next instruction."""
