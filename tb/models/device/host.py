"""The host side: config space, BAR0, the doorbell pages, and the mailbox between both sides."""

from collections.abc import Callable
from functools import partial

from abi.config_space import CONFIG_SPACE
from abi.geometry import CORES, DMA_CHANNELS, QUEUES, VECTORS
from abi.registers_core import CORE_COUNTERS
from abi.registers_host import (
    BAR0,
    BAR0_BYTES,
    CAPABILITIES,
    CORE_BUFFERS_2,
    HOST_WINDOW,
    IDENTITY,
    RESET_STATE,
)
from abi.version import ABI_MAJOR, ABI_MINOR, DEVICE_ID, VENDOR_ID
from tb.models.core import BF16_DEPTH
from tb.models.device.chip import Chip
from tb.models.device.registers import RegisterFile, SlaveError

__all__ = ["HostSide"]

MAILBOX_VECTOR = 0
DOORBELL_PAGE = 4096


class HostSide:
    """Registers that the host reaches. `run_firmware(bool)` follows CONTROL.firmware_run;
    `reset()` begins a chip reset."""

    def __init__(
        self, chip: Chip, run_firmware: Callable[[bool], None], reset: Callable[[], None]
    ) -> None:
        self._chip = chip
        self._run_firmware = run_firmware
        self._begin_reset = reset
        self.resetting = False
        self.isolated = False
        self.drained = False
        self.generation = 0
        self.config = RegisterFile(CONFIG_SPACE)
        self.bar0 = RegisterFile(BAR0)
        identity = CONFIG_SPACE["identity"].register
        self.config.words["identity"] = [identity.pack(vendor=VENDOR_ID, device=DEVICE_ID)]
        self.config.words["class"] = [0x120000 << 8 | 1]
        self.config.words["bar_size"] = [BAR0_BYTES | QUEUES * DOORBELL_PAGE << 32]
        self.config.on_write["identity"] = self._write_identity
        self._connect()
        self.reset()

    def reset(self) -> None:
        """Everything but config space and the counts of the reset itself."""
        chip, words = self._chip, self.bar0.words
        self.bar0.reset()
        words["identity"] = [IDENTITY.pack(abi_major=ABI_MAJOR, abi_minor=ABI_MINOR)]
        words["capabilities"] = [
            CAPABILITIES.pack(
                queues=QUEUES, dma_channels=DMA_CHANNELS, cores=CORES, vectors=VECTORS
            )
        ]
        words["memory"] = [len(chip.memory.hbm)]
        model = chip.core.cores[0].model.pipes
        sizes = [len(model.l1), len(model.l0a), len(model.l0b), len(model.l0c)]
        words["core_buffers"] = [sum(size << 16 * i for i, size in enumerate(sizes))]
        words["core_buffers_2"] = [
            CORE_BUFFERS_2.pack(
                bias_lines=len(model.bias), ub_lines=len(model.ub), bf16_depth=BF16_DEPTH
            )
        ]

    def _write_identity(self, _: int, word: int) -> None:
        fields = CONFIG_SPACE["identity"].register.unpack(word)
        self._chip.memory.bus_master = bool(fields["bus_master"])
        self._chip.interrupts.pump()

    @property
    def _memory_enabled(self) -> bool:
        word = self.config.words["identity"][0]
        return bool(CONFIG_SPACE["identity"].register.unpack(word)["memory_enable"])

    def _connect(self) -> None:
        chip, read, write = self._chip, self.bar0.on_read, self.bar0.on_write
        read["time"] = lambda _: chip.clock.now
        read["reset_state"] = lambda _: RESET_STATE.pack(
            busy=self.resetting, drained=self.drained, generation=self.generation
        )
        read["firmware_state"] = lambda _: chip.firmware.words["firmware_state"][0]
        read["heartbeat"] = lambda _: chip.firmware.words["heartbeat"][0]
        read["doorbell_refused"] = lambda _: chip.queues.refused
        read["vector_pending"] = lambda _: chip.interrupts.pending
        read["vector_sent"] = lambda i: chip.interrupts.sent[i]
        for name in ("request_read", "response_write", "response_word"):
            read[name] = partial(self._word, chip.firmware, name)
        for name in chip.memory.counters:
            read[name] = partial(self._memory_counter, name)
        for name in ("doorbell", "fetched", "consumed", "state"):
            read[f"queue_{name}"] = getattr(chip.queues, f"read_{name}")
        for name in ("state", "bytes", "cycles"):
            read[f"dma_{name}"] = getattr(chip.dma, f"read_{name}")
        for name in ("state", "fault_address", "fault_block", "blocks", "retired"):
            read[f"core_{name}"] = getattr(chip.core, f"read_{name}")
        for name in CORE_COUNTERS:
            read[name] = partial(chip.core.read_counter, name)
        for name in ("request_write", "response_read", "request_word"):
            chip.firmware.on_read[name] = partial(self._word, self.bar0, name)
        write["control"] = lambda _, word: self._run_firmware(bool(word & 1))
        write["reset"] = lambda _, word: self._write_reset(word)
        write["host_window"] = self._write_window
        write["request_write"] = lambda *_: chip.event("mailbox")
        write["vector_address"] = lambda i, word: chip.interrupts.address.__setitem__(i, word)
        write["vector_data"] = lambda i, word: chip.interrupts.set_vector(
            i, word & 0xFFFF_FFFF, bool(word >> 32)
        )
        chip.firmware.on_write["response_write"] = lambda *_: chip.interrupts.send(MAILBOX_VECTOR)

    @staticmethod
    def _word(registers: RegisterFile, name: str, index: int) -> int:
        return registers.words[name][index]

    def _memory_counter(self, name: str, _: int) -> int:
        return self._chip.memory.counters[name]

    def _write_reset(self, word: int) -> None:
        if self.resetting:
            raise SlaveError
        if word & 1:
            self._begin_reset()

    def _write_window(self, _: int, word: int) -> None:
        fields = HOST_WINDOW.unpack(word)
        self._chip.memory.grant(fields["base"], fields["limit"])

    def ring(self, offset: int, value: int, strobe: int) -> None:
        """A write to BAR2.

        Raises:
            SlaveError: it is refused; during a reset all are.
        """
        if self.resetting:
            raise SlaveError
        self._chip.queues.ring(offset, value, strobe)

    def check_open(self) -> None:
        """BARs answer only with memory_enable, and not in the middle of a reset.

        Raises:
            SlaveError: they do not.
        """
        if not self._memory_enabled or self.isolated:
            raise SlaveError
