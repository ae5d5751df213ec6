"""Fixtures of the firmware's tests."""

from collections.abc import Iterator

import pytest

from tb.firmware.host import Host


@pytest.fixture
def host() -> Iterator[Host]:
    """A machine with booted firmware, handshake done; the test must not have crashed it."""
    host = Host()
    yield host
    assert host.machine.firmware_error is None
    assert host.machine.firmware_alive
