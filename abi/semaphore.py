"""The timeline semaphore: the one completion primitive, and the status word that it carries."""

from abi.record import Field, Owner, Record, reserved
from abi.status import Engine, Status

__all__ = ["SEMAPHORE", "STATUS_WORD"]

HW, FW, UMD, KMD = Owner.HW, Owner.FW, Owner.UMD, Owner.KMD

STATUS_WORD = Record(
    "Status word",
    "Who failed, how, and at which packet. Zero means success.",
    Field("status", Status, FW, UMD, UMD, "Status code.", bits=8),
    Field("engine", Engine, FW, UMD, UMD, "Unit that detected the fault.", bits=8),
    Field("instance", 8, FW, UMD, UMD, "Number of that unit: DMA channel, core, queue."),
    Field("queue", 8, FW, UMD, UMD, "Queue whose packet failed."),
    Field("packet", 32, FW, UMD, UMD, "Low 32 bits of the failed packet's ring index."),
    bits=64,
)

SEMAPHORE = Record(
    "Timeline semaphore",
    "One 64-byte line in host memory or HBM. `timestamp` and `status` are written first, `value` "
    "behind their write response.",
    Field("value", 64, HW, UMD, UMD, "Only grows; work with a smaller or equal value is done."),
    Field("timestamp", 64, HW, UMD, UMD, "Device time of the signal, in cycles."),
    Field("status", 64, HW, UMD, UMD, "Status word; the first failure of the timeline stays."),
    reserved("reserved", 320),
    bits=512,
)
