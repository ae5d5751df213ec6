"""Named register accessors over a bus, derived from the maps in `abi`."""

from collections.abc import Callable, Iterator
from functools import partial

from abi.config_space import CONFIG_SPACE
from abi.doorbell import DOORBELL_PAGE
from abi.register import Place, RegisterMap
from abi.registers_host import BAR0
from driver.bus import Bus, Region

__all__ = ["RegisterAccess", "RegisterSpace", "Registers"]


class RegisterAccess:
    """A register of the device; `access[i]` is element i of an array of registers.

    `read()` gives the 64-bit word (for a register with one field: its value) and adds nothing to
    the cost of `Bus.read`; `write(word)` writes it.
    """

    __slots__ = ("_elements", "_places", "name", "read", "register", "write")

    def __init__(self, bus: Bus, region: Region, place: Place, base: int, index: int = 0) -> None:
        offset = base + place.address(index)
        self.name = place.name
        self.register = place.register
        self.read: Callable[[], int] = partial(bus.read, region, offset, 8)
        self.write: Callable[[int], None] = partial(bus.write, region, offset)
        self._places = {
            name: (place.register.offset_of(name), (1 << field.width) - 1)
            for name, field in place.register.fields.items()
        }
        self._elements: tuple[RegisterAccess, ...] = (self,)
        if index == 0 and place.count > 1:
            others = (RegisterAccess(bus, region, place, base, i) for i in range(1, place.count))
            self._elements = (self, *others)

    def __getitem__(self, index: int) -> "RegisterAccess":
        return self._elements[index]

    def __len__(self) -> int:
        return len(self._elements)

    def __iter__(self) -> Iterator["RegisterAccess"]:
        return iter(self._elements)

    def fields(self) -> dict[str, int]:
        """Read the register and give its fields by name."""
        return self.register.unpack(self.read())

    def field(self, name: str) -> int:
        """Read the register and give one (unsigned) field."""
        offset, mask = self._places[name]
        return (self.read() >> offset) & mask

    def set(self, **fields: int) -> None:
        """Write the register; fields not named take their reset value."""
        self.write(self.register.pack(fields))

    def update(self, **fields: int) -> None:
        """Read, change the named fields, write."""
        self.write(self.register.pack({**self.fields(), **fields}))


class RegisterSpace:
    """The registers of one map as attributes: `bar0.time.read()`, `bar0.dma_state[3].fields()`."""

    def __init__(self, bus: Bus, region: Region, register_map: RegisterMap, base: int = 0) -> None:
        self._name = register_map.name
        for place in register_map:
            self.__dict__[place.name] = RegisterAccess(bus, region, place, base)

    def __getattr__(self, name: str) -> RegisterAccess:
        raise AttributeError(f"{self._name} has no register {name!r}")


class Registers:
    """All registers of the function that the host sees."""

    def __init__(self, bus: Bus) -> None:
        self.config = RegisterSpace(bus, Region.CONFIG, CONFIG_SPACE)
        self.bar0 = RegisterSpace(bus, Region.BAR0, BAR0)
        self._bus = bus

    def doorbell_page(self, queue: int) -> RegisterSpace:
        """The doorbell page of a queue (BAR2)."""
        return RegisterSpace(self._bus, Region.BAR2, DOORBELL_PAGE, queue * DOORBELL_PAGE.nbytes)
