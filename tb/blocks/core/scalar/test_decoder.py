"""The decoder against the table: illegal words, and every bit that must be zero."""

import random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import Timer

from abi.core import Pipe
from abi.isa import INSTRUCTIONS, Format, Special
from rtl.core.scalar.decoder import Decoder, Kind
from tb.blocks.harness import parameters, run_block

PIPES, INDEXES = range(6), range(1, 8)


def _is_legal(word: int) -> bool:
    """Whether a word is an instruction, as the text of `abi.isa` says."""
    for one in INSTRUCTIONS.values():
        if word & one.mask != one.match:
            continue
        pipe, index = word >> 28 & 7, word >> 25 & 7
        match one.format:
            case Format.GET:
                return word >> 20 in tuple(Special)
            case Format.WORD:
                return pipe in PIPES and index in INDEXES
            case Format.PAIR:
                return pipe in PIPES and index in INDEXES and index + 1 in INDEXES
            case Format.FLAG:
                return word >> 25 & 7 in tuple(Pipe)
            case Format.ISSUE:
                return word >> 20 & 7 in PIPES
        return True
    return False


async def _kind(dut: Any, word: int) -> int:
    dut.word.value = word
    await Timer(1, unit="ns")
    return int(dut.kind.value)


@cocotb.test()
async def refuses_what_is_no_instruction(dut: Any) -> None:
    legal = 0
    total = parameters()["words"]
    for _ in range(total):
        word = random.getrandbits(32)
        if random.random() < 0.9:
            # An instruction with random operands, often with one bit of its pattern wrong.
            one = random.choice(list(INSTRUCTIONS.values()))
            word = one.match | (word & ~one.mask)
            if random.random() < 0.6:
                word ^= 1 << random.randrange(32)
        expected = _is_legal(word)
        assert (await _kind(dut, word) != Kind.ILLEGAL) == expected, f"{word:#010x}"
        legal += expected
    assert total // 5 < legal < total * 4 // 5


@cocotb.test()
async def every_reserved_bit_is_checked(dut: Any) -> None:
    """Words of our own opcode: each fixed bit flipped, and every operand there is."""
    for one in INSTRUCTIONS.values():
        if not one.name.startswith("npu."):
            continue
        fixed = [bit for bit in range(32) if one.mask >> bit & 1]
        good = one.match
        match one.format:
            case Format.WORD | Format.PAIR:
                good |= 1 << 25
        assert await _kind(dut, good) != Kind.ILLEGAL, one.name
        for bit in fixed:
            word = good ^ 1 << bit
            assert (await _kind(dut, word) != Kind.ILLEGAL) == _is_legal(word), f"{word:#010x}"
            if bit >= 15:
                assert not _is_legal(word) or one.format is Format.NONE
        for high in range(1 << 12):
            word = good & 0xF_FFFF | high << 20
            assert (await _kind(dut, word) != Kind.ILLEGAL) == _is_legal(word), f"{word:#010x}"


@pytest.mark.parametrize(("sim", "words"), [("verilator", 20_000), ("icarus", 2000)])
def test_decoder(sim: str, words: int) -> None:
    run_block(Decoder(), __name__, sim=sim, parameters={"words": words})
