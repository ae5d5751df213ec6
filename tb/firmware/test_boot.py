"""Boot, handshake, version mismatch, restart, crash."""

import pytest

from abi.address import HBM_BASE
from abi.geometry import QUEUES
from abi.mailbox import FirmwarePhase, FirmwareTask, MessageKind, QueuePhase
from abi.packet import PacketOpcode
from abi.status import Engine, Status
from abi.version import ABI_MAJOR, ABI_MINOR
from firmware.port import PortError
from tb.firmware.host import Host
from tb.models.device import InjectedCrashError


def test_waits_for_the_handshake_and_then_runs() -> None:
    host = Host(boot=False)
    assert not host.machine.firmware_alive
    host.power_up()
    shown = host.read_fields("firmware_state")
    assert shown["phase"] == FirmwarePhase.WAITING_FOR_HANDSHAKE
    assert (shown["abi_major"], shown["abi_minor"]) == (ABI_MAJOR, ABI_MINOR)
    response = host.call(MessageKind.HANDSHAKE, **host.version)
    assert response["status"] == Status.OK
    assert (response["abi_major"], response["abi_minor"]) == (ABI_MAJOR, ABI_MINOR)
    assert response["queues"] == QUEUES
    assert host.phase is FirmwarePhase.RUNNING
    assert host.bus.now() < 5_000


def test_a_version_mismatch_names_the_firmwares_version() -> None:
    host = Host(boot=False)
    host.power_up()
    response = host.call(MessageKind.HANDSHAKE, abi_major=ABI_MAJOR + 1, abi_minor=7)
    assert response["status"] == Status.VERSION_MISMATCH
    assert (response["abi_major"], response["abi_minor"]) == (ABI_MAJOR, ABI_MINOR)
    assert host.phase is FirmwarePhase.WAITING_FOR_HANDSHAKE
    assert host.call(MessageKind.PING)["status"] == Status.BAD_MESSAGE
    assert host.call(MessageKind.HANDSHAKE, **host.version)["status"] == Status.OK
    assert host.call(MessageKind.PING)["status"] == Status.OK


def test_another_minor_version_is_accepted() -> None:
    host = Host(boot=False)
    host.power_up()
    response = host.call(MessageKind.HANDSHAKE, abi_major=ABI_MAJOR, abi_minor=ABI_MINOR + 9)
    assert response["status"] == Status.OK


@pytest.mark.parametrize("kind", [kind for kind in MessageKind if kind != MessageKind.HANDSHAKE])
def test_nothing_is_served_before_the_handshake(kind: MessageKind) -> None:
    host = Host(boot=False)
    host.power_up()
    assert host.call(kind)["status"] == Status.BAD_MESSAGE
    assert host.machine.chip.queues.queues[0].enabled is False


def test_a_second_handshake_keeps_the_queues(host: Host) -> None:
    ring = host.create(3)
    assert host.call(MessageKind.HANDSHAKE, **host.version)["status"] == Status.OK
    ring.signal(1)
    ring.ring_doorbell()
    ring.reach(1)


def test_heartbeat_beats_on_while_idle(host: Host) -> None:
    before = host.read("heartbeat")
    host.machine.run(host.config.heartbeat_interval + 200)
    between = host.read("heartbeat")
    assert between > before
    host.machine.run(host.config.heartbeat_interval + 200)
    assert host.read("heartbeat") > between
    # Idle, it costs next to nothing: no busy polling.
    accesses = host.machine.port.accesses
    host.machine.run(10 * host.config.heartbeat_interval)
    assert host.machine.port.accesses - accesses < 100


def test_the_state_is_written_on_a_change_only(host: Host) -> None:
    host.machine.run(2_000)
    written: list[int] = []
    host.machine.chip.firmware.on_write["firmware_state"] = lambda _, word: written.append(word)
    host.machine.run(5 * host.config.heartbeat_interval)
    assert written == []
    assert host.call(MessageKind.PING)["status"] == Status.OK
    host.machine.run(1_000)
    assert 0 < len(written) <= 2


def test_heartbeat_is_not_written_more_often_than_its_spacing(host: Host) -> None:
    ring = host.create(0)
    for _ in range(60):
        ring.put(PacketOpcode.NOP)
    seen = set[int]()
    ring.ring_doorbell()
    began = host.bus.now()
    while ring.query()["completed"] < 60:
        seen.add(host.machine.chip.firmware.words["heartbeat"][0])
    elapsed = host.bus.now() - began
    assert len(seen) <= elapsed // host.config.heartbeat_spacing + 2


def test_a_stalled_firmware_beats_no_more_and_then_goes_on(host: Host) -> None:
    ring = host.create(0)
    host.machine.faults.stall_firmware()
    ring.signal(1)
    ring.ring_doorbell()
    before = host.read("heartbeat")
    host.machine.run(5 * host.config.heartbeat_interval)
    assert host.read("heartbeat") == before
    assert ring.value() == 0
    host.machine.faults.release_firmware()
    ring.reach(1, limit=5_000)
    assert host.read("heartbeat") > before


def test_shows_what_it_works_at_and_then_that_it_sleeps(host: Host) -> None:
    ring = host.create(5)
    host.machine.run(2_000)
    assert host.read_fields("firmware_state")["task"] == FirmwareTask.SLEEPING
    ring.put(PacketOpcode.NOP)
    ring.ring_doorbell()
    seen = set[tuple[int, int]]()

    def done() -> bool:
        shown = host.read_fields("firmware_state")
        seen.add((shown["task"], shown["queue"]))
        return bool(host.notes("end", queue=5))

    host.until(done, 5_000)
    host.machine.run(500)
    assert (FirmwareTask.SCHEDULING, 5) in seen
    assert host.read_fields("firmware_state")["task"] == FirmwareTask.SLEEPING


def test_a_crash_is_shown_and_raised() -> None:
    host = Host()
    host.create(2)
    host.machine.faults.crash_firmware()
    host.machine.run(2 * host.config.heartbeat_interval)
    assert isinstance(host.machine.firmware_error, InjectedCrashError)
    assert not host.machine.firmware_alive
    shown = host.read_fields("firmware_state")
    assert shown["phase"] == FirmwarePhase.CRASHED
    assert shown["code"] == Status.FIRMWARE_CRASH
    assert (shown["abi_major"], shown["abi_minor"]) == (ABI_MAJOR, ABI_MINOR)
    before = host.read("heartbeat")
    host.machine.run(2 * host.config.heartbeat_interval)
    assert host.read("heartbeat") == before
    assert host.sram.crash is not None
    assert host.sram.crash.queues == 1 << 2
    assert "InjectedCrash" in host.sram.crash.error


def test_a_refused_register_access_is_a_crash_with_its_own_code() -> None:
    host = Host()
    ring = host.create(0)
    # The cores say that they are busy although the firmware did not start it.
    host.machine.run(10_000)
    for core in host.machine.chip.core.cores:
        core.scrubbing = True
    ring.put(PacketOpcode.KERNEL, code=HBM_BASE, code_bytes=4, grid_x=1, grid_y=1, grid_z=1)
    ring.ring_doorbell()
    host.machine.run(5_000)
    assert isinstance(host.machine.firmware_error, PortError)
    assert host.machine.firmware_error.write
    assert host.read_fields("firmware_state")["code"] == Status.BUS_ERROR


def test_restart_without_a_chip_reset_quiesces_what_runs() -> None:
    host = Host()
    ring = host.create(1)
    host.machine.faults.hang_dma(0b1111)
    ring.copy(HBM_BASE, HBM_BASE + 4096, 64)
    ring.ring_doorbell()
    host.until(lambda: bool(host.notes("dispatch", queue=1)), 5_000)
    host.machine.faults.crash_firmware()
    host.machine.run(2 * host.config.heartbeat_interval)
    assert host.machine.chip.dma.channels[0].busy
    host.write("control", firmware_run=0)
    host.write("control", firmware_run=1)
    host.until(lambda: host.phase is FirmwarePhase.WAITING_FOR_HANDSHAKE, 20_000)
    assert host.sram.boots == 2
    assert host.notes("boot", boots=2, crashed=1)
    assert not host.machine.chip.dma.channels[0].busy
    assert host.machine.chip.dma.channels[0].status is Status.ABORTED
    assert not host.machine.chip.queues.queues[1].enabled
    # The mailbox's rings go on where they stood.
    assert host.call(MessageKind.HANDSHAKE, **host.version)["status"] == Status.OK
    assert host.query(1)["phase"] == QueuePhase.ABSENT
    host.machine.faults.hang_dma(0)
    again = host.create(1)
    again.copy(HBM_BASE, HBM_BASE + 4096, 64)
    again.signal(1)
    again.ring_doorbell()
    again.reach(1)
    assert again.status()["engine"] == Engine.NONE


def test_boot_fails_loudly_when_the_chip_does_not_get_quiet() -> None:
    host = Host()
    host.create(0).signal(1)
    host.machine.faults.hang_completion()
    host.rings[0].ring_doorbell()
    host.until(lambda: bool(host.notes("dispatch", queue=0)), 5_000)
    host.write("control", firmware_run=0)
    host.write("control", firmware_run=1)
    host.machine.run(host.config.quiesce_limit + 50_000)
    assert isinstance(host.machine.firmware_error, TimeoutError)
    assert host.phase is FirmwarePhase.CRASHED


def test_after_a_chip_reset_everything_starts_anew() -> None:
    host = Host()
    host.create(0)
    host.write("reset", reset=1)
    host.machine.run(100)
    assert host.read_fields("reset_state") == {
        "busy": 0,
        "drained": 1,
        "unused": 0,
        "generation": 1,
    }
    assert host.phase is FirmwarePhase.OFF
    assert not host.machine.firmware_alive
    host.requests = host.responses = 0
    host.power_up()
    assert host.call(MessageKind.HANDSHAKE, **host.version)["status"] == Status.OK
    assert host.query(0)["phase"] == QueuePhase.ABSENT
