"""The npu.* instructions, memory and the cache: random kernels against the interpreter."""

import random
from typing import Any

import cocotb
import numpy as np
import pytest

from abi.core import Pipe
from abi.isa import ARGUMENTS_BASE, RAM_BASE, RAM_BYTES, WINDOW_BASE, WINDOW_REGISTER
from rtl.memory.sram import Sram
from runtime.toolchain.assembler import Assembler
from tb.blocks.core.scalar.bench import DATA, ScalarBench, unit_under_test
from tb.blocks.core.scalar.random_kernels import random_kernel
from tb.blocks.harness import parameters, run_block


def _window(asm: Assembler, address: int = DATA) -> None:
    """Point the window to a device address; x31 holds the window's scalar address."""
    asm.li(28, address & 0xFFFF_FFFF)
    asm.li(29, address >> 32)
    asm.emit("npu.base", WINDOW_REGISTER, 28, 29)
    asm.li(31, WINDOW_BASE)


def _word(bench: ScalarBench, offset: int) -> int:
    return int.from_bytes(bench.view[offset : offset + 4].tobytes(), "little")


@cocotb.test()
async def random_kernels_equal_the_interpreter(dut: Any) -> None:
    bench = ScalarBench(dut)
    await bench.start()
    issued = passed = 0
    for index in range(parameters()["kernels"]):
        stall = random.choice((0.0, 0.2, 0.5))
        bench.reads.stall = bench.writes.stall = stall
        bench.dispatch.stall = bench.flags.stall = stall
        bench.reads.latency = bench.writes.latency = random.choice((1, (1, 8), (1, 40)))
        noise = np.frombuffer(random.randbytes(0x4000), np.uint8)
        bench.view[:0x4000] = bench.expected[:0x4000] = noise
        arguments = random.randbytes(random.randrange(64, 600, 4))
        grid = (random.getrandbits(32), random.getrandbits(16), random.getrandbits(16))
        block = (random.getrandbits(32), random.getrandbits(16), random.getrandbits(16))
        code = random_kernel(parameters()["steps"], len(arguments))
        outcome = await bench.check(code, arguments=arguments, grid=grid, block=block)
        assert outcome.fault is None, f"kernel {index}: {outcome.fault}"
        issued += len(outcome.issued)
        passed += len(outcome.flags)
    assert issued >= parameters()["kernels"]
    assert passed


@cocotb.test()
async def held_lines_are_dropped_by_fence_and_barrier(dut: Any) -> None:
    bench = ScalarBench(dut)
    await bench.start()
    arguments = bytes(range(64))
    asm = Assembler()
    _window(asm)
    asm.li(30, ARGUMENTS_BASE)
    # 0: first look; then after a wait for flag 0, 1 and 2, during which memory changes.
    for step, before in enumerate((None, None, "fence", "npu.barrier")):
        if step:
            asm.emit("npu.wait", Pipe.SCALAR, step - 1)
        if before is not None:
            asm.emit(before)
        for which, pointer in enumerate((31, 30, 0)):
            asm.emit("lw", 5, 4, pointer)
            asm.emit("sw", 5, 64 + 16 * step + 4 * which, 31)
    asm.emit("npu.exit")
    code = asm.assemble()
    places = (4, 0x4000 + 4, 0x8000 + 4)
    bench.flags.stall = 1.0
    await bench.begin(code, arguments=arguments)
    values = []
    for step in range(4):
        values.append([_word(bench, place) for place in places])
        if step == 3:
            break
        while not int(dut.flag__valid.value):
            await bench.edge
        assert int(dut.blocked.value)
        assert not int(dut.executing.value)
        for place in places:
            bench.view[place : place + 4] = np.frombuffer(random.randbytes(4), np.uint8)
        bench.flags.stall = 0.0
        await bench.edge
        await bench.edge
        bench.flags.stall = 1.0
        while int(dut.flag__valid.value):
            await bench.edge
    await bench.end()
    seen = [[_word(bench, 64 + 16 * step + 4 * i) for i in range(3)] for step in range(4)]
    assert seen == [values[0], values[0], values[2], values[3]]


@cocotb.test()
async def stores_come_before_what_follows(dut: Any) -> None:
    """A store is answered before a command is issued, a flag passed, or the block ends."""
    bench = ScalarBench(dut)
    await bench.start(latency=(10, 40))
    asm = Assembler()
    _window(asm)
    asm.li(5, 1)
    for value in range(1, 6):
        asm.li(6, value)
        asm.emit("sw", 6, 0, 31)
        asm.emit("npu.issue", Pipe.MTE3, 5)
        asm.li(6, value + 100)
        asm.emit("sw", 6, 4, 31)
        asm.emit("npu.set", Pipe.SCALAR, value)
    asm.emit("sb", 6, 9, 31)
    asm.emit("npu.exit")
    await bench.begin(asm.assemble())
    issued = passed = 0
    while not int(dut.exited.value):
        await bench.edge
        if int(dut.dispatch__valid.value):
            issued = len(bench.dispatch.received) + 1
            assert _word(bench, 0) == issued
        if int(dut.flag__valid.value):
            passed = len(bench.flags.received) + 1
            assert _word(bench, 4) == 100 + passed
    assert (issued, passed, bench.view[9]) == (5, 5, 105)
    await bench.end()


@cocotb.test()
async def barrier_and_exit_wait_for_the_pipes(dut: Any) -> None:
    bench = ScalarBench(dut)
    await bench.start()
    asm = Assembler()
    _window(asm)
    asm.emit("npu.barrier")
    asm.emit("sw", 31, 0, 31)
    asm.emit("npu.exit")
    dut.drained.value = 0
    await bench.begin(asm.assemble())
    for stored in (0, WINDOW_BASE):
        for _ in range(300):
            await bench.edge
        assert int(dut.blocked.value)
        assert not int(dut.exited.value)
        assert not int(dut.idle.value)
        assert _word(bench, 0) == stored
        dut.drained.value = 1
        await bench.edge
        dut.drained.value = 0
    await bench.end()


@cocotb.test()
async def a_block_starts_from_zero_but_keeps_the_ram(dut: Any) -> None:
    bench = ScalarBench(dut)
    await bench.start()
    asm = Assembler()
    for address in (0, 4, RAM_BYTES - 4):
        asm.li(28, RAM_BASE + address)
        asm.li(5, 0x1234_5600 + address)
        asm.emit("sw", 5, 0, 28)
    asm.li(5, DATA & 0xFFFF_FFFF)
    asm.li(6, DATA >> 32)
    for index in range(15):
        asm.emit("npu.base", index, 6, 5)
    asm.emit("npu.base", 15, 5, 6)
    for pipe in list(Pipe)[:6]:
        for index in (1, 3, 5):
            asm.emit("npu.pair", pipe, index, 5, 6)
        asm.emit("npu.word", pipe, 7, 28)
        asm.emit("npu.wait", pipe, pipe)
        asm.emit("npu.set", pipe, pipe + 20)
    for register in range(1, 32):
        asm.li(register, 0x9000_0000 + register)
    asm.emit("npu.exit")
    first = asm.assemble()
    asm = Assembler()
    # Before any register is written: the registers go to the window, which is still at 0.
    for pipe in list(Pipe)[:6]:
        asm.emit("addi", 5, 0, 1)
        asm.emit("npu.issue", pipe, 5)
    asm.li(5, 0)
    for register in range(32):
        if register in (6, 7):
            continue
        asm.li(6, DATA & 0xFFFF_FFFF)
        asm.li(7, DATA >> 32)
        asm.emit("npu.base", 15, 6, 7)
        asm.li(6, WINDOW_BASE)
        asm.emit("sw", register, 4 * register, 6)
    asm.li(7, WINDOW_BASE)
    kept = (0, 4, 8, RAM_BYTES - 4)
    for i, address in enumerate(kept):
        asm.li(6, RAM_BASE + address)
        asm.emit("lw", 8, 0, 6)
        asm.emit("sw", 8, 128 + 4 * i, 7)
    asm.emit("npu.exit")
    second = asm.assemble()
    await bench.check(first)
    outcome = await bench.check(second)
    assert [(item["command"], item["wait"], item["set"]) for item in outcome.issued] == 6 * [
        (1, 0, 0)
    ]
    registers = {i: _word(bench, 4 * i) for i in range(32) if i not in (6, 7)}
    assert {i: value for i, value in registers.items() if value} == {
        2: RAM_BASE + RAM_BYTES,
        10: ARGUMENTS_BASE,
    }
    left = [0x1234_5600, 0x1234_5604, 0, 0x1234_5600 + RAM_BYTES - 4]
    assert [_word(bench, 128 + 4 * i) for i in range(4)] == left
    # The window is at 0 again: there is no memory.
    outcome = await bench.run(bytes.fromhex("83220080" + "00000000"))
    assert outcome.fault is not None
    dut.scrub.value = 1
    await bench.edge
    dut.scrub.value = 0
    await bench.quiet()
    bench.ram[:] = bytes(RAM_BYTES)
    await bench.check(second)
    assert [_word(bench, 128 + 4 * i) for i in range(4)] == [0, 0, 0, 0]


@cocotb.test()
async def code_is_cached_until_flushed(dut: Any) -> None:
    bench = ScalarBench(dut)
    await bench.start()

    def program(value: int) -> bytes:
        asm = Assembler()
        _window(asm)
        asm.li(5, value)
        asm.emit("sw", 5, 0, 31)
        asm.emit("npu.exit")
        return asm.assemble()

    await bench.run(program(0x1234_5678))
    assert _word(bench, 0) == 0x1234_5678
    asked = len(bench.reads.lines)
    await bench.run(program(0x1BCD_E678), flush=False)
    assert _word(bench, 0) == 0x1234_5678
    assert len(bench.reads.lines) == asked
    await bench.run(program(0x1BCD_E678), flush=True)
    assert _word(bench, 0) == 0x1BCD_E678


@cocotb.test()
async def flushes_at_any_time_do_no_harm(dut: Any) -> None:
    """Jumps all over more lines than the cache has, with flushes and slow memory."""
    bench = ScalarBench(dut)
    await bench.start(latency=(1, 15), stall=0.2)
    lines = 24
    asm = Assembler()
    _window(asm)
    asm.li(6, parameters()["jumps"])
    asm.j("line0")
    order = random.sample(range(lines), lines)
    after = {line: order[i - 1] for i, line in enumerate(order)}
    for line in range(lines):
        while asm.address % 64 != random.choice((0, 60)):
            asm.nop()
        asm.label(f"line{line}")
        asm.emit("slli", 7, 5, 3)
        asm.emit("xori", 5, 7, line + 1)
        asm.emit("addi", 6, 6, -1)
        asm.emit("bge", 0, 6, "out")
        asm.j(f"line{after[line]}")
    asm.label("out")
    asm.emit("sw", 5, 0, 31)
    asm.emit("npu.exit")
    code = asm.assemble()

    async def flush() -> None:
        while True:
            for _ in range(random.randint(1, 60)):
                await bench.edge
            dut.flush.value = 1
            await bench.edge
            dut.flush.value = 0

    task = cocotb.start_soon(flush())
    await bench.check(code)
    task.cancel()
    dut.flush.value = 0
    await bench.check(code)
    assert bench.view[:4].any()


@cocotb.test()
async def takes_the_promised_cycles(dut: Any) -> None:
    """Cycles of instructions on cache hits, by what 8 more of them cost."""
    bench = ScalarBench(dut)
    await bench.start(latency=1)
    costs: dict[tuple[str, *tuple[int, ...]], int] = {
        ("addi", 5, 5, 1): 2,
        ("lw", 5, 0, 27): 3,
        ("sw", 5, 0, 27): 3,
        ("lw", 5, 0, 31): 4,
        ("mul", 5, 5, 6): 3,
        ("divu", 5, 5, 6): 35,
        ("npu.word", 0, 1, 5): 2,
        ("npu.issue", 0, 7): 3,
    }
    for (name, *operands), cost in costs.items():
        spent = []
        for count in (0, 8):
            asm = Assembler()
            _window(asm)
            asm.li(27, RAM_BASE)
            asm.li(7, 1)
            asm.emit("lw", 5, 0, 31)
            while asm.address % 64:
                asm.nop()
            for _ in range(count):
                asm.emit(name, *operands)
            for _ in range(8 - count):
                asm.nop()
            asm.emit("npu.exit")
            code = asm.assemble()
            await bench.run(code)
            await bench.run(code, flush=False)
            spent.append(bench.cycles)
        assert spent[1] - spent[0] == 8 * (cost - 2), name


@pytest.mark.parametrize(
    ("sim", "kernels", "steps", "jumps"),
    [("verilator", 25, 160, 400), ("icarus", 2, 60, 60)],
)
def test_kernels(sim: str, kernels: int, steps: int, jumps: int) -> None:
    run_block(
        unit_under_test(),
        __name__,
        sim=sim,
        sources=[Sram.SOURCE],
        parameters={"kernels": kernels, "steps": steps, "jumps": jumps},
    )
