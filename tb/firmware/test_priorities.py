"""Priority bands, turns inside a band, and the share that keeps anyone from starving."""

from itertools import pairwise

import pytest

from abi.address import HBM_BASE
from abi.mailbox import MessageKind
from abi.packet import PacketOpcode
from abi.status import Engine
from firmware.arbiter import Arbiter
from firmware.config import FirmwareConfig
from firmware.state import QueueState
from tb.firmware.host import Host, Ring

SOURCE, TARGET = HBM_BASE + 0x1000, HBM_BASE + 0x9000


def queue(number: int, priority: int = 0, since: int = 0) -> QueueState:
    return QueueState(
        number=number,
        priority=priority,
        vector=1,
        pasid=0,
        task_timeout=1,
        block_timeout=1,
        since=since,
    )


def test_a_band_takes_turns() -> None:
    arbiter = Arbiter(8)
    queues = [queue(number) for number in (1, 4, 9)]
    picks = [arbiter.pick(queues).number for _ in range(7)]
    assert picks == [1, 4, 9, 1, 4, 9, 1]


def test_turns_survive_candidates_that_come_and_go() -> None:
    arbiter = Arbiter(8)
    a, b, c = queue(0), queue(1), queue(2)
    assert arbiter.pick([a, b, c]) is a
    assert arbiter.pick([a, c]) is c
    assert arbiter.pick([a, b, c]) is a
    assert arbiter.pick([a, b, c]) is b


@pytest.mark.parametrize("share", [2, 3, 8])
def test_one_of_share_contended_grants_goes_to_who_waits_longest(share: int) -> None:
    arbiter = Arbiter(share)
    high = [queue(number, priority=0, since=100 + number) for number in range(3)]
    low = queue(8, priority=3, since=5)
    picks = [arbiter.pick([*high, low]).number for _ in range(4 * share)]
    assert [i for i, number in enumerate(picks, 1) if number == 8] == [
        share * i for i in range(1, 5)
    ]


def test_uncontended_grants_do_not_use_up_the_share() -> None:
    arbiter = Arbiter(4)
    high, low = queue(0, priority=1, since=9), queue(1, priority=2, since=1)
    for _ in range(3):
        assert arbiter.pick([high, low]) is high
    for _ in range(50):
        assert arbiter.pick([high]) is high
    assert arbiter.pick([high, low]) is low


def fill_ring(ring: Ring, count: int, row_bytes: int = 4096) -> None:
    for _ in range(count):
        ring.copy(SOURCE, TARGET + 0x10000 * ring.number, row_bytes, 8)
    ring.signal(count)
    ring.ring_doorbell()


def leave_one_channel(host: Host) -> None:
    """Queues 12 to 15 hold all channels; channel 0 comes back with `hang_dma(0b1110)`."""
    host.machine.faults.hang_dma(0b1111)
    for number in range(12, 16):
        blocker = host.create(number)
        blocker.copy(SOURCE, TARGET, 64)
        blocker.ring_doorbell()
    host.until(lambda: len(host.notes("dispatch", engine=Engine.DMA)) == 4, 10_000)


def grants_of_channels(host: Host) -> list[int]:
    """Queues that got a channel, without the holders."""
    return [n.fields["queue"] for n in host.notes("dispatch", engine=Engine.DMA)[4:]]


def test_a_higher_band_goes_first() -> None:
    host = Host()
    leave_one_channel(host)
    rings = [host.create(i, priority=3 - i) for i in range(4)]
    for ring in rings:
        fill_ring(ring, 1)
    host.machine.run(10_000)
    host.machine.faults.hang_dma(0b1110)
    for ring in rings:
        ring.reach(1)
    assert grants_of_channels(host) == [3, 2, 1, 0]


@pytest.mark.parametrize("share", [4, 8])
def test_the_lowest_band_does_not_starve_on_the_channels(share: int) -> None:
    host = Host(config=FirmwareConfig(starvation_share=share))
    leave_one_channel(host)
    busy = [host.create(i, priority=0) for i in range(4)]
    low = host.create(8, priority=3)
    for ring in [*busy, low]:
        fill_ring(ring, 60)
    host.machine.run(10_000)
    host.machine.faults.hang_dma(0b1110)
    host.until(lambda: len(grants_of_channels(host)) >= 160, 3_000_000)
    grants = grants_of_channels(host)[:160]
    at = [i for i, number in enumerate(grants) if number == 8]
    # Its share and not more; right after its own copy it does not compete, so one grant is not
    # contended. The others share the rest.
    assert 160 // (share + 2) - 1 <= len(at) <= 160 // share + 1
    assert max(b - a for a, b in pairwise(at)) <= 2 * share + 1
    counts = [grants.count(i) for i in range(4)]
    assert max(counts) - min(counts) <= 3


def test_the_lowest_band_does_not_starve_on_the_processor() -> None:
    host = Host()
    busy = [host.create(i, priority=0, depth_log2=8) for i in range(6)]
    low = host.create(8, priority=3, depth_log2=8)
    for ring in [*busy, low]:
        for _ in range(120):
            ring.put(PacketOpcode.NOP)
        ring.signal(1)
        ring.ring_doorbell()
    host.until(lambda: len(host.notes("end")) >= 600, 1_000_000)
    done = [len(host.notes("end", queue=ring.number)) for ring in [*busy, low]]
    # Six busy queues share 7/8 of the grants evenly; the low one has 1/8.
    assert done[6] >= 600 // 10
    assert max(done[:6]) - min(done[:6]) <= 10
    assert done[6] < min(done[:6])


def test_a_high_band_queue_overtakes_a_backlog() -> None:
    host = Host()
    low = [host.create(i, priority=3, depth_log2=6) for i in range(4)]
    high = host.create(9, priority=0)
    for ring in low:
        for _ in range(60):
            ring.put(PacketOpcode.NOP)
        ring.signal(1)
        ring.ring_doorbell()
    host.machine.run(500)
    high.signal(1)
    high.ring_doorbell()
    took = high.reach(1)
    assert len(host.notes("end")) < 40
    assert took < 4_000


def test_requests_and_packets_do_not_starve_each_other(host: Host) -> None:
    ring = host.create(0, depth_log2=8)
    for _ in range(200):
        ring.put(PacketOpcode.NOP)
    ring.signal(1)
    ring.ring_doorbell()
    answered = 0
    while ring.value() == 0:
        for _ in range(8):
            host.send(MessageKind.PING)
        for _ in range(8):
            assert host.receive(limit=20_000)["status"] == 0
        answered += 8
        assert answered < 2_000
    assert answered >= 8
