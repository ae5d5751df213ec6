"""AXI4 signatures, with the signal names of the AMBA AXI specification (ARM IHI 0022)."""

from enum import IntEnum

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Axi4", "Burst", "Response"]


class Burst(IntEnum):
    """AxBURST."""

    FIXED = 0
    INCR = 1
    WRAP = 2


class Response(IntEnum):
    """xRESP. Bit 1 tells an error."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


class Axi4(wiring.Signature):
    """AXI4 from the manager's view: awaddr, awvalid, …; names are as cocotbext-axi finds them.

    Args:
        data_width: bits; 8 to 1024, a power of two.
        address_width: bits.
        id_width: bits.

    Members: the five channels. AxLEN is beats - 1, AxSIZE is log2 of the bytes of a beat. Locks,
    caches, protection, QoS, regions and user signals are not used.

    Raises:
        ValueError: a width is out of range.
    """

    def __init__(self, *, data_width: int, address_width: int, id_width: int = 4) -> None:
        if not 8 <= data_width <= 1024 or data_width & (data_width - 1):
            raise ValueError(
                f"data_width must be a power of two from 8 to 1024, not {data_width!r}"
            )
        if not 1 <= address_width <= 64:
            raise ValueError(f"address_width must be from 1 to 64, not {address_width!r}")
        if id_width < 1:
            raise ValueError(f"id_width must be at least 1, not {id_width!r}")
        self.data_width = data_width
        self.address_width = address_width
        self.id_width = id_width
        address = {"id": id_width, "addr": address_width, "len": 8, "size": 3, "burst": 2}
        super().__init__(
            {
                **{f"aw{name}": Out(width) for name, width in address.items()},
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(data_width),
                "wstrb": Out(data_width // 8),
                "wlast": Out(1),
                "wvalid": Out(1),
                "wready": In(1),
                "bid": In(id_width),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                **{f"ar{name}": Out(width) for name, width in address.items()},
                "arvalid": Out(1),
                "arready": In(1),
                "rid": In(id_width),
                "rdata": In(data_width),
                "rresp": In(2),
                "rlast": In(1),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )
