"""Register-level transactions by hand: probe the chip, boot its firmware, look around.

    glassnpu run examples/registers.py

Each access below is a real bus transaction; device time moves only during one.
"""

from abi.address import MSI_BUS_ADDRESS, PAGE_BYTES
from abi.mailbox import HANDSHAKE, RESPONSE_HANDSHAKE, FirmwarePhase, MessageKind
from abi.version import ABI_MAJOR, ABI_MINOR
from driver.bus import Bus, BusError, Region, attached_bus
from driver.registers import Registers

BOOT_CYCLES = 400_000


def probe(regs: Registers) -> None:
    """Make the function answer, and see what it is."""
    config = regs.config.identity.fields()
    print(f"config space: vendor {config['vendor']:#06x}, device {config['device']:#06x}")
    regs.config.identity.update(memory_enable=1, bus_master=1)
    identity = regs.bar0.identity.fields()
    print(
        f"BAR0: magic {identity['magic']:#x}, ABI {identity['abi_major']}.{identity['abi_minor']}"
    )
    print("chip:", regs.bar0.capabilities.fields())


def refusals(bus: Bus) -> None:
    """What the chip says no to: each of these is answered with SLVERR."""
    for what, access in (
        ("a write to a read-only register", lambda: bus.write(Region.BAR0, 0x000, 1)),
        ("a read without a register", lambda: bus.read(Region.BAR0, 0x3FF8)),
        ("a 32-bit doorbell", lambda: bus.write(Region.BAR2, 0, 1, 4)),
    ):
        try:
            access()
        except BusError as error:
            print(f"{what}: {error}")
        else:
            raise SystemExit(f"{what} was accepted")


def boot(bus: Bus, regs: Registers) -> None:
    """Release the firmware and wait, in device cycles, until it asks for the handshake."""
    regs.bar0.vector_address[0].set(address=MSI_BUS_ADDRESS)
    regs.bar0.vector_data[0].set(data=0, masked=0)
    regs.bar0.control.set(firmware_run=1)
    deadline = bus.now() + BOOT_CYCLES
    while regs.bar0.firmware_state.field("phase") != FirmwarePhase.WAITING_FOR_HANDSHAKE:
        if bus.now() > deadline:
            raise SystemExit(f"the firmware did not boot in {BOOT_CYCLES} cycles")
    print(f"firmware is up at cycle {bus.now()}")


def handshake(bus: Bus, regs: Registers) -> None:
    """Write a message word by word, ring, sleep until the interrupt, read the answer."""
    message = HANDSHAKE.pack(
        kind=MessageKind.HANDSHAKE, request_id=1, abi_major=ABI_MAJOR, abi_minor=ABI_MINOR
    )
    for word in range(HANDSHAKE.nbytes // 8):
        regs.bar0.request_word[word].write(message >> 64 * word & (1 << 64) - 1)
    regs.bar0.request_write.write(1)
    if not bus.wait_interrupt(1 << 0, bus.now() + BOOT_CYCLES):
        raise SystemExit("no interrupt came")
    words = [regs.bar0.response_word[word].read() for word in range(8)]
    answer = RESPONSE_HANDSHAKE.unpack(sum(value << 64 * i for i, value in enumerate(words)))
    regs.bar0.response_read.write(1)
    print(f"handshake: status {answer['status']}, the firmware serves {answer['queues']} queues")


def main() -> None:
    """Run all of it."""
    bus = attached_bus()
    regs = Registers(bus)
    probe(regs)
    refusals(bus)
    page = bus.allocate_pages(1) // PAGE_BYTES
    regs.bar0.host_window.set(base=page, limit=page + 1)
    boot(bus, regs)
    handshake(bus, regs)
    before = bus.now()
    stamp = regs.bar0.time.read()
    print(f"TIME read {stamp}; the read took {bus.now() - before} cycles")


if __name__ == "__main__":
    main()
