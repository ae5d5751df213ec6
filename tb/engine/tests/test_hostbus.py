"""The host's bus refuses operating-system threads."""

from collections.abc import Callable
from threading import Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from abi.status import Side
from driver.bus import Region
from driver.errors import HostThreadError
from tb.engine.hostbus import HostBus
from tb.engine.hostmem import HostMemory

CALLS: dict[str, Callable[[HostBus], object]] = {
    "read": lambda bus: bus.read(Region.BAR0, 0),
    "write": lambda bus: bus.write(Region.BAR0, 0, 1),
    "store": lambda bus: bus.store(4096, bytes(8)),
    "load": lambda bus: bus.load(4096, 8),
    "barrier": lambda bus: bus.barrier(),
    "wait_interrupt": lambda bus: bus.wait_interrupt(1, 100),
}


def bus_that_notes(touched: list[str]) -> HostBus:
    """A bus over a scheduler that notes what it is asked for."""

    def note(name: str, answer: object = None) -> Callable[..., object]:
        def noted(*_arguments: object, **_named: object) -> object:
            touched.append(name)
            return answer

        return noted

    actors: Any = SimpleNamespace(
        clockwork=SimpleNamespace(now=lambda: 0),
        transact=note("transact", (0, 5)),
        preempt=note("preempt"),
        sleep=note("sleep"),
        wait_messages=note("wait_messages", 0),
        unsettled=False,
    )
    return HostBus(actors, HostMemory(np.zeros(4 * 4096, np.uint8)), seed=1)


@pytest.mark.parametrize("name", CALLS)
def test_an_operating_system_thread_is_told_how_to_start_a_host_thread(name: str) -> None:
    touched: list[str] = []
    bus = bus_that_notes(touched)
    caught: list[BaseException] = []

    def work() -> None:
        try:
            CALLS[name](bus)
        except BaseException as error:
            caught.append(error)

    thread = Thread(target=work, name="mine")
    thread.start()
    thread.join()
    (error,) = caught
    assert isinstance(error, HostThreadError)
    assert error.side is Side.HOST
    assert "not from the operating-system thread 'mine'" in str(error)
    assert "current_machine().actors.spawn(name, function)" in str(error)
    assert touched == [], "nothing was done"
    CALLS[name](bus)
    assert touched, "the thread that made the bus may call it"
