"""Commands on kernels: compile, disassemble, check."""

import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from runtime.toolchain.elf import load_object, save_object
from runtime.toolchain.object import BufferUse, KernelObject
from tb.cli import main
from tb.toolchain.kernels import gemm

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "own_kernel.py"

KERNELS = """
from runtime.compiler.kernel import kernel

@kernel(x="float32*", n="uint31")
def halve(k, x, n):
    for i in k.range(0, n, 256):
        k.store(x, i, k.load(x, i, k.minimum(256, n - i)) * 0.5)

@kernel(x="float32*", n="uint31")
def unbounded(k, x, n):
    k.store(x, 0, k.load(x, 0, n))

@kernel(x="float32*", numbers="int32*", out="float32*", n="uint31")
def pick(k, x, numbers, out, n):
    for i in k.range(0, n):
        k.store(out, i, k.load(x, k.fetch(numbers, i), 1))

number = 3
"""


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in arguments], prog_name="glassnpu")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The caller's folder, with a module of kernels and one that is broken."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine.py").write_text(KERNELS)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    return tmp_path


@pytest.fixture
def halve(folder: Path) -> Path:
    """The object of a kernel."""
    done = invoke("compile", "mine.py:halve", "-o", "halve.o")
    assert done.exit_code == 0, done.output
    return folder / "halve.o"


def test_a_kernel_is_compiled_shown_and_checked(folder: Path) -> None:
    done = invoke("compile", f"{EXAMPLE}:axpy", "-o", "axpy.o")
    code = load_object(folder / "axpy.o")
    assert done.exit_code == 0, done.output
    assert done.output == (
        f"{folder / 'axpy.o'}: axpy(x, y, out, n, alpha), {len(code.code)} bytes of code\n"
    )
    shown = invoke("disassemble", "axpy.o")
    assert shown.exit_code == 0
    lines = shown.output.splitlines()
    assert lines[0] == f"# kernel axpy, entry 0x0, {len(code.code)} bytes"
    assert "# argument out: pointer to float32, bytes 16 to 23" in lines
    assert sum("npu.issue" in line for line in lines) >= 4
    checked = invoke(
        "check", "axpy.o", "--grid", "2", "--argument", "n=0x800", "--argument", "alpha=0.5"
    )
    assert checked.output.startswith("axpy: no hazards in 2 blocks\n")
    assert checked.exit_code == 0


def test_a_module_by_name_and_a_factory_of_the_library(folder: Path) -> None:
    assert invoke("compile", "mine:halve", "-o", "a.o").exit_code == 0
    done = invoke("compile", "runtime.kernels.row_source:softmax_source", "-o", "b.o")
    assert done.exit_code == 0, done.output
    assert load_object(folder / "b.o").name == "softmax"


def test_hazards_are_reported(folder: Path) -> None:
    kernel = KernelObject(
        name="gemm",
        code=gemm(credits=3),
        buffers=BufferUse(l1=256, l0a=32, l0b=128, l0c=16),
        flags=0b11111,
    )
    save_object(kernel, folder / "gemm.o")
    done = invoke("check", "gemm.o", "--grid", "2,1,1")
    assert done.exit_code == 1
    assert done.output.startswith("gemm: hazards in 2 blocks\n")
    assert "race: MTE2 at pc" in done.output


def test_data_that_steers_a_kernel(folder: Path) -> None:
    """Without its data, the verdict names what it takes for granted; with it, there is none."""
    assert invoke("compile", "mine.py:pick", "-o", "pick.o").exit_code == 0
    words = ("check", "pick.o", "--argument", "n=5")
    done = invoke(*words)
    lines = done.output.splitlines()
    assert lines[0] == "pick: no hazards in 1 blocks, if memory holds what is assumed"
    assert "takes bytes 0 to 19 of numbers for zeros [block (0, 0, 0)]" in lines[1]
    assert lines[-1] == "To check it with what memory really holds: --data NAME=FILE"
    assert done.exit_code == 0
    np.save(folder / "numbers.npy", np.arange(5, dtype=np.int32))
    (folder / "numbers.bin").write_bytes(bytes(20))
    for name in ("numbers.npy", "numbers.bin"):
        done = invoke(*words, "--data", f"numbers={name}")
        assert done.output.splitlines()[0] == "pick: no hazards in 1 blocks"
        assert "assumed" not in done.output
        assert "--data" not in done.output
    np.save(folder / "numbers.npy", np.arange(5))
    (folder / "cut.npy").write_bytes(b"NUMPY")
    for data, message in (
        ("numbers=numbers.npy", "--data of numbers must be an array of int32, not int64"),
        ("numbers=cut.npy", "--data must be a .npy file, not 'cut.npy'"),
        ("numbers=none.npy", "NAME=FILE with an existing file, not 'numbers=none.npy'"),
        ("numbers", "--data must be NAME=FILE with an existing file, not 'numbers'"),
        ("number=numbers.bin", "a pointer of pick, not 'number'; did you mean 'numbers'?"),
        ("n=numbers.bin", "--data must name a pointer of pick, not 'n'"),
    ):
        done = invoke(*words, "--data", data)
        assert (done.exit_code, message in " ".join(done.output.split())) == (2, True), done.output


@pytest.mark.usefixtures("halve")
@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("disassemble halv.o", 2, "existing object file, not 'halv.o'; did you mean 'halve.o'?"),
        ("disassemble .", 2, "FILE must be a file, not the folder '.'"),
        ("disassemble mine.py", 1, "mine.py: file must be an ELF file"),
        ("check halve.o", 1, "argument n of halve is missing; give it with --argument"),
        ("check halve.o --argument m=3", 2, "name an argument of halve, not 'm'; it has x, n"),
        ("check halve.o --argument n", 2, "--argument must be NAME=VALUE with a number, not 'n'"),
        ("check halve.o --argument n=big", 2, "must be NAME=VALUE with a number, not 'n=big'"),
        ("check halve.o --argument n=0.5", 1, "argument n must be a int32, not 0.5"),
        ("check halve.o --grid 2,x", 2, "--grid must be X, X,Y or X,Y,Z, not '2,x'"),
        ("check halve.o --grid 1,0 --argument n=1", 1, "along y must be between 1 and"),
        ("compile mine.py -o a.o", 2, "must be MODULE:KERNEL, not 'mine.py'"),
        ("compile min.py:halve -o a.o", 2, "Python file, not 'min.py'; did you mean 'mine.py' or"),
        ("compile mine.py:halv -o a.o", 2, "mine.py, not 'halv'; did you mean 'halve'?"),
        ("compile mine.py:q -o a.o", 2, "not 'q'; it has halve, unbounded, pick"),
        ("compile mine.py:number -o a.o", 2, "function under @kernel"),
        ("compile broken.py:x -o a.o", 1, "broken.py cannot be imported: ZeroDivisionError:"),
        ("compile nowhere:x -o a.o", 1, "nowhere cannot be imported: ModuleNotFoundError:"),
        ("compile mine.py:unbounded -o a.o", 1, "does not compile: columns must have an upper"),
        ("compile mine.py:halve", 2, "Missing option '-o'"),
        ("compile mine.py:halve -o a.elf", 2, "-o must end in '.o', not 'a.elf'"),
    ],
)
def test_bad_input_is_named(words: str, status: int, message: str) -> None:
    done = invoke(*words.split())
    assert (done.exit_code, message in " ".join(done.output.split())) == (status, True), done.output
