"""What a simulator process is told to run."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Job"]


@dataclass(frozen=True)
class Job:
    """What to run inside the simulator.

    Attributes: `target` and `firmware` name callables as "module:function" (the target gets
    `args`, JSON values, and its `int` result is the exit code; the firmware gets its port); `seed`
    of all random choices; `tracing` (collect trace records); `drain_window` (cycles a store may
    stay in the CPU's store buffer); `host_memory` (path of the `host_dram` instance); `agents`
    (turn the clock from Python: always so on Icarus; on Verilator for comparison).
    """

    target: str
    args: list[Any] = field(default_factory=list)
    firmware: str | None = None
    seed: int = 0
    tracing: bool = True
    drain_window: int = 512
    host_memory: str = "top.dram"
    agents: bool = False
    host_dram_module: str | None = None

    def to_json(self) -> str:
        """The text that travels in the environment."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """The job back from its text."""
        return cls(**json.loads(text))
