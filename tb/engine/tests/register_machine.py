"""A small machine top for tests: registers with random latency, messages, firmware lines, memory.

Both AXI4-Lite slaves reach one register file of 16 words. Word 0 of the file on the fw side ends
the firmware event; word 15 of the host side releases the firmware. Address bit 12 answers with
SLVERR, bit 13 never answers. Word 14 of the host side turns on the message source.
"""

from typing import Any

from amaranth import Array, Cat, ClockSignal, Const, Instance, Module, Signal
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tb.engine.machine_build import HOST_DRAM

__all__ = ["DRAM_LINES", "SOURCES", "RegisterMachine"]

DRAM_LINES = 1024
SOURCES = (HOST_DRAM,)


def axi_lite(prefix: str, address_bits: int) -> dict[str, Any]:
    """Members of an AXI4-Lite slave with 64-bit data, flattened with `__`."""
    inputs = {"awaddr": address_bits, "awvalid": 1, "wdata": 64, "wstrb": 8, "wvalid": 1}
    inputs |= {"bready": 1, "araddr": address_bits, "arvalid": 1, "rready": 1}
    outputs = {"awready": 1, "wready": 1, "bresp": 2, "bvalid": 1, "arready": 1, "rdata": 64}
    outputs |= {"rresp": 2, "rvalid": 1}
    return {
        **{f"{prefix}__{name}": In(width) for name, width in inputs.items()},
        **{f"{prefix}__{name}": Out(width) for name, width in outputs.items()},
    }


class RegisterMachine(wiring.Component):
    """The device under test of the engine.

    With `jitter`, ready and valid of the slaves wait for bits of an LFSR.
    """

    def __init__(self, *, jitter: bool = True) -> None:
        self.jitter = jitter
        lines = {"fw_event": Out(1), "fw_run": Out(1), "msi__valid": Out(1), "msi__vector": Out(5)}
        trace = {"trace__valid": Out(1), "trace__payload": Out(64)}
        super().__init__({**axi_lite("host", 28), **axi_lite("fw", 20), **lines, **trace})

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        lfsr = Signal(32, init=0xACE1_2345)
        tap = lfsr[0] ^ lfsr[10] ^ lfsr[30] ^ lfsr[31]
        m.d.sync += lfsr.eq(Cat(tap, lfsr[:-1]))
        words = Array(Signal(64, name=f"word_{i}") for i in range(16))
        cycle = Signal(32)
        m.d.sync += cycle.eq(cycle + 1)

        writes = []
        for number, prefix in enumerate(("host", "fw")):
            writes.append(self._slave(m, prefix, words, lfsr >> 3 * number))
        (host_write, host_word, host_data), (fw_write, fw_word, _) = writes

        event = Signal()
        m.d.comb += [self.fw_event.eq(event), self.fw_run.eq(words[15][0])]
        with m.If(host_write & (host_word == 1)):
            m.d.sync += event.eq(1)
        with m.Elif(fw_write & (fw_word == 0)):
            m.d.sync += event.eq(0)

        sends = (lfsr[4:9] == 0x15) & words[14][0]
        m.d.sync += [
            self.msi__valid.eq(sends),
            self.msi__vector.eq(lfsr[10:15]),
            self.trace__valid.eq(host_write | fw_write),
            self.trace__payload.eq(Cat(host_data[:16], host_word, fw_write, cycle)),
        ]

        # Writes of word 8 store the value's copies to the line of host memory in word 9.
        store = Signal()
        m.d.sync += store.eq(host_write & (host_word == 8))
        m.submodules.dram = Instance(
            "host_dram",
            p_LINES=DRAM_LINES,
            i_clk=ClockSignal(),
            i_rd_en=Const(1, 1),
            i_rd_line=words[10][:10],
            o_rd_data=(line := Signal(512)),
            i_wr_en=store,
            i_wr_line=words[9][:10],
            i_wr_data=Cat([words[8]] * 8),
            i_wr_strb=words[7],
        )
        m.d.sync += words[11].eq(line[:64])
        return m

    def _slave(
        self, m: Module, prefix: str, words: "Array[Signal]", noise: Value
    ) -> tuple[Signal, Signal, Signal]:
        """Returns (write strobe, word number, data) as of the write's edge."""

        def port(name: str) -> Any:
            return getattr(self, f"{prefix}__{name}")

        def luck(bit: int) -> Value:
            return noise[bit] if self.jitter else Const(1, 1)

        have_a, have_w = Signal(name=f"{prefix}_have_a"), Signal(name=f"{prefix}_have_w")
        address, data, strobe = Signal(20), Signal(64), Signal(8)
        did, word = Signal(name=f"{prefix}_did"), Signal(4)
        m.d.comb += [
            port("awready").eq(~have_a & luck(0)),
            port("wready").eq(~have_w & luck(1)),
            word.eq(address[3:7]),
        ]
        with m.If(port("awvalid") & port("awready")):
            m.d.sync += [have_a.eq(1), address.eq(port("awaddr"))]
        with m.If(port("wvalid") & port("wready")):
            m.d.sync += [have_w.eq(1), data.eq(port("wdata")), strobe.eq(port("wstrb"))]
        m.d.comb += did.eq(have_a & have_w & ~port("bvalid") & luck(2) & ~address[13])
        with m.If(did):
            m.d.sync += [have_a.eq(0), have_w.eq(0), port("bvalid").eq(1)]
            m.d.sync += port("bresp").eq(address[12] << 1)
            mask = Cat(bit.replicate(8) for bit in strobe)
            with m.If(~address[12]):
                m.d.sync += words[word].eq(words[word] & ~mask | data & mask)
        with m.Elif(port("bvalid") & port("bready")):
            m.d.sync += port("bvalid").eq(0)

        have_r, read = Signal(name=f"{prefix}_have_r"), Signal(20)
        m.d.comb += port("arready").eq(~have_r & ~port("rvalid") & luck(3))
        with m.If(port("arvalid") & port("arready")):
            m.d.sync += [have_r.eq(1), read.eq(port("araddr"))]
        with m.If(have_r & luck(4) & ~read[13]):
            m.d.sync += [have_r.eq(0), port("rvalid").eq(1), port("rresp").eq(read[12] << 1)]
            m.d.sync += port("rdata").eq(words[read[3:7]])
        with m.Elif(port("rvalid") & port("rready")):
            m.d.sync += port("rvalid").eq(0)
        return did & ~address[12], word, data
