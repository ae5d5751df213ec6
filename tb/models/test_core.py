"""The golden model of the core: where code and arguments lie, and what memory shows of them."""

from typing import Any

import numpy as np
import pytest

from abi.address import HBM_BASE
from abi.core import Pipe
from abi.status import Status
from runtime.toolchain.source import assemble
from tb.models.core import BlockStart, CoreModel

BYTES = 4096
ARGUMENTS = HBM_BASE + 1024


def _start(text: str, **changes: Any) -> tuple[CoreModel, BlockStart]:
    """A model with code at the start of its memory, and how to start it."""
    memory = np.zeros(BYTES, np.uint8)
    code = assemble(text)
    memory[: len(code)] = np.frombuffer(code, np.uint8)
    values: dict[str, Any] = {"code": HBM_BASE, "code_bytes": len(code), "arguments": ARGUMENTS}
    return CoreModel({HBM_BASE: memory}), BlockStart(**(values | changes))


@pytest.mark.parametrize(
    ("changes", "status", "address"),
    [
        ({}, Status.OK, 0),
        ({"code": HBM_BASE + 32}, Status.MISALIGNED, HBM_BASE + 32),
        ({"arguments": ARGUMENTS + 8}, Status.MISALIGNED, ARGUMENTS + 8),
        ({"code": HBM_BASE + BYTES}, Status.ADDRESS_FAULT, HBM_BASE + BYTES),
        ({"code": 1 << 48}, Status.ADDRESS_FAULT, 1 << 48),
        ({"code_bytes": 3}, Status.ADDRESS_FAULT, 0),
    ],
)
def test_where_a_block_lies(changes: dict[str, int], status: Status, address: int) -> None:
    model, start = _start("npu.exit", **changes)
    result = model.run(start)
    pipe = Pipe.SCALAR if status else 0
    assert (result.status, result.address, result.pc, result.pipe) == (status, address, 0, pipe)


def test_arguments_that_memory_does_not_have() -> None:
    """Their size is what the registers say; the line is missed when it is loaded."""
    text = "npu.get a1, ARGUMENT_BYTES\nadd a1, a1, a0\nlw a2, -4(a1)\nnpu.exit"
    model, start = _start(text, arguments=HBM_BASE + BYTES - 64, argument_bytes=128)
    result = model.run(start)
    assert (result.status, result.pc) == (Status.ADDRESS_FAULT, 8)
    assert result.address == HBM_BASE + BYTES


def test_arguments_that_the_kernel_stores_to() -> None:
    """A fence shows what was stored to the argument block through the window."""
    text = f"""
        li   t0, {ARGUMENTS & 0xFFFF_FFFF:#x}
        li   t1, {ARGUMENTS >> 32}
        npu.base 15, t0, t1
        lui  t2, 0x80000
        li   t3, 7
        lw   a1, 0(a0)
        sw   t3, 0(t2)
        lw   a2, 0(a0)
        fence
        lw   a3, 0(a0)
        sw   a2, 64(t2)
        sw   a3, 68(t2)
        npu.exit
    """
    model, start = _start(text, argument_bytes=4)
    assert model.run(start).status is Status.OK
    words = model.regions[HBM_BASE].view("<u4")
    assert [words[(1024 + at) // 4] for at in (0, 64, 68)] == [7, 0, 7]
