"""What the code of a kernel alone tells of its use, against what it declares."""

from dataclasses import replace

import pytest

from abi.isa import RAM_BYTES
from runtime.toolchain.declared import CodeUse, check_declared, code_use
from runtime.toolchain.object import KernelObject, ObjectError
from runtime.toolchain.source import assemble
from tb.kernels.test_hazards import CASES, compiled


@pytest.mark.parametrize(
    ("text", "flags", "ram_bytes"),
    [
        ("npu.set SCALAR, 3\nnpu.wait MTE2, 5\nnpu.exit", 0b101000, 0),
        ("sw a1, -4(sp)\nlb a2, -3(sp)\nsh a1, -8(sp)\nnpu.exit", 0, 6),
        ("sw a1, 0(sp)\nlw a1, 0(a0)\nlw a2, 0(zero)\nnpu.exit", 0, 0),
        ("lui t0, 0x10000\naddi t0, t0, 16\nsw zero, 4(t0)\nmv t1, t0\nlb a1, 4(t1)", 0, 4),
        # A value that is not constant, and a register that it was in.
        ("lui t0, 0x10000\nadd t0, t0, a1\nsw zero, 4(t0)", 0, 0),
        # Both ways of a branch; only one of a branch that is none; what a jump leaves out.
        ("beq a1, a2, there\nnpu.set SCALAR, 0\nthere: npu.set SCALAR, 1\nnpu.exit", 3, 0),
        ("beq a1, a1, there\nnpu.set SCALAR, 0\nthere: npu.set SCALAR, 1\nnpu.exit", 2, 0),
        ("bne a1, a1, there\nnpu.exit\nthere: npu.set SCALAR, 1", 0, 0),
        ("j there\nnpu.set SCALAR, 0\nthere: npu.set SCALAR, 1\nagain: j again", 2, 0),
        # Data behind the end, and behind a jump to where nobody knows.
        ("npu.exit\nnpu.set SCALAR, 0", 0, 0),
        ("jalr zero, 0(a1)\nnpu.set SCALAR, 0", 0, 0),
        (".word 0\nnpu.set SCALAR, 0", 0, 0),
        # A way that leads out of the code.
        ("beq a1, a2, 0x800\nj -8", 0, 0),
    ],
)
def test_use(text: str, flags: int, ram_bytes: int) -> None:
    assert code_use(assemble(text), 0) == CodeUse(flags, ram_bytes)


def test_entry() -> None:
    """What lies before the entry is not executed."""
    code = assemble("npu.set SCALAR, 0\nnpu.exit")
    assert code_use(code, 4) == CodeUse(0, 0)


def test_refused() -> None:
    """Flags and RAM that are not declared; what is declared may be more than the code tells."""
    code = assemble("npu.set SCALAR, 3\nsw a1, -4(sp)\nsw a1, -16(sp)\nnpu.exit")
    kernel = KernelObject("k", code, flags=0b1001, ram_bytes=8)
    check_declared(kernel)
    check_declared(replace(kernel, flags=(1 << 32) - 1, ram_bytes=RAM_BYTES))
    with pytest.raises(ObjectError, match=r"flags must have those .* of k uses, 0x8, not 0x1"):
        check_declared(replace(kernel, flags=1))
    with pytest.raises(ObjectError, match=r"ram_bytes must be at least the 8 .* of k uses, not 7"):
        check_declared(replace(kernel, ram_bytes=7))


@pytest.mark.parametrize("name", CASES)
def test_compiled_kernels_declare_all(name: str) -> None:
    """The compiler's code uses exactly the flags and the RAM that it declares."""
    code, _ = compiled(name)
    assert code_use(code.code, code.entry) == CodeUse(code.flags, code.ram_bytes)
    check_declared(code)
