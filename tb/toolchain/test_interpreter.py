"""The interpreter: against unicorn on random programs, then events, memory map and traps."""

import random
import time
from typing import Any

import pytest
import unicorn
from unicorn import riscv_const

from abi.core import COMMANDS, CommandOpcode, Local, Pipe
from abi.isa import ARGUMENTS_BASE, INSTRUCTIONS, RAM_BASE, RAM_BYTES, Format
from abi.status import Status
from runtime.toolchain.assembler import Assembler, Operand
from runtime.toolchain.compute import BINARY
from runtime.toolchain.events import (
    Barrier,
    Event,
    Exit,
    FlagSet,
    FlagWait,
    Issue,
    MemoryFaultError,
    Paused,
    Trap,
)
from runtime.toolchain.interpreter import ScalarInterpreter
from runtime.toolchain.scalar_memory import Placed
from runtime.toolchain.source import assemble

EDGES = (0, 1, 2, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 0xFFFF_FFFE, 31, 32)
RAM_POINTER, COUNTER, LINK = "x2", "x30", "x31"
COMPUTING = [
    name
    for name, instruction in INSTRUCTIONS.items()
    if instruction.format in (Format.REGISTER, Format.IMMEDIATE, Format.SHIFT, Format.UPPER)
]
LOADS = ["lb", "lh", "lw", "lbu", "lhu"]
STORES = ["sb", "sh", "sw"]
BRANCHES = ["beq", "bne", "blt", "bge", "bltu", "bgeu"]


def _interpreter(code: bytes, **options: Any) -> ScalarInterpreter:
    """One with a global memory that nobody may touch, unless the options give one."""

    def refuse_read(address: int, _nbytes: int) -> bytes:
        raise MemoryFaultError(Status.ADDRESS_FAULT, address)

    def refuse_write(address: int, _raw: bytes) -> None:
        raise MemoryFaultError(Status.ADDRESS_FAULT, address)

    interpreter = ScalarInterpreter(code, **{"read": refuse_read, "write": refuse_write, **options})
    interpreter.start()
    return interpreter


def _random_program(draw: random.Random, length: int, rounds: int) -> bytes:
    """Computing, RAM, forward branches and jumps, all in a loop of some rounds."""
    asm = Assembler()

    def register() -> int:
        return draw.choice([*range(2), *range(3, 30)])

    asm.li(COUNTER, rounds)
    asm.label("again")
    for at in range(length):
        asm.label(f"i{at}")
        ahead = f"i{min(length, at + draw.randrange(1, 6))}"
        kind = draw.random()
        if kind < 0.7:
            name = draw.choice(COMPUTING)
            form = INSTRUCTIONS[name].format
            operands: list[Operand] = [register()]
            if form is Format.UPPER:
                operands.append(draw.getrandbits(20))
            else:
                operands.append(draw.randrange(32))
                operands.append(
                    draw.randrange(32)
                    if form is not Format.IMMEDIATE
                    else draw.randrange(-2048, 2048)
                )
            asm.emit(name, *operands)
        elif kind < 0.85:
            name = draw.choice(LOADS + STORES)
            size = {"b": 1, "h": 2, "w": 4}[name[1]]
            offset = draw.randrange(-2048, 2048, size)
            asm.emit(name, register() if name in LOADS else draw.randrange(32), offset, RAM_POINTER)
        elif kind < 0.95:
            asm.emit(draw.choice(BRANCHES), draw.randrange(32), draw.randrange(32), ahead)
        elif kind < 0.98:
            asm.emit("jal", register(), ahead)
        else:
            asm.la(LINK, ahead)
            asm.emit("jalr", register(), 0, LINK)
    asm.label(f"i{length}")
    asm.emit("addi", COUNTER, COUNTER, -1)
    asm.beqz(COUNTER, "end")
    asm.j("again")
    asm.label("end")
    asm.emit("npu.exit")
    return asm.assemble()


def _by_unicorn(code: bytes, registers: list[int], ram: bytes) -> tuple[list[int], bytes]:
    """Registers and RAM when the program has come to its last instruction."""
    machine = unicorn.Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV32)
    machine.mem_map(0, 1 << 16)
    machine.mem_map(RAM_BASE, RAM_BYTES)
    machine.mem_write(0, code)
    machine.mem_write(RAM_BASE, ram)
    names = [getattr(riscv_const, f"UC_RISCV_REG_X{number}") for number in range(32)]
    for name, value in zip(names, registers, strict=True):
        machine.reg_write(name, value)
    machine.emu_start(0, len(code) - 4)
    values = [machine.reg_read(name) & 0xFFFF_FFFF for name in names]
    return values, bytes(machine.mem_read(RAM_BASE, RAM_BYTES))


@pytest.mark.parametrize("seed", range(4))
def test_against_unicorn(seed: int) -> None:
    """At least 30 000 instructions of random programs leave the same registers and RAM."""
    print("seed", seed)
    draw = random.Random(f"unicorn {seed}")
    retired = 0
    while retired < 30_000:
        code = _random_program(draw, 400, 4)
        registers = [
            draw.choice(EDGES) if draw.random() < 0.3 else draw.getrandbits(32) for _ in range(32)
        ]
        registers[0], registers[2] = 0, RAM_BASE + RAM_BYTES // 2
        ram = draw.randbytes(RAM_BYTES)
        interpreter = _interpreter(code, ram=bytearray(ram))
        interpreter.registers = registers
        assert interpreter.run() == Exit(len(code) - 4)
        expected, expected_ram = _by_unicorn(code, registers, ram)
        assert interpreter.registers == expected
        assert bytes(interpreter.ram) == expected_ram
        retired += interpreter.retired


@pytest.mark.parametrize("name", BINARY)
def test_edges_against_unicorn(name: str) -> None:
    """All pairs of edge values for each instruction of two registers."""
    asm = Assembler()
    for first in EDGES:
        for second in EDGES:
            asm.li("a0", first)
            asm.li("a1", second)
            asm.emit(name, "a2", "a0", "a1")
            asm.emit("sw", "a2", 0, "sp")
            asm.emit("addi", "sp", "sp", 4)
    asm.emit("npu.exit")
    code = asm.assemble()
    interpreter = _interpreter(code)
    registers = [0, 0, RAM_BASE, *[0] * 29]
    interpreter.registers = registers
    interpreter.run()
    expected, ram = _by_unicorn(code, registers, bytes(RAM_BYTES))
    assert bytes(interpreter.ram) == ram
    assert interpreter.registers == expected


def test_start_values() -> None:
    """Registers at block start, specials, arguments; a second block starts afresh."""
    code = assemble(
        """
        npu.get a1, BLOCK
        npu.get a2, BLOCK_X
        npu.get a3, BLOCK_Y
        npu.get a4, BLOCK_Z
        npu.get a5, GRID_X
        npu.get a6, GRID_Y
        npu.get a7, GRID_Z
        npu.get s2, CORE
        npu.get s3, CORES
        npu.get s4, CYCLES
        npu.get s5, ARGUMENT_BYTES
        lw  s6, 4(a0)
        lhu s7, 2(a0)
        lw  s8, 0(zero)
        npu.exit
        """
    )
    ticks = iter((77, 0x1_0000_0005))
    interpreter = _interpreter(code, core=1, cores=3, cycles=lambda: next(ticks))
    arguments = bytes(range(8))
    for cycles in (77, 5):
        interpreter.start(arguments=arguments, grid=(5, 7, 9), block=(4, 3, 2))
        x = interpreter.registers
        assert x[2] == RAM_BASE + RAM_BYTES
        assert x[10] == ARGUMENTS_BASE
        assert sum(x) == x[2] + x[10]
        assert interpreter.run() == Exit(len(code) - 4)
        x = interpreter.registers
        assert x[11:18] == [4 + 5 * (3 + 7 * 2), 4, 3, 2, 5, 7, 9]
        assert x[18:22] == [1, 3, cycles, 8]
        assert x[22] == 0x07060504
        assert x[23] == 0x0302
        assert x[24] == int.from_bytes(code[:4], "little")


LOAD = COMMANDS[CommandOpcode.LOAD].pack(
    opcode=CommandOpcode.LOAD, base=3, target=Local.UB, row_bytes=64, rows=2, planes=1, offset=-64
)


def test_events() -> None:
    """Commands with their flags, masks cleared by an issue, words that stay."""
    asm = Assembler()
    asm.li("t0", 0x5000)
    asm.li("t1", 0x12)
    asm.emit("npu.base", 3, "t0", "t1")
    asm.emit("npu.set", Pipe.CUBE, 9)
    asm.command(
        CommandOpcode.LOAD,
        wait=(1, 31),
        give=(0,),
        base=3,
        target=Local.UB,
        row_bytes=64,
        rows=2,
        planes=1,
        offset=-64,
    )
    again = asm.address
    asm.emit("npu.issue", Pipe.MTE2, "t5")
    asm.emit("npu.wait", Pipe.SCALAR, 4)
    asm.emit("npu.set", Pipe.SCALAR, 5)
    asm.emit("npu.barrier")
    asm.command(CommandOpcode.NOP, pipe=Pipe.CUBE)
    asm.emit("npu.exit")
    interpreter = _interpreter(asm.assemble())
    raw = LOAD.to_bytes(32, "little")
    expected: list[Event] = [
        Issue(Pipe.MTE2, raw, 0x12_0000_5000, 1 << 31 | 2, 1, again - 4),
        Issue(Pipe.MTE2, raw, 0x12_0000_5000, 0, 0, again),
        FlagWait(4, again + 4),
        FlagSet(5, again + 8),
        Barrier(again + 12),
    ]
    assert [interpreter.run() for _ in expected] == expected
    issue = interpreter.run()
    assert isinstance(issue, Issue)
    assert (issue.pipe, issue.wait, issue.set, issue.command[0]) == (Pipe.CUBE, 0, 1 << 9, 1)
    end = interpreter.run()
    assert isinstance(end, Exit)
    assert interpreter.run() is end


def test_window() -> None:
    """Loads and stores of global memory behind base register 15."""
    memory: dict[int, int] = {0x1_0000_0104 + i: 0x80 + i for i in range(4)}

    def read(address: int, nbytes: int) -> bytes:
        assert (address % 64, nbytes) == (0, 64)
        return bytes(memory.get(address + i, 0) for i in range(nbytes))

    def write(address: int, raw: bytes) -> None:
        memory.update({address + i: byte for i, byte in enumerate(raw)})

    code = assemble(
        """
        li  t0, 0x100
        li  t1, 1
        npu.base 15, t0, t1
        li  t2, 0x80000000
        lw  a0, 4(t2)
        lb  a1, 5(t2)
        lhu a2, 6(t2)
        sw  a0, 0x7fc(t2)
        sh  a2, 2(t2)
        sb  a1, 1(t2)
        fence
        npu.exit
        """
    )
    interpreter = _interpreter(code, read=read, write=write)
    assert isinstance(interpreter.run(), Exit)
    assert interpreter.registers[10:13] == [0x83828180, 0xFFFFFF81, 0x8382]
    assert {a - 0x1_0000_0100: b for a, b in memory.items()} == {
        4: 0x80, 5: 0x81, 6: 0x82, 7: 0x83,
        0x7FC: 0x80, 0x7FD: 0x81, 0x7FE: 0x82, 0x7FF: 0x83,
        2: 0x82, 3: 0x83, 1: 0x81,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "status", "pc", "address"),
    [
        (".word 0", Status.ILLEGAL_INSTRUCTION, 0, 0),
        ("nop\n.word 0xc0001073", Status.ILLEGAL_INSTRUCTION, 4, 0),
        ("ecall", Status.BREAKPOINT, 0, 0),
        ("nop\nebreak", Status.BREAKPOINT, 4, 0),
        ("nop", Status.ADDRESS_FAULT, 4, 4),
        ("j 0x1000", Status.ADDRESS_FAULT, 0x1000, 0x1000),
        ("beqz zero, 6", Status.MISALIGNED, 0, 6),
        ("nop\nli t0, 0x10000002\njr: jalr ra, 1(t0)", Status.MISALIGNED, 12, 0x10000002),
        ("li t0, 0x10000000\njalr ra, 1(t0)", Status.ADDRESS_FAULT, 0x10000000, 0x10000000),
        ("j -4", Status.ADDRESS_FAULT, 0xFFFF_FFFC, 0xFFFF_FFFC),
        ("lw a1, 8(a0)", Status.ADDRESS_FAULT, 0, ARGUMENTS_BASE + 8),
        ("lw a1, 6(a0)", Status.MISALIGNED, 0, ARGUMENTS_BASE + 6),
        ("sb a1, 0(a0)", Status.ADDRESS_FAULT, 0, ARGUMENTS_BASE),
        ("sb a1, 0(zero)", Status.ADDRESS_FAULT, 0, 0),
        ("lb a1, 4(zero)", Status.ADDRESS_FAULT, 0, 4),
        ("lw a1, 0(sp)", Status.ADDRESS_FAULT, 0, RAM_BASE + RAM_BYTES),
        ("sh a1, -1(sp)", Status.MISALIGNED, 0, RAM_BASE + RAM_BYTES - 1),
        ("lui t0, 0x80000\nlw a1, 72(t0)", Status.ADDRESS_FAULT, 4, 64),
        ("lui t0, 0x80000\nsb a1, 73(t0)", Status.ADDRESS_FAULT, 4, 64),
        # Of two faults, the one that the hardware finds first.
        ("lw a1, 2(sp)", Status.MISALIGNED, 0, RAM_BASE + RAM_BYTES + 2),
        ("lui t0, 0x80000\nlw a1, 6(t0)", Status.MISALIGNED, 4, 0x8000_0006),
        # npu.base beyond 48 bits, a window that is misaligned or ends beyond them, or both.
        ("lui t0, 16\nnpu.base 3, a0, t0", Status.ADDRESS_FAULT, 4, 0x1_0000_2000_0000),
        (
            "li t0, 3\nnpu.base 15, t0, zero\nlui t1, 0x80000\nlh a1, 4(t1)",
            Status.MISALIGNED,
            12,
            7,
        ),
        (
            "li t0, 0xffffffc0\nli t1, 0xffff\nnpu.base 15, t0, t1\nlui t2, 0x80000\n"
            "sb a1, 127(t2)",
            Status.ADDRESS_FAULT,
            20,
            0x1_0000_0000_0000,
        ),
        (
            "li t0, 0xffffffc1\nli t1, 0xffff\nnpu.base 15, t0, t1\nlui t2, 0x80000\nlw a1, 64(t2)",
            Status.MISALIGNED,
            20,
            0x1_0000_0000_0001,
        ),
    ],
)
def test_traps(text: str, status: Status, pc: int, address: int) -> None:
    """Each fault, with its instruction and address."""
    interpreter = _interpreter(assemble(text))
    interpreter.start(arguments=bytes(8))
    trap = interpreter.run()
    assert isinstance(trap, Trap)
    assert (trap.status, trap.pc, trap.address, trap.pipe) == (status, pc, address, Pipe.SCALAR)


@pytest.mark.parametrize(
    ("text", "retired", "link"),
    [
        ("nop\njal a1, 4098", 1, 0),
        ("nop\njalr a1, 2(zero)", 1, 0),
        ("nop\nbeq zero, zero, 4098", 1, 0),
        ("nop\njal a1, 4096", 2, 8),
        ("nop\njalr a1, 2044(zero)", 2, 8),
        ("nop\nbeq zero, zero, 4096", 2, 0),
    ],
)
def test_jumps_to_nowhere(text: str, retired: int, link: int) -> None:
    """A misaligned jump does not happen and leaves its link; one to nowhere ends, then traps."""
    interpreter = _interpreter(assemble(text))
    trap = interpreter.run()
    assert isinstance(trap, Trap)
    assert (interpreter.retired, interpreter.registers[11]) == (retired, link)
    assert interpreter.pc == trap.pc
    interpreter.start()
    if retired == 2:
        assert interpreter.run(2) == Paused(trap.pc)
        assert interpreter.run() == Trap(Status.ADDRESS_FAULT, trap.pc, trap.pc)


def test_running_over_the_end_after_a_jump_to_nowhere() -> None:
    """What one block jumped to is not where the next one runs out of code."""
    interpreter = _interpreter(assemble("npu.get a1, BLOCK_X\nbeqz a1, 2048\nnop"))
    assert interpreter.run() == Trap(Status.ADDRESS_FAULT, 2048, 2048)
    interpreter.start(block=(1, 0, 0), grid=(2, 1, 1))
    assert interpreter.run() == Trap(Status.ADDRESS_FAULT, 12, 12)


def test_held_lines() -> None:
    """Code, arguments and window hold a line each, until fence or barrier; a store through the
    window forgets the window's only."""
    text = """
        npu.base 15, zero, s0
        lui  t0, 0x80000
        li   t1, 7
        lw   a1, 0(a0)
        lw   a2, 0(t0)
        sw   t1, 0(t0)
        lw   a3, 0(a0)
        lw   a4, 0(t0)
        {between}
        lw   a5, 0(a0)
        npu.exit
    """
    for between, last in (("nop", 5), ("fence", 7), ("npu.barrier", 7)):
        memory = bytearray(128)
        memory[0] = 5

        def write(address: int, raw: bytes, memory: bytearray = memory) -> None:
            memory[address : address + len(raw)] = raw

        interpreter = _interpreter(
            assemble(text.format(between=between)),
            read=lambda address, nbytes, memory=memory: bytes(memory[address : address + nbytes]),
            write=write,
        )
        interpreter.start(arguments=Placed(0, 4))
        while not isinstance(interpreter.run(), Exit):
            pass
        assert interpreter.registers[11:16] == [5, 5, 5, 7, last]


def test_where_code_and_arguments_lie() -> None:
    """64-aligned, or the block traps at its entry; lines that cannot be read trap when used."""
    code = assemble("lw a1, 64(a0)\n" + "nop\n" * 15)
    interpreter = _interpreter(code)
    whole, aligned = Placed(0x1000, 64), Placed(0x2000, 128)
    for placed, arguments, entry, address in (
        (Placed(0x1020, 64), aligned, 4, 0x1020),
        (whole, Placed(0x2008, 0), 4, 0x2008),
        (Placed(0x1020, 64), Placed(0x2008, 0), 0, 0x1020),
        (Placed(0x1020, 64), Placed(0x2008, 0), 6, 6),
    ):
        interpreter.start(entry=entry, code=placed, arguments=arguments)
        assert interpreter.run() == Trap(Status.MISALIGNED, entry, address)
    interpreter.start(code=whole, arguments=aligned)
    assert interpreter.run() == Trap(Status.ADDRESS_FAULT, 0, 0x2040)
    for nbytes, address in ((64, 64), (67, 64), (68, 0x1040)):
        interpreter.start(entry=4, code=Placed(0x1000, nbytes), arguments=aligned)
        assert interpreter.run() == Trap(Status.ADDRESS_FAULT, 64, address)
    top = Placed((1 << 48) - 64, 128)
    interpreter.start(entry=4, code=top, arguments=aligned)
    assert interpreter.run() == Trap(Status.ADDRESS_FAULT, 64, 1 << 48, reason="beyond 48 bits")


def test_not_taken_branch_to_nowhere() -> None:
    """Only a taken branch looks at its target."""
    assert _interpreter(assemble("bnez zero, 6\nbnez zero, 400\nnpu.exit")).run() == Exit(8)


def test_entry() -> None:
    """Execution starts at the entry; one that is no instruction traps."""
    interpreter = _interpreter(assemble("li a0, 1\nli a1, 2\nnpu.exit"))
    interpreter.start(entry=4)
    assert interpreter.run() == Exit(8)
    assert interpreter.registers[10:12] == [ARGUMENTS_BASE, 2]
    interpreter.start(entry=2)
    assert interpreter.run() == Trap(Status.MISALIGNED, 2, 2)
    interpreter.start(entry=12)
    assert interpreter.run() == Trap(Status.ADDRESS_FAULT, 12, 12)


def test_bad_command() -> None:
    """A command that breaks a rule traps at its issue, on its pipe."""
    asm = Assembler()
    asm.command(CommandOpcode.NOP, pipe=Pipe.VECTOR)
    asm.command(CommandOpcode.VECTOR, columns=16)
    interpreter = _interpreter(asm.assemble())
    assert isinstance(interpreter.run(), Issue)
    trap = interpreter.run()
    assert isinstance(trap, Trap)
    assert (trap.status, trap.pipe, trap.pc) == (Status.BAD_COMMAND, Pipe.VECTOR, asm.address - 4)
    assert trap.reason == "rows must be at least 1, not 0"


def test_limit_and_speed() -> None:
    """A limit pauses an endless loop; it runs fast enough for whole kernels."""
    interpreter = _interpreter(assemble("loop: addi a0, a0, 1\nxor a1, a1, a0\nj loop"))
    interpreter.start()
    assert interpreter.run(0) == Paused(0)
    assert interpreter.run(4) == Paused(4)
    assert interpreter.registers[10] == ARGUMENTS_BASE + 2
    start = time.process_time()
    assert interpreter.run(300_000) == Paused(4)
    rate = 300_000 / (time.process_time() - start)
    print(f"{rate:.0f} instructions a second")
    assert interpreter.retired == 300_004
    assert rate > 200_000
