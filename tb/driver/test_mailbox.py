"""The mailbox: exactly one completion for each request, whatever gets lost or late."""

import pytest

from abi.mailbox import FirmwarePhase, MessageKind
from abi.status import Status
from driver.errors import (
    FirmwareCrashError,
    FirmwareStallError,
    MailboxTimeoutError,
    SubmissionError,
)
from driver.kmd.device import KernelDriver
from tb.models.device import ModelMachine


def test_requests_beyond_the_ring_wrap(kmd: KernelDriver) -> None:
    for _ in range(40):
        response = kmd.mailbox.request(MessageKind.PING)
        assert response["status"] == Status.OK
    assert (kmd.mailbox.late, kmd.mailbox.recovered) == (0, 0)


def test_request_ids_are_never_used_twice(kmd: KernelDriver) -> None:
    ids = [kmd.mailbox.request(MessageKind.PING)["request_id"] for _ in range(3)]
    kmd.reset()
    ids += [kmd.mailbox.request(MessageKind.PING)["request_id"] for _ in range(3)]
    assert ids == sorted(set(ids))


def test_a_refusal_names_its_status(kmd: KernelDriver) -> None:
    with pytest.raises(SubmissionError, match="refused DESTROY_QUEUE") as caught:
        kmd.mailbox.request(MessageKind.DESTROY_QUEUE, queue=3)
    assert (caught.value.status, caught.value.queue) == (Status.NO_RESOURCE, 3)


def test_a_lost_interrupt_costs_a_slice_not_the_message(
    kmd: KernelDriver, machine: ModelMachine
) -> None:
    machine.faults.drop_messages(0, 1)
    start = machine.bus.now()
    assert kmd.mailbox.request(MessageKind.PING)["status"] == Status.OK
    assert machine.bus.now() - start < 50_000
    assert kmd.mailbox.recovered == 1


def test_a_late_response_is_dropped_and_not_taken_for_the_next(
    kmd: KernelDriver, machine: ModelMachine
) -> None:
    machine.faults.stall_firmware(1_000_000)
    with pytest.raises(FirmwareStallError, match="no answer"):
        kmd.mailbox.request(MessageKind.PING, timeout=100_000)
    state = kmd.mailbox.request(MessageKind.QUERY_QUEUE, timeout=2_000_000, queue=2)
    assert state["kind"] == MessageKind.QUERY_QUEUE
    assert kmd.mailbox.late == 1
    assert kmd.mailbox._responses == {}
    assert kmd.mailbox._waiting == set()


def test_a_full_mailbox_is_an_error_and_recovers(kmd: KernelDriver, machine: ModelMachine) -> None:
    machine.faults.stall_firmware()
    for _ in range(8):
        with pytest.raises(FirmwareStallError):
            kmd.mailbox.request(MessageKind.PING, timeout=5_000)
    with pytest.raises(FirmwareStallError, match="the mailbox is full"):
        kmd.mailbox.request(MessageKind.PING, timeout=5_000)
    machine.faults.release_firmware()
    assert kmd.mailbox.request(MessageKind.PING)["status"] == Status.OK
    assert kmd.mailbox.late == 8


def test_a_living_firmware_that_does_not_answer_is_told_from_a_dead_one(
    kmd: KernelDriver, machine: ModelMachine
) -> None:
    frozen = kmd.registers.bar0.response_write.read()
    answering = machine.host.bar0.on_read["response_write"]
    machine.host.bar0.on_read["response_write"] = lambda _: frozen
    with pytest.raises(MailboxTimeoutError, match="no answer"):
        kmd.mailbox.request(MessageKind.PING, timeout=100_000)
    machine.host.bar0.on_read["response_write"] = answering
    assert kmd.mailbox.request(MessageKind.PING)["status"] == Status.OK
    assert kmd.mailbox.late == 1


def test_a_crash_is_reported_at_once(kmd: KernelDriver, machine: ModelMachine) -> None:
    machine.faults.crash_firmware()
    start = machine.bus.now()
    with pytest.raises(FirmwareCrashError, match=f"phase {FirmwarePhase.CRASHED.value}"):
        kmd.mailbox.request(MessageKind.PING, timeout=10_000_000)
    assert machine.bus.now() - start < 200_000
