"""Assembler and disassembler: known encodings, round trips, errors."""

import random

import pytest

from abi.core import Pipe
from abi.isa import INSTRUCTIONS, REGISTER_NAMES, Special
from runtime.toolchain.assembler import Assembler, AssemblyError
from runtime.toolchain.disassembler import disassemble, disassemble_word
from runtime.toolchain.operands import FORMAT_SLOTS, Kind, decode, encode
from runtime.toolchain.source import assemble

# Encodings as GNU as and LLVM print them, and the worked examples of the RISC-V manual.
KNOWN = {
    "addi a0, a0, 1": 0x00150513,
    "addi sp, sp, -16": 0xFF010113,
    "nop": 0x00000013,
    "li a0, -1": 0xFFF00513,
    "mv a0, a1": 0x00058513,
    "not a0, a0": 0xFFF54513,
    "neg a0, a0": 0x40A00533,
    "ret": 0x00008067,
    "ecall": 0x00000073,
    "ebreak": 0x00100073,
    "lui a0, 0x12345": 0x12345537,
    "auipc t0, 0": 0x00000297,
    "add a0, a0, a1": 0x00B50533,
    "sub a0, a0, a1": 0x40B50533,
    "and s0, s1, s2": 0x0124F433,
    "sltu a0, zero, a0": 0x00A03533,
    "sltiu a0, a0, 1": 0x00153513,
    "slli a0, a0, 2": 0x00251513,
    "srli a0, a0, 31": 0x01F55513,
    "srai a0, a0, 1": 0x40155513,
    "lw a0, 0(a0)": 0x00052503,
    "lw ra, 12(sp)": 0x00C12083,
    "lbu a5, -1(a0)": 0xFFF54783,
    "lh a0, 2(a1)": 0x00259503,
    "sw ra, 12(sp)": 0x00112623,
    "sw s0, -20(s0)": 0xFE842623,
    "sb a0, (a1)": 0x00A58023,
    "j 0": 0x0000006F,
    "jal ra, 8": 0x008000EF,
    "jalr ra, 0(a5)": 0x000780E7,
    "beq a0, a1, 8": 0x00B50463,
    "bnez a0, 16": 0x00051863,
    "mul a0, a0, a1": 0x02B50533,
    "mulhu a0, a1, a2": 0x02C5B533,
    "div a0, a0, a1": 0x02B54533,
    "remu a0, a0, a1": 0x02B57533,
    # Our own, from the field list of abi.isa.
    "npu.get a0, BLOCK_Y": 2 << 20 | 10 << 7 | 0x0B,
    "npu.word VECTOR, 7, a1": 4 << 28 | 7 << 25 | 11 << 15 | 1 << 12 | 0x0B,
    "npu.pair mte3, 6, a1, a2": 5 << 28 | 6 << 25 | 12 << 20 | 11 << 15 | 2 << 12 | 0x0B,
    "npu.base 15, a0, a1": 11 << 20 | 10 << 15 | 3 << 12 | 15 << 7 | 0x0B,
    "npu.wait SCALAR, 31": 6 << 25 | 31 << 20 | 4 << 12 | 0x0B,
    "npu.set FIXPIPE, 3": 3 << 25 | 3 << 20 | 5 << 12 | 0x0B,
    "npu.issue CUBE, t0": 2 << 20 | 5 << 15 | 6 << 12 | 0x0B,
    "npu.barrier": 0x0000700B,
    "npu.exit": 0x0010700B,
}


def _words(code: bytes) -> list[int]:
    return [int.from_bytes(code[at : at + 4], "little") for at in range(0, len(code), 4)]


@pytest.mark.parametrize("text", KNOWN)
def test_known_encodings(text: str) -> None:
    """Encodings that are known from elsewhere."""
    assert _words(assemble(text)) == [KNOWN[text]]


def test_two_words() -> None:
    """li of a large number, and backward branches with their scattered bits."""
    assert _words(assemble("li a0, 0x12345fff")) == [0x12346537, 0xFFF50513]
    assert _words(assemble("li a0, 0x80000000")) == [0x80000537]
    assert _words(assemble("a: nop\nnop\nbltu a0, a1, a")) == [0x13, 0x13, 0xFEB56CE3]
    assert _words(assemble("nop\na: nop\njal ra, a"))[2] == 0xFFDFF0EF


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_round_trip(name: str) -> None:
    """Random operands of each instruction: word, text, and the same word."""
    seed = 7
    print("seed", seed)
    draw = random.Random(f"{name} {seed}")
    instruction = INSTRUCTIONS[name]
    slots = FORMAT_SLOTS[instruction.format]
    for _ in range(200):
        values = tuple(draw.randrange(slot.low, slot.high + 1, slot.step) for slot in slots)
        word = encode(instruction, values)
        decoded = decode(word)
        assert decoded is not None
        assert decoded.instruction is instruction
        assert decoded.values == values
        text = disassemble_word(word)
        assert not text.startswith(".word")
        assert _words(assemble(text)) == [word]
        asm = Assembler()
        asm.emit(name, *values)
        assert _words(asm.assemble()) == [word]
        if slots and slots[-1].kind is Kind.TARGET:
            assert disassemble_word(word, 0x100000).endswith(hex(values[-1] + 0x100000))


def test_any_word() -> None:
    """Programs of random words come back the same, legal or not."""
    draw = random.Random(11)
    opcodes = sorted({instruction.match & 0x7F for instruction in INSTRUCTIONS.values()})
    legal = 0
    words = []
    for index in range(20_000):
        word = draw.getrandbits(25) << 7 | draw.choice(opcodes)
        if index % 3 == 0:
            instruction = draw.choice(list(INSTRUCTIONS.values()))
            word = instruction.match | (draw.getrandbits(32) & ~instruction.mask)
        legal += decode(word) is not None
        words.append(word)
    code = b"".join(word.to_bytes(4, "little") for word in words)
    assert _words(assemble(disassemble(code))) == words
    assert 5_000 < legal < 19_000


def test_reserved_fields_are_illegal() -> None:
    """A pipe, index or special value that does not exist is no instruction."""
    for text, bits in {
        "npu.issue MTE3, a0": 1 << 21,
        "npu.wait SCALAR, 1": 1 << 25,
        "npu.word MTE2, 1, a0": 1 << 30 | 1 << 29,
        "npu.word MTE2, 7, a0": 1 << 31,
        "npu.pair MTE2, 6, a0, a1": 1 << 25,
        "npu.get a0, ARGUMENT_BYTES": 1 << 20,
        "npu.base 3, a0, a1": 1 << 11,
    }.items():
        (word,) = _words(assemble(text))
        assert decode(word) is not None
        assert decode(word ^ bits) is None
    assert decode(_words(assemble("npu.word MTE2, 1, a0"))[0] ^ 1 << 25) is None
    assert decode(0) is None
    assert decode(0xFFFF_FFFF) is None


def test_registers_pipes_and_specials() -> None:
    """All names of registers, pipes and special values."""
    for number, name in enumerate(REGISTER_NAMES):
        assert assemble(f"mv {name}, x{number}") == assemble(f"mv x{number}, {name}")
    for pipe in Pipe:
        assert _words(assemble(f"npu.set {pipe.name}, 2"))[0] >> 25 == pipe
    for special in Special:
        assert _words(assemble(f"npu.get x1, {special.name.lower()}"))[0] >> 20 == special


def test_program() -> None:
    """Labels forward and backward, comments, constants, data."""
    code = assemble(
        """
        # counts down
        .equ COUNT, 0x10
        start:  li   t0, COUNT      ; sixteen
                la   a1, table
        loop:   addi t0, t0, -1     // once
                beqz t0, done
                j    loop
        done:   lw   a0, 4(a1)
                npu.exit
        table:  .word 1, -2, 0b101, done
        """
    )
    words = _words(code)
    assert words[3:6] == [0xFFF28293, 0x00028463, 0xFF9FF06F]
    assert words[1:3] == _words(assemble("lui a1, 0\naddi a1, a1, 32"))
    assert words[8:] == [1, 0xFFFF_FFFE, 5, 24]
    asm = Assembler()
    asm.li("t0", 16)
    asm.la("a1", "table")
    asm.label("loop")
    asm.emit("addi", "t0", 5, -1)
    asm.beqz("t0", "done")
    asm.j("loop")
    asm.label("done")
    asm.emit("lw", "a0", 4, "a1")
    asm.emit("npu.exit")
    asm.label("table")
    for value in (1, -2, 5, "done"):
        asm.word(value)
    assert asm.assemble() == code
    assert asm.labels == {"loop": 12, "done": 24, "table": 32}
    assert assemble(disassemble(code, {"table": 32})) == code


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nop\nfrob a0", "line 2: there is no instruction 'frob'"),
        ("addi a0, a0, 2048", "line 1: addi: immediate must be between -2048 and 2047, not 2048"),
        ("addi a0, q7, 0", "register must be x0 to x31 or an ABI name, not 'q7'"),
        ("add a0, a0", "line 1: add has 3 operands"),
        ("lw a0, a1", "lw must have the form"),
        ("nop\nj away", "line 2: label away is not defined"),
        ("a: nop\na: nop", "line 2: label a is defined twice"),
        ("npu.issue SCALAR, a0", "pipe must be between 0 and 5, not 6"),
        ("npu.issue MTE9, a0", "pipe must be one of MTE2, MTE1"),
        ("npu.set MTE2, 32", "flag must be between 0 and 31"),
        ("npu.word MTE2, 0, a0", "index must be between 1 and 7"),
        ("npu.get a0, TIME", "special must be one of BLOCK"),
        ("li a0, 0x100000000", "li must have a number of 32 bits"),
        ("li a0, four", "a number is expected, not 'four'"),
        ("beq a0, a1, 3", "target must be between -4096 and 4094 and a multiple of 2"),
        ("slli a0, a0, 32", "shift must be between 0 and 31"),
        ("addi a0,, 1", "an operand is missing"),
        ("2x: nop", "there is no instruction"),
    ],
)
def test_errors(text: str, message: str) -> None:
    """Errors name the line and what is wrong."""
    with pytest.raises(AssemblyError) as caught:
        assemble(text)
    assert message in str(caught.value)


def test_branch_range() -> None:
    """The farthest targets, and one further."""
    for count, fits in ((1022, True), (1023, False)):
        text = "beqz a0, end\n" + "nop\n" * count + "end: nop"
        if fits:
            decoded = decode(_words(assemble(text))[0])
            assert decoded is not None
            assert decoded["target"] == 4092
            continue
        with pytest.raises(AssemblyError, match="line 1: beq at 0x0: end is 4096 bytes away"):
            assemble(text)
    with pytest.raises(AssemblyError, match="must be between -4096 and 4094"):
        assemble("start: nop\n" + "nop\n" * 1024 + "beqz a0, start")
