"""One inference, followed in its trace from the API call to the wake-up."""

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from abi.packet import PacketOpcode

SCRIPT = """\
from runtime import Device
from tb.fullstack.inference import infer

device = Device()
infer(device)
device.bus.wait_interrupt(0, device.bus.now() + 1000)  # the acknowledgement of the last message
"""

COMMAND = "from tb.cli import main; main()"
REPOSITORY = Path(__file__).resolve().parents[2]

Event = dict[str, Any]


class Trace:
    """A Chrome trace, by process and track."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.other = content["otherData"]
        self.events: list[Event] = []
        names: dict[int, str] = {}
        processes: dict[int, str] = {}
        for event in content["traceEvents"]:
            if event["name"] == "process_name":
                processes[event["pid"]] = event["args"]["name"].split()[1]
            elif event["name"] == "thread_name":
                names[event["tid"]] = event["args"]["name"]
            else:
                start = event["args"]["cycle"]
                place = f"{processes[event['pid']]}/{names[event['tid']]}"
                end = start + event["args"].get("cycles", 0)
                self.events.append({**event["args"], "place": place, "name": event["name"]})
                self.events[-1].update(start=start, end=end)

    def at(self, place: str, name: str | None = None) -> list[Event]:
        """Events of a track, in the order of time."""
        found = [e for e in self.events if e["place"] == place and name in (None, e["name"])]
        return sorted(found, key=lambda e: e["start"])


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """The trace that `glassnpu trace` writes of one inference."""
    folder = tmp_path_factory.mktemp("trace")
    script, output = folder / "script.py", folder / "trace.json"
    script.write_text(SCRIPT)
    words = [sys.executable, "-c", COMMAND, "trace", str(script), "-o", str(output)]
    subprocess.run(words, check=True, timeout=600, cwd=REPOSITORY)
    return Trace(json.loads(output.read_text()))


def test_nothing_is_dropped_and_nothing_stays_open(trace: Trace) -> None:
    assert trace.other["dropped"] == 0
    assert not [event for event in trace.events if "unfinished" in event]
    assert all(0 <= e["start"] <= e["end"] <= trace.other["cycles"] for e in trace.events)


def test_one_inference_is_followed_from_call_to_wake(trace: Trace) -> None:
    rung = trace.at("host/doorbell", "ring")[-1]
    queue, packets = rung["queue"], rung["write_index"]
    # Host: the calls write the ring, then the doorbell rings once.
    calls = [e for e in trace.at("host/api", "gemm") if e["end"] <= rung["start"]][-2:]
    ring = [e for e in trace.at("host/ring") if e["start"] <= rung["start"]][-packets:]
    assert [event["index"] for event in ring] == list(range(packets))
    opcodes = [PacketOpcode[event["name"]] for event in ring]
    assert opcodes.count(PacketOpcode.KERNEL) == len(calls) == 2
    assert opcodes[-1] is PacketOpcode.SIGNAL
    for call, at in zip(calls, [i for i, o in enumerate(opcodes) if o == 7], strict=True):
        assert call["start"] <= ring[at]["start"] <= call["end"] <= rung["start"]
    # Device: doorbell and fetch, with the same queue and indices.
    (doorbell,) = trace.at(f"device/doorbell {queue}")
    assert doorbell["argument"] == packets
    fetches = trace.at(f"device/fetch {queue}")
    assert [event["argument"] for event in fetches] == list(range(packets))
    # Firmware: each packet in turn, each with its outcome.
    spans = [e for e in trace.at(f"firmware/queue {queue}") if e["name"].startswith("packet")]
    assert [span["packet"] for span in spans] == list(range(packets))
    assert [span["opcode"] for span in spans] == opcodes
    assert all((span["queue"], span["status"]) == (queue, 0) for span in spans)
    for before, after in itertools.pairwise(spans):
        assert before["end"] <= after["start"]
    for fetch, span in zip(fetches, spans, strict=True):
        assert fetch["start"] < span["start"]
    # Units: each packet's work lies within its span of the firmware.
    for opcode, span in zip(opcodes, spans, strict=True):
        unit = {
            PacketOpcode.COPY: "device/DMA channel 0",
            PacketOpcode.KERNEL: "device/core 0 pipe CUBE",
            PacketOpcode.SIGNAL: "device/completion 0",
        }[opcode]
        work = [e for e in trace.at(unit) if span["start"] <= e["start"] <= span["end"]]
        assert len(work) == 1, (opcode, work)
        assert work[0]["end"] <= span["end"]
        assert work[0]["status"] == 0
    # Back: completion, message, interrupt, wake.
    completion = trace.at("device/completion 0")[-1]
    interrupt = [e for e in trace.at("host/interrupt") if e["vector"] == 1 + queue][-1]
    message = trace.at(f"device/MSI-X vector {1 + queue}")[-1]
    wake = trace.at("host/wake")[-1]
    assert (wake["queue"], wake["value"]) == (queue, 1)
    chain = [
        calls[0]["start"],
        ring[0]["start"],
        rung["start"],
        doorbell["start"],
        fetches[0]["start"],
        spans[0]["start"],
        spans[-1]["start"],
        completion["start"],
        completion["end"],
        interrupt["start"],
        wake["start"],
    ]
    assert chain == sorted(chain), chain
    assert chain[2] < chain[3] < chain[4] < chain[5] < chain[6] < chain[7] < chain[8] < chain[9]
    # The message is on its way from its span's start; the span ends with the memory's answer.
    assert completion["end"] <= message["start"] <= completion["end"] + 20
    assert message["start"] < interrupt["start"] < message["start"] + 200
    assert interrupt["start"] <= message["end"] < message["start"] + 200
    assert (message["argument"], message["status"]) == (1 + queue, 0)
