"""How a block of the scalar unit fails, and how it is stopped."""

import random
from collections.abc import Callable
from typing import Any

import cocotb
import pytest

from abi.address import HOST_BASE
from abi.core import CommandOpcode, Pipe
from abi.isa import ARGUMENTS_BASE, RAM_BASE, RAM_BYTES, WINDOW_BASE, WINDOW_REGISTER
from abi.status import Status
from rtl.memory.port import LineError
from rtl.memory.sram import Sram
from runtime.toolchain.assembler import Assembler
from tb.blocks.core.scalar.bench import ARGUMENTS, CODE, DATA, ScalarBench, fault, unit_under_test
from tb.blocks.core.scalar.random_kernels import random_command, random_kernel
from tb.blocks.harness import parameters, run_block

ARGUMENT_BYTES = 100


def _program(
    write: Callable[[Assembler], None], window: int = DATA, slide: int = 0
) -> tuple[bytes, int]:
    """A program that leads to what `write` appends, and the pc of the last instruction there."""
    asm = Assembler()
    asm.li(28, window & 0xFFFF_FFFF)
    asm.li(29, window >> 32)
    asm.emit("npu.base", WINDOW_REGISTER, 28, 29)
    for _ in range(slide):
        asm.nop()
    write(asm)
    pc = asm.address - 4
    asm.emit("npu.exit")
    return asm.assemble(), pc


async def _fails(
    bench: ScalarBench,
    write: Callable[[Assembler], None],
    status: Status,
    address: int = 0,
    *,
    pipe: int = Pipe.SCALAR,
    window: int = DATA,
) -> None:
    code, pc = _program(write, window, random.randrange(20))
    outcome = await bench.run(code, arguments=bytes(ARGUMENT_BYTES))
    assert outcome.fault == fault(status, pc, address, pipe)


def _word(word: int) -> Callable[[Assembler], None]:
    return lambda asm: asm.word(word)


def _plain(name: str) -> Callable[[Assembler], None]:
    return lambda asm: asm.emit(name)


@cocotb.test()
async def illegal_instructions_and_breakpoints(dut: Any) -> None:
    bench = ScalarBench(dut)
    await bench.start(stall=0.2)
    for word in (0, 0xFFFF_FFFF, 0x0000_008B | 1 << 31, 0x0030_7013 | 0x0B, 0x3020_0073):
        await _fails(bench, _word(word), Status.ILLEGAL_INSTRUCTION)
    for name in ("ecall", "ebreak"):
        await _fails(bench, _plain(name), Status.BREAKPOINT)


def _access(name: str, address: int) -> Callable[[Assembler], None]:
    def write(asm: Assembler) -> None:
        offset = random.randint(-2048, 2047)
        asm.li(5, (address - offset) & 0xFFFF_FFFF)
        asm.emit(name, 6, offset, 5)

    return write


@cocotb.test()
async def loads_and_stores_outside_every_region(dut: Any) -> None:
    bench = ScalarBench(dut)
    await bench.start(stall=0.2)
    end = ARGUMENTS_BASE + ARGUMENT_BYTES
    outside = [RAM_BASE - 4, RAM_BASE + RAM_BYTES, ARGUMENTS_BASE - 4, end, 0x3000_0000]
    outside += [0x4000_0000, 0x7FFF_FFFC, 0x1000_4000, 0x1800_0000]
    for address in outside:
        for name in random.sample(("lb", "lbu", "lh", "lhu", "lw", "sb", "sh", "sw"), 3):
            await _fails(bench, _access(name, address), Status.ADDRESS_FAULT, address)
    for address in (0, ARGUMENTS_BASE, end - 1):
        await _fails(bench, _access("sb", address), Status.ADDRESS_FAULT, address)
    # The last ones inside; beyond the code, by one.
    for name, address in (("lw", end - 4), ("lb", end - 1), ("sw", RAM_BASE + RAM_BYTES - 4)):
        code, _ = _program(_access(name, address))
        assert (await bench.run(code, arguments=bytes(ARGUMENT_BYTES))).fault is None
    for size, name in ((1, "lb"), (2, "lh"), (4, "lw")):
        code, pc = _program(_access(name, 64))
        for code_bytes, fails in ((64 + size - 1, True), (64 + size, False)):
            outcome = await bench.run(code, inputs={"code_bytes": code_bytes})
            expected = fault(Status.ADDRESS_FAULT, pc, 64) if fails else None
            assert outcome.fault == expected


@cocotb.test()
async def misaligned_loads_and_stores(dut: Any) -> None:
    bench = ScalarBench(dut)
    await bench.start(stall=0.2)
    for start in (0, RAM_BASE, ARGUMENTS_BASE, WINDOW_BASE, 0x5000_0000):
        for name, offset in (("lh", 1), ("lhu", 3), ("sh", 1), ("lw", 1), ("sw", 2), ("lw", 3)):
            address = start + 16 + offset
            await _fails(bench, _access(name, address), Status.MISALIGNED, address)
    # The window's base is odd: bytes are fine, a word is not.
    for name, offset in (("lw", 2), ("sw", 1), ("lh", 1), ("sh", 3)):
        base = DATA + 0x100 + offset
        write = _access(name, WINDOW_BASE + 8)
        await _fails(bench, write, Status.MISALIGNED, base + 8, window=base)
    code, _ = _program(_access("sb", WINDOW_BASE + 8), DATA + 0x103)
    bench.view[0x10B] = 0x55
    assert (await bench.run(code)).fault is None
    assert bench.view[0x10B] == 0


@cocotb.test()
async def lines_that_fail(dut: Any) -> None:
    bench = ScalarBench(dut)
    await bench.start(stall=0.2)
    for error, status in (
        (LineError.ADDRESS, Status.ADDRESS_FAULT),
        (LineError.BUS, Status.BUS_ERROR),
    ):
        bench.memory.fail(DATA + 0x80, 64, error)
        bench.memory.fail(ARGUMENTS + 64, 64, error)
        for name in ("lw", "sw", "lb", "sh"):
            await _fails(bench, _access(name, WINDOW_BASE + 0x98), status, DATA + 0x80)
        await _fails(bench, _access("lhu", ARGUMENTS_BASE + 70), status, ARGUMENTS + 64)
        bench.memory.heal()
    # Beyond the 48 bits of a device address, and where there is no memory.
    top = HOST_BASE * 2 - 64
    await _fails(
        bench, _access("lw", WINDOW_BASE + 100), Status.ADDRESS_FAULT, top + 64, window=top
    )
    await _fails(bench, _access("sb", WINDOW_BASE + 100), Status.ADDRESS_FAULT, 64, window=0)

    def nops(asm: Assembler) -> None:
        for _ in range(40):
            asm.nop()

    def exit_first(asm: Assembler) -> None:
        for _ in range(11):
            asm.nop()
        asm.emit("npu.exit")
        nops(asm)

    # A line of code that fails is read ahead without harm, and traps once it is reached.
    for error, status in (
        (LineError.ADDRESS, Status.ADDRESS_FAULT),
        (LineError.BUS, Status.BUS_ERROR),
    ):
        code, _ = _program(nops)
        bench.memory.fail(CODE + 128, 64, error)
        assert (await bench.run(code)).fault == fault(status, 128, CODE + 128)
        code, _ = _program(exit_first)
        assert (await bench.run(code)).fault is None
        bench.memory.heal()
        assert (await bench.run(code, flush=False)).fault is None
    outcome = await bench.run(code, inputs={"code": 1 << 48})
    assert outcome.fault == fault(Status.ADDRESS_FAULT, 0, 1 << 48)


@cocotb.test()
async def jumps(dut: Any) -> None:
    bench = ScalarBench(dut)
    await bench.start(stall=0.2)

    def register_jump(target: int) -> Callable[[Assembler], None]:
        def write(asm: Assembler) -> None:
            asm.li(5, target)
            asm.emit("jalr", 5, 0, 5)

        return write

    await _fails(bench, register_jump(0x102), Status.MISALIGNED, 0x102)
    await _fails(bench, register_jump(0x103), Status.MISALIGNED, 0x102)
    for name in ("jal", "bne"):
        word = {"jal": 0x0060_00EF, "bne": 0x01D2_9363}[name]
        code, pc = _program(_word(word))
        outcome = await bench.run(code)
        assert outcome.fault == fault(Status.MISALIGNED, pc, pc + 6)
    # Not taken, the same target does no harm.
    code, _ = _program(_word(0x01CE_1363))
    assert (await bench.run(code)).fault is None
    for target in (0x2000, RAM_BASE, ARGUMENTS_BASE, WINDOW_BASE, 0xFFFF_FFFC):
        code, _ = _program(register_jump(target))
        outcome = await bench.run(code, arguments=bytes(ARGUMENT_BYTES))
        assert outcome.fault == fault(Status.ADDRESS_FAULT, target, target)
    # Running over the end, which may be in the middle of a word.
    code, pc = _program(Assembler.nop)
    for more in (0, 1, 3):
        outcome = await bench.run(code, inputs={"code_bytes": pc + 4 + more})
        assert outcome.fault == fault(Status.ADDRESS_FAULT, pc + 4, pc + 4)
    # A block that starts at a strange place.
    for inputs, address in (
        ({"entry": 6}, 6),
        ({"code": CODE + 4}, CODE + 4),
        ({"arguments": ARGUMENTS + 32}, ARGUMENTS + 32),
        ({"arguments": ARGUMENTS + 32, "code": CODE + 4}, CODE + 4),
        ({"arguments": ARGUMENTS + 32, "code": CODE + 4, "entry": 6}, 6),
    ):
        outcome = await bench.run(code, inputs=inputs)
        assert outcome.fault == fault(Status.MISALIGNED, inputs.get("entry", 0), address)
    outcome = await bench.run(code, entry=pc)
    assert outcome.fault is None
    assert outcome.retired == 2


@cocotb.test()
async def bad_commands_and_bases(dut: Any) -> None:
    bench = ScalarBench(dut)
    await bench.start(stall=0.2)

    def command(pipe: Pipe, raw: int) -> Callable[[Assembler], None]:
        def write(asm: Assembler) -> None:
            for i in range(1, 8):
                asm.li(5, raw >> 32 * i & 0xFFFF_FFFF)
                asm.emit("npu.word", pipe, i, 5)
            asm.li(5, raw & 0xFFFF_FFFF)
            asm.emit("npu.issue", pipe, 5)

        return write

    for pipe in list(Pipe)[:6]:
        await _fails(bench, command(pipe, 0), Status.BAD_COMMAND, pipe=pipe)
        assert len(bench.dispatch.received) == 0
    mmad = random_command(CommandOpcode.MMAD)
    await _fails(bench, command(Pipe.VECTOR, mmad), Status.BAD_COMMAND, pipe=Pipe.VECTOR)
    bad = mmad | 1 << 255
    await _fails(bench, command(Pipe.CUBE, bad), Status.BAD_COMMAND, pipe=Pipe.CUBE)

    def base(asm: Assembler) -> None:
        asm.li(5, 0x1234_5678)
        asm.li(6, 0x1_0002)
        asm.emit("npu.base", 3, 5, 6)

    await _fails(bench, base, Status.ADDRESS_FAULT, 0x1_0002_1234_5678)


@cocotb.test()
async def stops_at_any_time(dut: Any) -> None:
    """Whatever it does, a stop drains it, and the next block is right."""
    bench = ScalarBench(dut)
    await bench.start(stall=0.3, sinks=False)
    for _ in range(parameters()["stops"]):
        bench.reads.latency = bench.writes.latency = random.choice((1, (1, 8), (1, 60)))
        code = random_kernel(120, ARGUMENT_BYTES)
        dut.drained.value = 0
        await bench.begin(code, arguments=bytes(ARGUMENT_BYTES))
        ready = random.randrange(2)
        dut.dispatch__ready.value = dut.flag__ready.value = ready
        for _ in range(random.choice((5, 50, 400, 1500))):
            await bench.edge
        for _ in range(random.randrange(40)):
            await bench.edge
        await bench.halt()
        for name in ("dispatch__valid", "flag__valid", "blocked", "executing", "retired"):
            assert not int(getattr(dut, name).value)
        dut.drained.value = 1
        dut.dispatch__ready.value = dut.flag__ready.value = 1
        value = random.getrandbits(31)

        def store(asm: Assembler, value: int = value) -> None:
            asm.li(5, value)
            asm.li(6, WINDOW_BASE)
            asm.emit("sw", 5, 8, 6)

        code, _ = _program(store)
        outcome = await bench.run(code, flush=True)
        assert outcome.fault is None
        assert bench.view[8:12].tobytes() == value.to_bytes(4, "little")


@pytest.mark.parametrize(("sim", "stops"), [("verilator", 60), ("icarus", 6)])
def test_traps(sim: str, stops: int) -> None:
    run_block(
        unit_under_test(), __name__, sim=sim, sources=[Sram.SOURCE], parameters={"stops": stops}
    )
