"""A functional, cycle-approximate model of the device, with the abi's registers on both ports."""

from tb.models.device.machine import FaultHooks, InjectedCrashError, ModelMachine, ModelPort, Note
from tb.models.device.timing import ModelTiming

__all__ = ["FaultHooks", "InjectedCrashError", "ModelMachine", "ModelPort", "ModelTiming", "Note"]
