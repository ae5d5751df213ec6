"""Reports on kernel files."""

from pathlib import Path
from typing import Any

import pytest

from abi.kernel_object import ArgumentKind, ElementType
from runtime.toolchain.elf import save_object
from runtime.toolchain.inspection import check_object, disassemble_object
from runtime.toolchain.object import Argument, BufferUse, KernelObject, ObjectError
from runtime.toolchain.source import assemble
from tb.toolchain.kernels import gemm, scale

SOURCE = """
        .word 0x600d
start:  lw   a1, 8(a0)
        npu.get a2, BLOCK_X
        bgeu a2, a1, done
        npu.set SCALAR, 2
done:   npu.exit
"""


def _file(tmp_path: Path, **changes: Any) -> Path:
    values: dict[str, Any] = {
        "name": "gemm",
        "code": gemm(),
        "buffers": BufferUse(l1=256, l0a=32, l0b=128, l0c=16),
        "flags": 0b11111,
    }
    path = tmp_path / "kernel.o"
    save_object(KernelObject(**(values | changes)), path)
    return path


def test_clean_kernel(tmp_path: Path) -> None:
    """What is declared is enough."""
    report = check_object(_file(tmp_path), (3, 1, 2))
    assert report.is_clean
    assert str(report).startswith("gemm: no hazards in 6 blocks\nnote: flag 1 is given by MTE1")
    assert "[block (0, 0, 0) and 5 more]" in str(report)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"buffers": BufferUse(l1=255, l0a=32, l0b=128, l0c=16)}, "lines of L1 must be between"),
        ({"buffers": BufferUse(l1=256, l0a=32, l0b=128)}, "lines of L0C must be between"),
        ({"flags": 0b01101}, "flags 1, 4 are used, but not declared"),
        ({"code": gemm(credits=3)}, "race: MTE2 at pc"),
        ({"code": scale()}, "lines of UB must be between"),
    ],
)
def test_more_than_declared(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    """Lines and flags that are not declared, and hazards."""
    report = check_object(_file(tmp_path, **changes))
    assert not report.is_clean
    assert str(report).startswith("gemm: hazards in 1 blocks")
    assert text in str(report)


def test_arguments_and_blocks(tmp_path: Path) -> None:
    """Blocks differ: what is wrong in some is reported with the first of them."""
    path = _file(
        tmp_path,
        name="start",
        code=assemble(SOURCE),
        entry=4,
        arguments=(
            Argument("source", ArgumentKind.POINTER, 0, ElementType.FLOAT32),
            Argument("count", ArgumentKind.INT32, 8),
        ),
        flags=4,
        grid_limit=(1000, 1, 1),
    )
    assert check_object(path, (10, 1, 1), {"count": 0}).is_clean
    report = check_object(path, (10, 1, 1), {"count": 3})
    assert [report.blocks[x, 0, 0].is_clean for x in range(10)] == [False] * 3 + [True] * 7
    assert "flag 2 is 1 at exit, not 0" in str(report)
    assert "[block (0, 0, 0) and 2 more]" in str(report)
    large = check_object(path, (1000, 1, 1), {"count": 3})
    assert list(large.blocks) == [(0, 0, 0), (500, 0, 0), (999, 0, 0)]
    assert "in 3 blocks, at the grid's edges" in str(large)
    with pytest.raises(ObjectError, match="argument count of start is missing"):
        check_object(path)
    with pytest.raises(ObjectError, match="grid along x must be between 1 and 1000, not 1001"):
        check_object(path, (1001, 1, 1), {"count": 3})
    text = disassemble_object(path)
    assert "# argument source: pointer to float32, bytes 0 to 7" in text
    assert "# argument count: int32, bytes 8 to 11" in text
    assert "start:\n    lw a1, 8(a0)" in text
    assert "npu.set SCALAR, 2" in text
    assert assemble(text) == assemble(SOURCE)
