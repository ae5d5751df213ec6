"""The mailbox server: every request is answered exactly once, whatever it is."""

import os
import random

import pytest

from abi.mailbox import MESSAGES, RESPONSE_PLAIN, MessageKind
from abi.status import Status
from tb.firmware.host import Host


def test_ping(host: Host) -> None:
    response = host.call(MessageKind.PING)
    assert response["status"] == Status.OK
    assert response["reserved"] == 0


@pytest.mark.parametrize("kind", [0, 7, 8, 0x100, 0xFFFF])
def test_unknown_kind(host: Host, kind: int) -> None:
    host.send_raw(kind | 77 << 32)
    response = RESPONSE_PLAIN.unpack(host.receive_raw())
    assert response == RESPONSE_PLAIN.unpack(kind | 77 << 32 | Status.BAD_MESSAGE << 16)


RESERVED = [
    (kind, name, bit)
    for kind, record in MESSAGES.items()
    for name, field in record.fields.items()
    if name.startswith("reserved")
    for bit in sorted({0, field.width // 2, field.width - 1})
]


@pytest.mark.parametrize(("kind", "name", "bit"), RESERVED)
def test_reserved_bits(host: Host, kind: MessageKind, name: str, bit: int) -> None:
    response = host.call(kind, **{name: 1 << bit})
    assert response["status"] == Status.BAD_MESSAGE
    assert not any(queue.enabled for queue in host.machine.chip.queues.queues)


def test_a_storm_is_answered_in_order_exactly_once(host: Host) -> None:
    sent: list[int] = []
    received: list[int] = []
    for _ in range(10):
        for _ in range(8):
            sent.append(host.send(MessageKind.PING))
        for _ in range(8):
            response = host.receive()
            assert response["status"] == Status.OK
            received.append(response["request_id"])
    assert received == sent
    host.machine.run(5_000)
    assert host.read("response_write") == host.responses


def test_a_host_that_reads_no_responses_blocks_only_itself(host: Host) -> None:
    ring = host.create(0)
    for _ in range(8):
        host.send(MessageKind.PING)
    host.machine.run(5_000)
    assert host.read("request_read") == host.requests
    # All response slots are taken: the next request waits.
    waiting = host.send(MessageKind.PING)
    host.machine.run(5_000)
    assert host.read("request_read") == host.requests - 1
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)
    ids = [host.receive()["request_id"] for _ in range(9)]
    assert ids == list(range(waiting - 8, waiting + 1))


def test_an_overrun_request_ring_is_answered_and_left_behind(host: Host) -> None:
    host.requests += 9
    host.write("request_write", index=host.requests)
    response = RESPONSE_PLAIN.unpack(host.receive_raw())
    assert response["status"] == Status.BAD_MESSAGE
    assert (response["kind"], response["request_id"]) == (0, 0)
    assert host.read("request_read") == host.requests
    assert host.call(MessageKind.PING)["status"] == Status.OK


def test_an_index_that_goes_back_is_an_overrun_too(host: Host) -> None:
    host.call(MessageKind.PING)
    host.requests -= 1
    host.write("request_write", index=host.requests)
    response = RESPONSE_PLAIN.unpack(host.receive_raw())
    assert response["status"] == Status.BAD_MESSAGE
    assert host.call(MessageKind.PING)["status"] == Status.OK


def test_writing_the_same_index_again_is_no_request(host: Host) -> None:
    host.call(MessageKind.PING)
    for _ in range(20):
        host.write("request_write", index=host.requests)
    host.machine.run(2_000)
    assert host.read("response_write") == host.responses


def test_a_message_posted_while_another_is_served_is_not_lost(host: Host) -> None:
    """The window between clearing the event and reading the index, at every offset."""
    for delay in range(0, 160, 3):
        first = host.send(MessageKind.PING)
        host.machine.run(delay)
        second = host.send(MessageKind.PING)
        assert host.receive(limit=3_000)["request_id"] == first
        assert host.receive(limit=3_000)["request_id"] == second


def test_a_doorbell_rung_while_another_is_served_is_not_lost(host: Host) -> None:
    a, b = host.create(0), host.create(1)
    for i, delay in enumerate(range(0, 400, 7), start=1):
        a.signal(i)
        a.ring_doorbell()
        host.machine.run(delay)
        b.signal(i)
        b.ring_doorbell()
        a.reach(i, limit=3_000)
        b.reach(i, limit=3_000)


def test_the_mailbox_interrupt_follows_each_answer(host: Host) -> None:
    host.machine.run(100)
    before = host.read("vector_sent", 0)
    for _ in range(5):
        host.call(MessageKind.PING)
    host.machine.run(100)
    assert host.read("vector_sent", 0) == before + 5


def seeds() -> list[int]:
    given = os.environ.get("GLASSNPU_SEED")
    return [int(given)] if given else list(range(4))


@pytest.mark.parametrize("seed", seeds())
def test_fuzz(host: Host, seed: int) -> None:
    """Random messages: each gets one answer with its own id, and the server lives."""
    print(f"GLASSNPU_SEED={seed}")
    rng = random.Random(seed)
    answers: dict[int, int] = {}
    for request_id in range(1_000, 1_060):
        kind = rng.choice(list(MessageKind))
        fields: dict[str, int] = {}
        if kind is MessageKind.CREATE_QUEUE:
            fields = host.create_fields(rng.randrange(20))
        elif "queue" in MESSAGES[kind].fields:
            fields = {"queue": rng.randrange(20)}
        message = MESSAGES[kind].pack(fields, kind=kind, request_id=request_id)
        for _ in range(rng.choice([0, 0, 1, 3])):
            bit = rng.randrange(512)
            message ^= 0 if 32 <= bit < 64 else 1 << bit
        host.send_raw(message)
        response = RESPONSE_PLAIN.unpack(host.receive_raw())
        assert response["request_id"] == request_id
        assert response["kind"] == message & 0xFFFF
        answers[request_id] = response["status"]
        if message & 0xFFFF not in list(MessageKind):
            assert response["status"] == Status.BAD_MESSAGE
    assert len(answers) == 60
    assert {Status.OK, Status.BAD_MESSAGE} <= {Status(status) for status in answers.values()}
    assert host.call(MessageKind.PING)["status"] == Status.OK
