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


def test_a_core_fault_names_pipe_and_command() -> None:
    word = STATUS_WORD.pack(status=Status.BAD_COMMAND, engine=Engine.CORE)
    assert "command 7 on FIXPIPE" in str(fault_from_status(word, pipe=Pipe.FIXPIPE, command=7))
    assert "command 7 on the sequencer" in str(fault_from_status(word, pipe=0xFF, command=7))


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
