"""Fixtures: the model machine and the kernel driver on it."""

from collections.abc import Iterator

import pytest

from driver.kmd.device import KernelDriver
from driver.kmd.session import Session
from driver.umd.client import Client
from firmware.main import main
from tb.models.device import ModelMachine


@pytest.fixture
def machine() -> ModelMachine:
    """A freshly powered machine."""
    return ModelMachine(main)


@pytest.fixture
def kmd(machine: ModelMachine) -> Iterator[KernelDriver]:
    """The kernel driver, booted."""
    driver = KernelDriver(machine.bus)
    yield driver
    driver.close()


@pytest.fixture
def client(kmd: KernelDriver, machine: ModelMachine) -> Client:
    """A session's client."""
    return Client(Session(kmd), machine.bus)
