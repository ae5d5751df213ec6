"""Errors: sides, classes, messages."""

import pytest

from abi.core import Pipe
from abi.semaphore import STATUS_WORD
from abi.status import Engine, Side, Status, side_of
from driver import errors
from driver.errors import (
    DependencyFailedError,
    DeviceError,
    InvalidArgumentError,
    KernelTimeoutError,
    NpuError,
    OutOfMemoryError,
    SubmissionError,
    fault_from_status,
)


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.OK])
def test_each_status_gives_an_error_of_its_side(status: Status) -> None:
    word = STATUS_WORD.pack(status=status, engine=Engine.DMA, instance=2, queue=3, packet=17)
    error = fault_from_status(word, address=0x1_0000_0040, in_flight=("DMA 2: busy",))
    assert error.side is side_of(status)
    assert (error.status, error.engine, error.instance) == (status, Engine.DMA, 2)
    assert (error.queue, error.packet, error.address) == (3, 17, 0x1_0000_0040)
    text = str(error)
    for part in (error.side.value, status.name, "DMA 2", "queue 3", "packet 17", "0x100000040"):
        assert part in text
    assert text.endswith("in flight: DMA 2: busy")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (Status.DEPENDENCY_FAILED, DependencyFailedError),
        (Status.KERNEL_TIMEOUT, KernelTimeoutError),
        (Status.BUS_ERROR, DeviceError),
        (Status.BAD_FIELD, SubmissionError),
    ],
)
def test_the_class_follows_the_status(status: Status, kind: type[NpuError]) -> None:
    assert type(fault_from_status(STATUS_WORD.pack(status=status))) is kind


def test_a_core_fault_names_pipe_pc_and_block() -> None:
    word = STATUS_WORD.pack(status=Status.BAD_COMMAND, engine=Engine.CORE, instance=1)
    error = fault_from_status(word, pipe=Pipe.FIXPIPE, detail=0x2C, block=23)
    assert (error.pipe, error.pc, error.block_number) == (Pipe.FIXPIPE, 0x2C, 23)
    assert "CORE 1, pipe FIXPIPE, pc 0x2c, block 23" in str(error)
    error.locate((3, 4, 5))
    assert error.block == (2, 3, 1)
    assert "block (2, 3, 1)" in str(error)


def test_other_faults_name_no_place_in_a_kernel() -> None:
    word = STATUS_WORD.pack(status=Status.ADDRESS_FAULT, engine=Engine.DMA)
    error = fault_from_status(word, pipe=0, detail=2, block=0)
    assert (error.pipe, error.pc, error.block_number, error.block) == (None, None, None, None)
    assert "after 2 descriptors" in str(error)


def test_success_is_no_fault() -> None:
    with pytest.raises(ValueError, match="status must be a fault"):
        fault_from_status(0)


def test_builtin_classes_and_sides() -> None:
    assert issubclass(InvalidArgumentError, ValueError)
    assert issubclass(OutOfMemoryError, MemoryError)
    assert str(InvalidArgumentError("nbytes must be at least 1, not 0")) == (
        "nbytes must be at least 1, not 0"
    )
    kinds = [getattr(errors, name) for name in errors.__all__]
    classes = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, NpuError)]
    assert len(classes) > 15
    for kind in classes:
        if kind.default_status is not None:
            assert kind.default_side is side_of(kind.default_status), kind
    assert errors.FirmwareStallError("x").side is Side.FIRMWARE
