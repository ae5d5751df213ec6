"""Sizes of the buffers of a device's cores."""

from typing import TYPE_CHECKING

from runtime.compiler.allocate import CoreBuffers

if TYPE_CHECKING:
    from runtime.device import Device

__all__ = ["core_buffers"]


def core_buffers(device: "Device") -> CoreBuffers:
    """Lines of each buffer of a core."""
    info = device.info
    return CoreBuffers(
        l1=info.l1_lines,
        l0a=info.l0a_lines,
        l0b=info.l0b_lines,
        l0c=info.l0c_lines,
        bias=info.bias_lines,
        ub=info.ub_lines,
    )
