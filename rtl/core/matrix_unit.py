"""The Cube pipe: integer and float halves behind one queue."""

from amaranth import DomainRenamer, Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from abi.address import LINE_BYTES
from abi.core import MMAD_COMMAND, MmadType
from rtl.core.cube import Cube
from rtl.core.cube_float import FloatCube
from rtl.core.pipe import DONE

__all__ = ["MatrixUnit"]


class MatrixUnit(wiring.Component):
    """Executes MMAD commands in order: INT8 on `Cube`, BF16 on `FloatCube`.

    A command for one half waits until the other is idle, so both share the ports of the buffers.

    Args:
        bf16_depth: see `FloatCube`.
        float_domain: clock domain of the float half; it needs its clock while `float_active` is 1.

    Members:
        command, done, stop, product_xor, working, idle, and the ports of L0A, L0B and L0C: as in
        `Cube`.
        float_working: 1 bit; `working` is that of the float half.
        float_active: 1 bit; the float half needs its clock at the next edge.

    Timing, errors: those of the halves.
    """

    def __init__(
        self,
        *,
        l0a_lines: int,
        l0b_lines: int,
        l0c_lines: int,
        bf16_depth: int = 4,
        float_domain: str = "sync",
    ) -> None:
        lines = {"l0a_lines": l0a_lines, "l0b_lines": l0b_lines, "l0c_lines": l0c_lines}
        self._integer = Cube(**lines)
        self._float = FloatCube(**lines, depth=bf16_depth)
        self._float_domain = float_domain
        a, b, c = (exact_log2(count) for count in lines.values())
        line = 8 * LINE_BYTES
        super().__init__(
            {
                "command": In(stream.Signature(MMAD_COMMAND)),
                "done": Out(stream.Signature(DONE)),
                "stop": In(1),
                "product_xor": In(16),
                "a_data": In(line),
                "b_data": In(line),
                "c_data": In(line),
                "c_write_data": Out(line),
                "a_enable": Out(1),
                "a_line": Out(a),
                "b_enable": Out(1),
                "b_line": Out(b),
                "c_read": Out(1),
                "c_read_line": Out(c),
                "c_write": Out(1),
                "c_write_line": Out(c),
                "working": Out(1),
                "float_working": Out(1),
                "float_active": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        m.submodules.integer = integer = self._integer
        floating = self._float
        m.submodules.float = (
            floating
            if self._float_domain == "sync"
            else DomainRenamer(self._float_domain)(floating)
        )
        wants_float = self.command.payload.type == MmadType.BF16
        to_float = wants_float & integer.idle
        to_integer = ~wants_float & floating.idle
        m.d.comb += [
            integer.product_xor.eq(self.product_xor),
            integer.command.valid.eq(self.command.valid & to_integer),
            floating.command.valid.eq(self.command.valid & to_float),
            self.command.ready.eq(
                Mux(wants_float, floating.command.ready, integer.command.ready)
                & (to_float | to_integer)
            ),
            self.done.valid.eq(integer.done.valid | floating.done.valid),
            self.done.payload.eq(
                Mux(floating.done.valid, floating.done.payload, integer.done.payload)
            ),
            self.working.eq(integer.working | floating.working),
            self.float_working.eq(floating.working),
            self.float_active.eq(~floating.idle | floating.command.valid),
            self.idle.eq(integer.idle & floating.idle),
        ]
        for half in (integer, floating):
            m.d.comb += [
                half.command.payload.eq(self.command.payload),
                half.done.ready.eq(self.done.ready),
                half.stop.eq(self.stop),
                half.a_data.eq(self.a_data),
                half.b_data.eq(self.b_data),
                half.c_data.eq(self.c_data),
            ]
        # At most one of them uses a port at a time.
        for name in ("a_enable", "b_enable", "c_read", "c_write"):
            m.d.comb += getattr(self, name).eq(getattr(integer, name) | getattr(floating, name))
        for name in ("a_line", "b_line", "c_read_line", "c_write_line", "c_write_data"):
            m.d.comb += getattr(self, name).eq(
                Mux(floating.idle, getattr(integer, name), getattr(floating, name))
            )
        return m
