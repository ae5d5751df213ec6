"""Changes the C++ model that Verilator wrote, so that what sleeps costs little.

A chip of fifty gated clocks sleeps most of the time, and most of it sleeps while one unit works.
Verilator's model compares each clock twice for each edge of the input clock, and tests the
triggers before each of hundreds of pieces of logic. The passes here leave out what cannot matter;
each checks in the generated text that it cannot. What has another form stays as Verilator wrote it.
"""

from pathlib import Path

from tb.engine.verilated.clock_edges import edges_of, guard_edges, with_parents
from tb.engine.verilated.functions import Functions
from tb.engine.verilated.second_look import leave_out_second_look
from tb.engine.verilated.trigger_groups import group_triggers

__all__ = ["skip_sleeping"]


def skip_sleeping(folder: Path) -> tuple[int, int]:
    """Change the model in `folder`; returns how many clock edges and pieces of logic it treated."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(folder.glob("V*.cpp"))}
    functions = Functions(texts.values())
    edges = [edge for text in texts.values() for edge in with_parents(edges_of(text), functions)]
    variables = {name for edge in edges for name in edge.variables}
    pieces = 0
    for path, text in texts.items():
        changed = text
        if edges:
            changed = guard_edges(changed, edges)
            changed = leave_out_second_look(changed, functions, variables)
        changed, grouped = group_triggers(changed)
        pieces += grouped
        if changed != text:
            path.write_text(changed, encoding="utf-8")
    return len(edges), pieces
