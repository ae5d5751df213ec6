"""A bank of registers, made from a register map of the contract."""

from collections.abc import Collection, Mapping
from typing import Any

from amaranth import Array, C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from abi.record import Owner
from abi.register import Access, Place, Register, RegisterMap
from rtl.host.register_bus import REGISTER_REQUEST, RegisterPort

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
        sampled: names of RO places that change often and come from another clock domain (time,
            counters of other units). They are copied at each edge of the bank's own clock, so that
            in a simulation the read multiplexer is not evaluated whenever one of them changes.

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

    Timing: a request accepted in cycle t is decoded in t + 1, where `_refuse` and RO values are
    sampled (`sampled` ones in t). In t + 2 the response is valid, registers are new and pulses
    come; a refusal that depends on the pulse through one register is in time for the next request.

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
        decode = Signal()
        payload = Signal(REGISTER_REQUEST, reset_less=True)
        write = Signal()
        # Only as wide as the map: a simulator searches a narrow selector by halves, a wide one
        # case by case.
        word = Signal(ceil_log2(self.register_map.nbytes >> 3))
        inside = Signal()
        bits = Signal(64)
        given = Signal(64)
        found = Signal(64)
        readable, writable = Signal(), Signal()
        error = Signal()
        failed = Signal(reset_less=True)
        answer = Signal(64, reset_less=True)
        written_data = Signal(64, reset_less=True)
        m.d.comb += [
            request.ready.eq(~decode & ~response.valid),
            word.eq(payload.address[3:]),
            inside.eq(payload.address[3:] == word),
            write.eq(decode & inside & payload.write & payload.strobe.any()),
            bits.eq(Cat(payload.strobe[byte].replicate(8) for byte in range(8))),
            given.eq(payload.data & bits),
            self.idle.eq(~decode & ~response.valid),
            response.payload.data.eq(answer),
            response.payload.error.eq(failed),
        ]
        m.d.sync += decode.eq(0)
        with m.If(request.valid & request.ready):
            m.d.sync += [decode.eq(1), payload.eq(request.payload)]
        with m.If(decode):
            m.d.sync += [
                response.valid.eq(1),
                failed.eq(error | ~inside),
                answer.eq(Mux(payload.write | ~inside, 0, found)),
                written_data.eq(given),
            ]
        with m.Elif(response.ready):
            m.d.sync += response.valid.eq(0)

        wakes: list[Value] = [request.valid]
        elements = [(place, index) for place in self._places for index in range(place.count)]
        shown = {self._name(*element): self._shown(m, *element) for element in elements}
        refusals = Signal()
        with m.Switch(word):
            for place, index in elements:
                with m.Case(place.address(index) >> 3):
                    m.d.comb += found.eq(shown[self._name(place, index)])
                    if place.register.access is Access.WO:
                        m.d.comb += refusals.eq(self.member(place.name, index, "refuse"))
        m.d.comb += [
            readable.eq(self._allowed(word, writes=False)),
            writable.eq(self._allowed(word, writes=True) & ~refusals),
            error.eq(~Mux(payload.write, writable, readable)),
        ]
        for place, index in elements:
            name = self._name(place, index)
            access = place.register.access
            if access is Access.RO:
                continue
            hit = Signal(name=f"{name}_hit")
            m.d.comb += hit.eq(write & (word == place.address(index) >> 3))
            self._write(m, place, index, hit, bits, given)
            if access is Access.WO:
                m.d.comb += Value.cast(getattr(self, name)).eq(written_data)
            if access is Access.W1C:
                wakes.append(Value.cast(self.member(place.name, index, "set")).any())
        m.d.comb += self.wake.eq(Cat(wakes).any())
        return m

    def _allowed(self, word: Value, *, writes: bool) -> Value:
        """1 bit: whether there is a register at `word` that may be written, or read."""
        table = 0
        for place in self._places:
            access = place.register.access
            if access is not (Access.RO if writes else Access.WO):
                for index in range(place.count):
                    table |= 1 << (place.address(index) >> 3)
        words = 1 << len(word)
        rows = [C(table >> first & ((1 << 64) - 1), 64) for first in range(0, words, 64)]
        return Value.cast(Array(rows)[word[6:]]).bit_select(word[:6], 1)

    def _shown(self, m: Module, place: Place, index: int) -> Value:
        """What a read of an element gives."""
        value = Value.cast(self.member(place.name, index)).as_unsigned()
        if place.register.access is Access.WO:
            return C(0)
        if place.name not in self._sampled:
            return value
        sample = Signal(len(value), name=f"{self._name(place, index)}_sample", reset_less=True)
        m.d.sync += sample.eq(value)
        return sample

    def _write(
        self, m: Module, place: Place, index: int, hit: Value, bits: Value, given: Value
    ) -> None:
        register = place.register
        size = register.size
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
