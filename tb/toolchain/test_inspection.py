"""Reports on kernel files."""

from pathlib import Path
from typing import Any

import pytest

from abi.core import CommandOpcode, Local
from abi.kernel_object import ArgumentKind, ElementType
from runtime.toolchain.assembler import Assembler
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
        "ram_bytes": 4,
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
        (
            {"code": assemble("sw a1, -4(sp)\nlhu a2, 2(zero)\nsb a1, -9(sp)\nnpu.exit")},
            "5 bytes of the scalar RAM are used, but 4 declared",
        ),
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


FOLLOWS = """
        lw   t0, 0(a0)
        lw   t1, 4(a0)
        npu.base 15, t0, t1
        lui  t2, 0x80000
        npu.get t3, BLOCK_X
        slli t3, t3, 2
        add  t3, t3, t2
        lw   a1, 64(t3)
        beqz a1, done
        npu.set SCALAR, 2
done:   npu.exit
"""


def _follows(tmp_path: Path) -> Path:
    """A kernel that leaves flag 2 if word 16 + block of its array is not zero."""
    array = Argument("array", ArgumentKind.POINTER, 0, ElementType.INT32)
    return _file(tmp_path, name="k", code=assemble(FOLLOWS), arguments=(array,), flags=4)


def test_loads_of_unknown_memory(tmp_path: Path) -> None:
    """What the kernel loads reads as zeros, and the report says so, unless its data is given."""
    path = _follows(tmp_path)
    report = check_object(path, (3, 1, 1))
    assert report.is_clean
    assert str(report).splitlines() == [
        "k: no hazards in 3 blocks, if memory holds what is assumed",
        "assumed: SCALAR at pc 0x1c takes bytes 64 to 75 of array for zeros "
        "[block (0, 0, 0) and 2 more]",
    ]
    known = bytes(68) + (1).to_bytes(8, "little")
    report = check_object(path, (3, 1, 1), {"array": 0x1_0000_0008}, {"array": known})
    assert [report.blocks[x, 0, 0].is_clean for x in range(3)] == [True, False, True]
    assert str(report).startswith("k: hazards in 3 blocks\nflag left: flag 2 is 1 at exit")
    assert not report.assumed
    # Data that ends before the last load.
    report = check_object(path, (3, 1, 1), data={"array": bytes(74)})
    assert "takes bytes 72 to 75 of array for zeros [block (2, 0, 0)]" in str(report)
    with pytest.raises(ObjectError, match="data must name a pointer of k, not 'other'"):
        check_object(path, data={"other": b""})


def test_loads_of_what_the_block_wrote(tmp_path: Path) -> None:
    """Own stores are known; what a command saves is not, whatever the data."""
    text = FOLLOWS.replace("lw   a1, 64(t3)", "{before}\n lw a1, 64(t3)")
    array = Argument("array", ArgumentKind.POINTER, 0, ElementType.INT32)
    asm = Assembler()
    asm.command(CommandOpcode.SAVE, target=Local.MEMORY, base=15, row_bytes=65, rows=1, planes=1)
    asm.emit("npu.barrier")
    save = "\n".join(f".word {word:#x}" for word in memoryview(asm.assemble()).cast("I"))
    for before, said in (("sw zero, 64(t3)", ""), (save, "before the block, though MTE3 at pc")):
        code = assemble(text.format(before=before))
        use = BufferUse(ub=2)
        path = _file(tmp_path, name="k", code=code, arguments=(array,), buffers=use)
        report = check_object(path, data={"array": bytes(128)} if said else {})
        assert report.is_clean, str(report)
        assert bool(report.assumed) == bool(said)
        assert said in str(report)


def test_loads_of_ram_that_is_not_written(tmp_path: Path) -> None:
    """The RAM keeps what the block before left, so its zeros are assumed."""
    path = _file(tmp_path, code=assemble("sh a1, -4(sp)\nlw a2, -4(sp)\nnpu.exit"))
    assert str(check_object(path)).splitlines()[1] == (
        "assumed: SCALAR takes bytes 0x10001ffe to 0x10001fff for zeros, as the block has not "
        "written them [block (0, 0, 0)]"
    )
    path = _file(tmp_path, code=assemble("sw a1, -4(sp)\nlw a2, -4(sp)\nnpu.exit"))
    assert str(check_object(path)) == "gemm: no hazards in 1 blocks"
