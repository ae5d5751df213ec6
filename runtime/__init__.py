"""What a user imports: devices, memory, streams, events and kernels.

from runtime import Device, gemm

with Device() as device:
    a, b = device.array(x), device.array(y)
    print(gemm(a, b).numpy())
"""

from driver.errors import (
    DependencyFailedError,
    DeviceClosedError,
    DeviceError,
    DeviceHangError,
    DoorbellLostError,
    FirmwareCrashError,
    FirmwareError,
    FirmwareStallError,
    HostThreadError,
    InterruptLostError,
    InvalidArgumentError,
    KernelTimeoutError,
    MailboxTimeoutError,
    NotFinishedError,
    NpuError,
    OutOfMemoryError,
    ProbeError,
    RingFullError,
    StaleHandleError,
    SubmissionError,
    VersionMismatchError,
    WaitTimeoutError,
)
from driver.kmd.probe import DeviceProperties
from runtime.device import Device, MemoryInfo
from runtime.event import Event
from runtime.kernels.tiling import padded_macs
from runtime.memory import DeviceArray, DeviceBuffer, PinnedArray
from runtime.module import Kernel, Module
from runtime.operations.elements import requantise
from runtime.operations.matrix import gemm
from runtime.stream import Stream

__all__ = [
    "DependencyFailedError",
    "Device",
    "DeviceArray",
    "DeviceBuffer",
    "DeviceClosedError",
    "DeviceError",
    "DeviceHangError",
    "DeviceProperties",
    "DoorbellLostError",
    "Event",
    "FirmwareCrashError",
    "FirmwareError",
    "FirmwareStallError",
    "HostThreadError",
    "InterruptLostError",
    "InvalidArgumentError",
    "Kernel",
    "KernelTimeoutError",
    "MailboxTimeoutError",
    "MemoryInfo",
    "Module",
    "NotFinishedError",
    "NpuError",
    "OutOfMemoryError",
    "PinnedArray",
    "ProbeError",
    "RingFullError",
    "StaleHandleError",
    "Stream",
    "SubmissionError",
    "VersionMismatchError",
    "WaitTimeoutError",
    "gemm",
    "padded_macs",
    "requantise",
]
