"""A bank of registers, made from a register map of the contract."""

from collections.abc import Collection, Mapping
from typing import Any

from amaranth import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from abi.record import Owner
from abi.register import Access, Place, Register, RegisterMap
from rtl.host.register_bus import RegisterPort

__all__ = ["RegisterBank"]


def _reset_values(register: Register, overrides: Mapping[str, int]) -> dict[str, int]:
    return {name: overrides.get(name, field.reset) for name, field in register.fields.items()}


def _writable_bits(register: Register) -> int:
    """Bits of an RW register that software changes: hardware's and nobody's fields stay."""
    mask = 0
    for name, field in register.fields.items():
        if field.fills not in (Owner.HW, Owner.NONE):
            mask |= ((1 << field.width) - 1) << register.offset_of(name)
    return mask


class RegisterBank(wiring.Component):
    """All registers of a map behind a register port.

    Rules: an address without a register, a write to RO and a read of WO are answered with an
    error. Strobes are honoured on RW and W1C; bytes of a WO write without strobe read as zero
    there, and a write without any strobe does nothing. Fields of an RW register that hardware or
    nobody fills keep their reset value. A W1C bit that is set and cleared in one cycle stays set.

    Args:
        register_map: the registers.
        exclude: names of places that are answered elsewhere (here: with an error).
        resets: reset values by place and field, where they differ from the map's.
        clearable: names of RW places that hardware can put back to their reset value.
        sampled: names of RO places that change every cycle. Each is copied into a register of its
            own when it is read, so that the read multiplexer of a bank whose clock is stopped
            does not have to follow it.

    Members (`<n>` is the name of a place, followed by `_0`, `_1`... if it is an array; layouts are
    those of the registers):
        bus: RegisterPort, target.
        idle: no access on its way; a function of registers.
        wake: a request or a set bit is at the inputs; the clock has to run.
        RW: `<n>` out; `<n>_written` out, 1 cycle, in which `<n>` is already new; `<n>_clear` in,
            if clearable (wins over a write).
        RO: `<n>` in.
        WO: `<n>` out, the data that was written, valid with `<n>_written` out, 1 cycle;
            `<n>_refuse` in: 1 answers with an error and gives no pulse.
        W1C: `<n>` out; `<n>_set` in, bits to set.

    Timing: the response is valid in the cycle after the request was accepted. `_refuse` and RO
    values are sampled in the cycle in which the request is accepted; the pulse comes one cycle
    later, so a refusal that depends on it is in time for the next request.

    Raises:
        ValueError: a name is no place of the map, or has another access than needed.
    """

    def __init__(
        self,
        register_map: RegisterMap,
        *,
        exclude: Collection[str] = (),
        resets: Mapping[str, Mapping[str, int]] | None = None,
        clearable: Collection[str] = (),
        sampled: Collection[str] = (),
    ) -> None:
        places = {place.name: place for place in register_map}
        for role, names, access in (
            ("exclude", exclude, None),
            ("resets", resets or {}, Access.RW),
            ("clearable", clearable, Access.RW),
            ("sampled", sampled, Access.RO),
        ):
            for name in names:
                if name not in places:
                    raise ValueError(
                        f"{role} must name places of {register_map.name}, not {name!r}"
                    )
                if access is not None and places[name].register.access is not access:
                    raise ValueError(f"{role} must name {access.name} places, not {name!r}")
        self.register_map = register_map
        self._places = [place for name, place in places.items() if name not in exclude]
        self._resets = {name: dict(values) for name, values in (resets or {}).items()}
        self._clearable = frozenset(clearable)
        self._sampled = tuple(sampled)
        members: dict[str, Any] = {"bus": In(RegisterPort), "idle": Out(1), "wake": Out(1)}
        for place in self._places:
            for index in range(place.count):
                members |= self._members(place, index)
        super().__init__(members)

    @staticmethod
    def _name(place: Place, index: int) -> str:
        return place.name if place.count == 1 else f"{place.name}_{index}"

    def _members(self, place: Place, index: int) -> dict[str, Any]:
        name, register = self._name(place, index), place.register
        init = _reset_values(register, self._resets.get(place.name, {}))
        match register.access:
            case Access.RW:
                clear = {f"{name}_clear": In(1)} if place.name in self._clearable else {}
                return {name: Out(register, init=init), f"{name}_written": Out(1), **clear}
            case Access.RO:
                return {name: In(register)}
            case Access.WO:
                return {name: Out(register), f"{name}_written": Out(1), f"{name}_refuse": In(1)}
            case Access.W1C:
                return {name: Out(register, init=init), f"{name}_set": In(register)}

    def member(self, name: str, index: int = 0, suffix: str = "") -> Any:
        """A member by place, element and suffix ("written", "refuse", "set", "clear").

        Raises:
            KeyError: the bank has no such place.
        """
        place = self.register_map[name]
        return getattr(self, self._name(place, index) + (f"_{suffix}" if suffix else ""))

    def elaborate(self, _platform: object) -> Module:
        m = Module()
        request, response = self.bus.request, self.bus.response
        payload = request.payload
        accept, write, strobed = Signal(), Signal(), Signal()
        word, bits, given = Signal(25), Signal(64), Signal(64)
        found, error = Signal(64), Signal(init=1)
        written_data = Signal(64, reset_less=True)
        answer = Signal(64, reset_less=True)
        m.d.comb += [
            request.ready.eq(~response.valid),
            accept.eq(request.valid & ~response.valid),
            write.eq(accept & payload.write),
            strobed.eq(payload.strobe.any()),
            word.eq(payload.address[3:]),
            bits.eq(Cat(payload.strobe[byte].replicate(8) for byte in range(8))),
            given.eq(payload.data & bits),
            self.idle.eq(~response.valid),
            response.payload.data.eq(answer),
        ]
        with m.If(accept):
            m.d.sync += [
                response.valid.eq(1),
                response.payload.error.eq(error),
                answer.eq(Mux(payload.write, 0, found)),
                written_data.eq(given),
            ]
        with m.Elif(response.ready):
            m.d.sync += response.valid.eq(0)

        wakes: list[Value] = [request.valid]
        with m.Switch(word):
            for place in self._places:
                for index in range(place.count):
                    with m.Case(place.address(index) >> 3):
                        self._read(m, place, index, found, error)
        for place in self._places:
            for index in range(place.count):
                hit = Signal(name=f"{self._name(place, index)}_hit")
                m.d.comb += hit.eq(write & strobed & (word == place.address(index) >> 3))
                self._write(m, place, index, hit, bits, given)
                if place.register.access is Access.WO:
                    value = Value.cast(self.member(place.name, index))
                    m.d.comb += value.eq(written_data)
                if place.register.access is Access.W1C:
                    wakes.append(Value.cast(self.member(place.name, index, "set")).any())
        m.d.comb += self.wake.eq(Cat(wakes).any())
        self._sample(m, accept, word)
        return m

    def _read(self, m: Module, place: Place, index: int, found: Signal, error: Signal) -> None:
        write = self.bus.request.payload.write
        value = Value.cast(self.member(place.name, index))
        match place.register.access:
            case Access.RW | Access.W1C:
                m.d.comb += [found.eq(value), error.eq(0)]
            case Access.RO:
                m.d.comb += error.eq(write)
                if place.name not in self._sampled:
                    m.d.comb += found.eq(value.as_unsigned())
            case Access.WO:
                m.d.comb += error.eq(~write | self.member(place.name, index, "refuse"))

    def _write(
        self, m: Module, place: Place, index: int, hit: Value, bits: Value, given: Value
    ) -> None:
        register = place.register
        size = register.size
        if register.access is Access.RO:
            return
        value = Value.cast(self.member(place.name, index))
        match register.access:
            case Access.RW:
                writable = C(_writable_bits(register), size)
                mask = bits[:size] & writable
                m.d.sync += self.member(place.name, index, "written").eq(hit)
                with m.If(hit):
                    m.d.sync += value.eq((value & ~mask) | (given[:size] & writable))
                if place.name in self._clearable:
                    init = register.pack(self._resets.get(place.name, {}))
                    with m.If(self.member(place.name, index, "clear")):
                        m.d.sync += value.eq(init)
            case Access.WO:
                refuse = self.member(place.name, index, "refuse")
                m.d.sync += self.member(place.name, index, "written").eq(hit & ~refuse)
            case Access.W1C:
                added = Value.cast(self.member(place.name, index, "set"))
                m.d.sync += value.eq((value & ~Mux(hit, given[:size], 0)) | added)

    def _sample(self, m: Module, accept: Value, word: Value) -> None:
        for name in self._sampled:
            place = self.register_map[name]
            for index in range(place.count):
                sample = Signal(64, name=f"{name}_sample", reset_less=True)
                chosen = Signal(name=f"{name}_chosen")
                with m.If(accept):
                    m.d.sync += [
                        sample.eq(Value.cast(self.member(name, index))),
                        chosen.eq(
                            ~self.bus.request.payload.write & (word == place.address(index) >> 3)
                        ),
                    ]
                with m.If(chosen):
                    m.d.comb += self.bus.response.payload.data.eq(sample)
