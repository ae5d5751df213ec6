"""PCI config space of the function."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from abi.config_space import CONFIG_SPACE
from abi.doorbell import DOORBELL_PAGE
from abi.geometry import QUEUES
from abi.registers_host import BAR0_BYTES
from abi.version import DEVICE_ID, VENDOR_ID
from rtl.host.register_bank import RegisterBank
from rtl.host.register_bus import RegisterPort

__all__ = ["CLASS_CODE", "REVISION", "ConfigSpace"]

CLASS_CODE = 0x120000
"""Processing accelerator."""

REVISION = 1
"""Revision of the reference chip."""


class ConfigSpace(wiring.Component):
    """The registers of `CONFIG_SPACE`; only a power-on reset changes them back.

    Members:
        bus: RegisterPort, target; offsets in the config page.
        memory_enable: out; BARs answer.
        bus_master: out; the device may start host transactions.
        idle: no access on its way; a function of registers.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "bus": In(RegisterPort),
                "memory_enable": Out(1),
                "bus_master": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        identity = {"vendor": VENDOR_ID, "device": DEVICE_ID}
        m.submodules.bank = bank = RegisterBank(CONFIG_SPACE, resets={"identity": identity})
        connect(m, flipped(self.bus), bank.bus)
        constant = bank.member("class"), bank.member("bar_size")
        m.d.comb += [
            constant[0].revision.eq(REVISION),
            constant[0].class_code.eq(CLASS_CODE),
            constant[1].bar0.eq(BAR0_BYTES),
            constant[1].bar2.eq(QUEUES * DOORBELL_PAGE.nbytes),
            self.memory_enable.eq(bank.member("identity").memory_enable),
            self.bus_master.eq(bank.member("identity").bus_master),
            self.idle.eq(bank.idle),
        ]
        return m
