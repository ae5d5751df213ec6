"""Leaves out the second look at the clocks after logic that does not move any.

Verilator's model looks for clock edges, runs the logic behind those that it found, and looks
again, since logic may make clocks. If no piece that ran assigns to anything that the clocks are
made of, no clock has moved. Gates (`rtl.clocking`) change on falling edges only, so that rising
edges need one look.
"""

import re

from tb.engine.verilated.functions import Functions, is_assigned, is_called, places
from tb.engine.verilated.trigger_groups import any_of, pieces

__all__ = ["leave_out_second_look"]

_PHASE = re.compile(
    r"(?P<run>^        (?P<walk>\w+___eval_nba)\(vlSelf\);\n)"
    r"        \w+___trigger_clear__act\(vlSelfRef\.__VnbaTriggered\);\n"
    r"    \}\n    return \(__VnbaExecute\);\n",
    re.M,
)


class _Movers:
    """Which C++ may assign to one of the variables that clocks are made of."""

    def __init__(self, functions: Functions, variables: set[str]) -> None:
        self._members = {name.removeprefix("vlSelfRef.") for name in variables}
        self._functions: set[str] = set()
        new = functions.where(self._members, is_assigned)
        while new:
            self._functions |= new
            new = functions.where(new, is_called) - self._functions

    def has(self, text: str) -> bool:
        """Whether it assigns itself, or calls a function that does."""
        called = re.findall(r"\w+(?=\()", text)
        return not self._functions.isdisjoint(called) or any(
            True for member in self._members for _ in places(text, member, is_assigned)
        )


def _moving_triggers(walk: str, movers: _Movers) -> dict[int, int] | None:
    """Triggers, a mask for each word, after which clocks may have moved; None: any."""
    words: dict[int, int] = {}
    for piece in pieces(walk):
        if not movers.has(piece.text):
            continue
        if not piece.triggers:
            return None
        for word, mask in piece.triggers.items():
            words[word] = words.get(word, 0) | mask
    return words


def leave_out_second_look(source: str, functions: Functions, variables: set[str]) -> str:
    """Verilator's C++ that looks again only after logic that may have moved a clock.

    `variables` are those that clocks are made of. A text of another form stays as it is.
    """
    phase = _PHASE.search(source)
    if phase is None:
        return source
    moving = _moving_triggers(functions.body(phase["walk"]), _Movers(functions, variables))
    if moving is None:
        return source
    again = f"    __VnbaExecute = 0 != ({any_of(moving)});\n"
    return source[: phase.end("run")] + again + source[phase.end("run") :]
