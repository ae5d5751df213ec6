"""The hazard checker: clean kernels are clean, and any flag taken away is noticed."""

from typing import Any

import pytest

from abi.core import CommandOpcode, Local, MoveTarget, Pipe
from abi.isa import WINDOW_REGISTER
from abi.status import Status
from runtime.toolchain.assembler import Assembler
from runtime.toolchain.footprint import Buffer
from runtime.toolchain.hazards import FindingKind, HazardReport, check_block
from runtime.toolchain.operands import decode
from tb.toolchain.kernels import KERNELS, gemm, mixed, scale

NOP = 0x13
FLAG_NAMES = ("npu.set", "npu.wait")


def _flag_instructions(code: bytes) -> list[tuple[int, str, int, int]]:
    """Address, name, pipe and flag of each npu.set and npu.wait."""
    found = []
    for at in range(0, len(code), 4):
        decoded = decode(int.from_bytes(code[at : at + 4], "little"))
        if decoded is not None and decoded.instruction.name in FLAG_NAMES:
            found.append((at, decoded.instruction.name, decoded["pipe"], decoded["flag"]))
    return found


def _without(code: bytes, addresses: list[int]) -> bytes:
    changed = bytearray(code)
    for at in addresses:
        changed[at : at + 4] = NOP.to_bytes(4, "little")
    return bytes(changed)


@pytest.mark.parametrize("name", KERNELS)
def test_clean(name: str) -> None:
    """A correct kernel has no findings."""
    report = check_block(KERNELS[name]())
    assert report.is_clean, str(report)
    assert report.commands > 5


@pytest.mark.parametrize("name", KERNELS)
def test_any_flag_missing(name: str) -> None:
    """Without any single npu.set or npu.wait, something is found."""
    code = KERNELS[name]()
    places = _flag_instructions(code)
    assert len(places) >= 8
    for at, instruction, pipe, flag in places:
        report = check_block(_without(code, [at]))
        kinds = {finding.kind for finding in report.findings}
        assert kinds & {FindingKind.FLAG_LEFT, FindingKind.DEADLOCK}, (hex(at), str(report))
        if instruction == "npu.wait":
            assert FindingKind.FLAG_LEFT in kinds, (hex(at), pipe, flag, str(report))


@pytest.mark.parametrize("name", KERNELS)
def test_any_pair_missing(name: str) -> None:
    """Without all of one flag, which leaves all counts right, there is a race."""
    code = KERNELS[name]()
    places = _flag_instructions(code)
    for flag in sorted({flag for *_, flag in places}):
        report = check_block(_without(code, [at for at, _, _, each in places if each == flag]))
        kinds = {finding.kind for finding in report.findings}
        assert kinds == {FindingKind.RACE}, (name, flag, str(report))


def test_too_many_credits() -> None:
    """Two slots and three credits: the third tile overwrites the first."""
    report = check_block(gemm(credits=3))
    races = report.of(FindingKind.RACE)
    assert {finding.buffer for finding in races} >= {Buffer.L1, Buffer.L0A, Buffer.L0B}
    assert len(report.findings) == len(races)
    assert {place.pipe for place in races[0].places} == {Pipe.MTE2, Pipe.MTE1}
    assert "in no order" in str(races[0])
    assert "lines" in str(races[0])
    one = check_block(gemm(credits=1))
    assert one.is_clean, str(one)


def test_contention() -> None:
    """Two pipes that take one flag in no order: who comes first may take what the other needs."""
    report = check_block(gemm(settle=False))
    assert FindingKind.CONTENTION in {finding.kind for finding in report.findings}
    asm = Assembler()
    for pipe in (Pipe.MTE2, Pipe.CUBE):
        asm.command(CommandOpcode.NOP, pipe=pipe, wait=(5,))
    for _ in range(2):
        asm.emit("npu.set", Pipe.SCALAR, 5)
    (finding,) = _check(asm).findings
    assert finding.kind is FindingKind.CONTENTION
    assert {place.pipe for place in finding.places} == {Pipe.MTE2, Pipe.CUBE}


def test_long_kernels_are_quick() -> None:
    """Hundreds of tiles stay clean."""
    assert check_block(scale(steps=200)).is_clean
    assert check_block(gemm(steps=60)).is_clean


def test_stale_line() -> None:
    """Without the fence, the scalar unit reads the line that it held before."""
    report = check_block(mixed(fences=False))
    (race,) = report.findings
    assert race.kind is FindingKind.RACE
    assert race.buffer is None
    assert [place.pipe for place in race.places] == [Pipe.SCALAR, Pipe.MTE3]
    assert "in a line held since before" in str(race)


def _check(asm: Assembler, **options: Any) -> HazardReport:
    asm.emit("npu.exit")
    return check_block(asm.assemble(), **options)


ROW: dict[str, Any] = {"row_bytes": 64, "rows": 1, "planes": 1}


def test_deadlock_names_who_waits() -> None:
    """A flag that nobody gives; the scalar unit cannot exit."""
    asm = Assembler()
    asm.command(CommandOpcode.NOP, pipe=Pipe.CUBE, wait=(3,))
    (finding,) = _check(asm).findings
    assert finding.kind is FindingKind.DEADLOCK
    assert "CUBE at pc" in str(finding)
    assert "waits for flag 3" in str(finding)
    assert "SCALAR at pc" in str(finding)


def test_full_queue_deadlock() -> None:
    """The command that would give comes behind more waiting ones than the queue holds."""
    for waiting, findings in ((4, 0), (5, 1)):
        asm = Assembler()
        for _ in range(waiting):
            asm.command(CommandOpcode.NOP, pipe=Pipe.MTE2, wait=(0,))
        for _ in range(waiting):
            asm.command(CommandOpcode.NOP, pipe=Pipe.CUBE, give=(0,))
        report = _check(asm)
        assert len(report.findings) == findings, str(report)
        if findings:
            assert "place in the queue of MTE2" in str(report)


def test_flag_left_may_be_allowed() -> None:
    """A flag that is left over, unless the kernel says that it is."""
    for allowed, clean in (({}, False), ({7: 2}, True), ({7: 1}, False), ({7: 2, 8: 1}, False)):
        asm = Assembler()
        for _ in range(2):
            asm.emit("npu.set", Pipe.SCALAR, 7)
        report = _check(asm, flags_left=allowed)
        assert report.is_clean is clean
        assert clean or report.findings[0].kind is FindingKind.FLAG_LEFT


def test_flag_overflow() -> None:
    """Sixteen gives that no take is surely between; fifteen fit; takes in between help."""
    for gives, take_between, overflow in ((15, False, False), (16, False, True), (40, True, False)):
        asm = Assembler()
        for _ in range(gives):
            asm.command(CommandOpcode.NOP, pipe=Pipe.MTE2, give=(2,))
            if take_between:
                asm.emit("npu.wait", Pipe.SCALAR, 2)
        if not take_between:
            for _ in range(gives):
                asm.emit("npu.wait", Pipe.SCALAR, 2)
        report = _check(asm)
        assert bool(report.of(FindingKind.FLAG_OVERFLOW)) is overflow, str(report)
        assert len(report.findings) == overflow


def test_flag_of_two_givers() -> None:
    """With two givers, one take proves neither; two takes prove both."""
    for takes, races in ((1, 2), (2, 0)):
        asm = Assembler()
        asm.command(CommandOpcode.LOAD, give=(0,), target=Local.UB, line=4, **ROW)
        asm.command(CommandOpcode.SAVE, give=(0,), target=Local.L1, offset=4, line=8, **ROW)
        asm.command(CommandOpcode.NOP, pipe=Pipe.MTE1, wait=(0,))
        if takes == 2:
            asm.command(CommandOpcode.NOP, pipe=Pipe.MTE1, wait=(0,))
        asm.command(
            CommandOpcode.MOVE, give=(1,), target=MoveTarget.L0A, source=4, row_lines=1, rows=1
        )
        asm.command(
            CommandOpcode.VECTOR, wait=(1,), operation=0x20, a_step=1, a_line=4, line=12,
            columns=16, rows=1,
        )  # fmt: skip
        report = _check(asm, flags_left={} if takes == 2 else {0: 1})
        assert len(report.of(FindingKind.RACE)) == races, str(report)
        assert len(report.findings) == races
        assert any("given by MTE2, MTE3" in note for note in report.notes)


def test_commands_end_in_order() -> None:
    """The flag of a pipe's second command says that the first has ended too."""
    asm = Assembler()
    asm.emit("npu.set", Pipe.SCALAR, 1)
    asm.command(CommandOpcode.LOAD, target=Local.L1, line=4, **ROW)
    asm.command(CommandOpcode.LOAD, target=Local.L1, line=5, wait=(1,), give=(0,), **ROW)
    asm.command(CommandOpcode.MOVE, wait=(0,), target=MoveTarget.L0A, source=4, row_lines=2, rows=1)
    assert _check(asm).is_clean


def test_global_memory() -> None:
    """Bytes that are saved and loaded: races exactly if they overlap."""
    for offset, races in ((64, 0), (63, 1), (-64, 0), (-63, 1), (0, 1)):
        asm = Assembler()
        asm.li("t0", 0x1000)
        asm.li("t1", 1)
        asm.emit("npu.base", 3, "t0", "t1")
        asm.command(CommandOpcode.SAVE, target=Local.MEMORY, base=3, **ROW)
        asm.command(CommandOpcode.LOAD, target=Local.UB, line=8, base=3, offset=offset, **ROW)
        report = _check(asm)
        assert len(report.findings) == races, str(report)
        if races:
            assert report.findings[0].buffer is None
            assert "global memory" in str(report)


def test_scalar_accesses() -> None:
    """The scalar unit's own stores against a running load; ordered after a barrier."""
    for barrier, races in ((False, 1), (True, 0)):
        asm = Assembler()
        asm.emit("npu.base", WINDOW_REGISTER, "zero", "zero")
        asm.command(CommandOpcode.LOAD, target=Local.UB, **ROW)
        if barrier:
            asm.emit("npu.barrier")
        asm.li("t0", 0x8000_0000)
        asm.emit("sb", "t0", 63, "t0")
        report = _check(asm)
        assert len(report.findings) == races
        if races:
            assert {place.pipe for place in report.findings[0].places} == {Pipe.SCALAR, Pipe.MTE2}


def test_traps_overflows_and_limits() -> None:
    """What the device would refuse, with its place."""
    asm = Assembler()
    asm.command(CommandOpcode.LOAD, target=Local.UB, line=100, **ROW)
    assert _check(asm).is_clean
    asm = Assembler()
    asm.command(CommandOpcode.LOAD, target=Local.UB, line=100, **ROW)
    (finding,) = _check(asm, sizes={Buffer.UB: 100}).findings
    assert finding.kind is FindingKind.BUFFER_OVERFLOW
    assert "lines of UB must be between 0 and 99, not 100" in str(finding)
    asm = Assembler()
    asm.emit("lw", "a0", 0, "sp")
    (finding,) = _check(asm).findings
    assert finding.kind is FindingKind.TRAP
    assert Status.ADDRESS_FAULT.name in str(finding)
    asm = Assembler()
    asm.label("loop")
    asm.j("loop")
    (finding,) = _check(asm, limit=1000).findings
    assert finding.kind is FindingKind.TOO_LONG
