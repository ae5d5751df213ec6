"""Guarded looks for clock edges: the model does what Verilator's own does, edge for edge."""

import os
import subprocess
from pathlib import Path

import pytest

from tb.engine import toolchain
from tb.engine.build import build_verilator
from tb.engine.verilated import skip_sleeping
from tb.engine.verilated.clock_edges import edges_of

# Gates of two levels, as rtl.clocking makes them, and clocks that logic makes: a divider, which
# moves on rising edges and so needs the second look, and a clock that is inverted.
DESIGN = """
module gate(input clk, input enable, output gated);
  reg open = 0;
  always @(negedge clk) open <= enable;
  assign gated = clk & open;
endmodule

module top(input clk, input [7:0] enable, output reg [7:0] count0, output reg [7:0] count1,
           output reg [7:0] count2, output reg [7:0] count3, output reg [7:0] count4,
           output reg [7:0] count5, output reg [7:0] total, output reg [7:0] slow,
           output reg [7:0] gone);
  wire parent, child0, child1, child2, child3, child4, child5;
  gate g0(clk, enable[0], parent);
  gate g1(parent, enable[1], child0);
  gate g2(parent, enable[2], child1);
  gate g3(parent, enable[3], child2);
  gate g4(clk, enable[4], child3);
  gate g5(clk, enable[5], child4);
  gate g6(clk, enable[6], child5);
  initial begin
    count0 = 0; count1 = 0; count2 = 0; count3 = 0; count4 = 0; count5 = 0; total = 0; slow = 0;
    gone = 0;
  end
  reg divided = 0;
  always @(posedge child0) count0 <= count0 + 1;
  always @(posedge child1) count1 <= count1 + count0;
  always @(posedge child2) count2 <= count2 + count1;
  always @(posedge child3) count3 <= count3 + count2;
  always @(posedge child4) count4 <= count4 + count3;
  always @(posedge child5) count5 <= count5 + count4;
  always @(posedge clk) total <= total + (count0 ^ count5);
  DIVIDER
endmodule
"""

PLAIN = """
module top(input clk, input [7:0] enable, output reg [7:0] count0, output [7:0] count1,
           output [7:0] count2, output [7:0] count3, output [7:0] count4, output [7:0] count5,
           output [7:0] total, output [7:0] slow, output [7:0] gone);
  initial count0 = 0;
  always @(posedge clk) count0 <= count0 + enable;
endmodule
"""

DIVIDER = """
  always @(posedge child3) divided <= ~divided;
  always @(posedge divided) slow <= slow + count4;
  always @(negedge divided) gone <= gone + slow;
"""

MAIN = """
#include <cstdint>
#include <cstdio>
#include "Vtop.h"
#include "verilated.h"

double sc_time_stamp() { return 0; }
extern "C" void vlog_startup_routines_bootstrap(void) {}

int main() {
    Vtop top;
    uint32_t seed = SEED;
    for (int edge = 0; edge < 4000; ++edge) {
        top.clk = edge & 1;
        seed = seed * 1664525u + 1013904223u;
        // Inputs change after the rising edge only, and often rest.
        if (top.clk && (seed >> 30) == 0) top.enable = seed >> 16;
        top.eval();
        std::printf("%d %d %d %d %d %d %d %d %d\\n", top.count0, top.count1, top.count2, top.count3,
                    top.count4, top.count5, top.total, top.slow, top.gone);
    }
}
"""


def verilated(folder: Path, design: str) -> Path:
    """C++ of the design, as Verilator wrote it."""
    found = toolchain.find_verilator()
    (folder / "top.v").write_text(design)
    command = [found.binary, "--cc", "--prefix", "Vtop", "-Wno-fatal", "-O3", "--Mdir", folder]
    subprocess.run(
        [str(word) for word in [*command, folder / "top.v"]],
        env={**os.environ, "VERILATOR_ROOT": str(found.root)},
        check=True,
        capture_output=True,
    )
    return folder


def outputs(folder: Path, design: str, seed: int, *, skip_sleeping: bool) -> list[str]:
    main = folder / f"main_{skip_sleeping}.cpp"
    main.write_text(MAIN.replace("SEED", f"{seed}u"))
    build = build_verilator(design, main=main, skip_sleeping=skip_sleeping)
    done = subprocess.run([build.executable], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("divider", ["", DIVIDER], ids=["gates", "divider"])
def test_the_model_does_the_same_on_each_edge(tmp_path: Path, divider: str) -> None:
    seed = int(os.environ.get("GLASSNPU_SEED", "1"))
    print(f"seed {seed}")
    design = DESIGN.replace("DIVIDER", divider)
    expected = outputs(tmp_path, design, seed, skip_sleeping=False)
    assert outputs(tmp_path, design, seed, skip_sleeping=True) == expected
    counted = [{line.split()[place] for line in expected} for place in range(9)]
    assert [len(values) > 1 for values in counted] == [True] * 7 + [bool(divider)] * 2


def test_a_model_of_one_clock_does_the_same_on_each_edge(tmp_path: Path) -> None:
    expected = outputs(tmp_path, PLAIN, 1, skip_sleeping=False)
    assert outputs(tmp_path, PLAIN, 1, skip_sleeping=True) == expected
    assert len(set(expected)) > 100


@pytest.mark.parametrize("divider", ["", DIVIDER], ids=["gates", "divider"])
def test_what_verilator_writes_is_guarded(tmp_path: Path, divider: str) -> None:
    folder = verilated(tmp_path, DESIGN.replace("DIVIDER", divider))
    edges, pieces = skip_sleeping(folder)
    # Rising edges of 7 clocks, falling ones of clk and parent, and both of the divided clock.
    assert edges == (11 if divider else 9)
    assert pieces >= edges
    text = "".join(path.read_text() for path in folder.glob("*.cpp"))
    assert text.count("__VnbaExecute = 0 != (") == 1
    assert "parent | vlSelfRef.__Vtrigprevexpr" in text


FUNCTION = """void Vtop___024root___eval_triggers_vec__act(Vtop___024root* vlSelf) {{
    auto& vlSelfRef = std::ref(*vlSelf).get();
    // Locals
    CData/*0:0*/ now__0;
    now__0 = 0;
    // Body
    now__0 = ((IData)(vlSelfRef.clk) & (IData)(vlSelfRef.open));
    vlSelfRef.__VactTriggered[0U] = {triggers};
    vlSelfRef.clk__0 = vlSelfRef.clk;
    vlSelfRef.now__1 = now__0;
}}
"""

TRIGGERS = (
    "(QData)((IData)((((((IData)(now__0) & (~ (IData)(vlSelfRef.now__1))) << 3U)"
    " | (((~ (IData)(vlSelfRef.clk)) & (IData)(vlSelfRef.clk__0)) << 0x00000002U))"
    " | ((IData)(vlSelfRef.clk) & (~ (IData)(vlSelfRef.clk__0))))))"
)


def test_edges_are_read_from_the_function() -> None:
    found = edges_of(FUNCTION.format(triggers=TRIGGERS))
    shown = [(edge.bit, edge.rising, edge.variables, edge.before) for edge in found]
    assert shown == [
        (3, True, ("vlSelfRef.clk", "vlSelfRef.open"), "vlSelfRef.now__1"),
        (2, False, ("vlSelfRef.clk",), "vlSelfRef.clk__0"),
        (0, True, ("vlSelfRef.clk",), "vlSelfRef.clk__0"),
    ]


@pytest.mark.parametrize(
    "triggers",
    [
        "(vlSelfRef.clk != vlSelfRef.clk__0)",
        "((IData)(vlSelfRef.clk) & (IData)(vlSelfRef.clk__0))",
        "((IData)(vlSelfRef.clk) & (~ (IData)(vlSelfRef.other)))",
        "((IData)(vlSelfRef.clk) & (~ (IData)(vlSelfRef.clk__0)))",
        "(1U & (~ (IData)(vlSelfRef.clk__0)))",
        "call(vlSelfRef.clk)",
        "((vlSelfRef.clk & (~ vlSelfRef.clk__0)) | (vlSelfRef.clk & (~ vlSelfRef.clk__0)))",
    ],
    ids=[
        "changes",
        "no edge",
        "other variable",
        "one is kept for nothing",
        "constant",
        "call",
        "twice",
    ],
)
def test_a_function_of_another_form_stays_as_it_is(tmp_path: Path, triggers: str) -> None:
    path = tmp_path / "Vtop.cpp"
    text = FUNCTION.format(triggers=triggers) + "int x;\n"
    path.write_text(text)
    assert skip_sleeping(tmp_path) == (0, 0)
    assert path.read_text() == text


WALK = """
void deeper(Vtop___024root* vlSelf) {
    auto& vlSelfRef = std::ref(*vlSelf).get();
    ASSIGNMENT
}

void deep(Vtop___024root* vlSelf) {
    deeper(vlSelf);
}

void shallow(Vtop___024root* vlSelf) {
    vlSelf->other = ((IData)(vlSelfRef.open) == (IData)(vlSelfRef.clk));
}

void Vtop___024root___eval_nba(Vtop___024root* vlSelf) {
    if ((2ULL & vlSelfRef.__VnbaTriggered[0U])) {
        shallow(vlSelf);
    }
    if ((4ULL & vlSelfRef.__VnbaTriggered[0U])) {
        deep(vlSelf);
    }
}

bool Vtop___024root___eval_phase__nba(Vtop___024root* vlSelf) {
    if (__VnbaExecute) {
        Vtop___024root___eval_nba(vlSelf);
        Vtop___024root___trigger_clear__act(vlSelfRef.__VnbaTriggered);
    }
    return (__VnbaExecute);
}
"""


@pytest.mark.parametrize(
    ("assignment", "moves"),
    [
        ("vlSelfRef.open = 1U;", True),
        ("vlSelfRef.open\n        = 1U;", True),
        ("set(&vlSelfRef.open);", True),
        ("vlSelfRef.opened = vlSelfRef.open;", False),
    ],
    ids=["assigned", "on two lines", "address taken", "read"],
)
def test_logic_that_moves_clocks_asks_for_a_second_look(
    tmp_path: Path, assignment: str, moves: bool
) -> None:
    path = tmp_path / "Vtop.cpp"
    path.write_text(FUNCTION.format(triggers=TRIGGERS) + WALK.replace("ASSIGNMENT", assignment))
    assert skip_sleeping(tmp_path) == (3, 2)
    asked = "(0x0000000000000004ULL & vlSelfRef.__VnbaTriggered[0U])" if moves else "0"
    assert f"    __VnbaExecute = 0 != ({asked});\n" in path.read_text()
