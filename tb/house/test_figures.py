"""Figures that pages state in words are those of the code."""

import inspect

import pytest

from abi.address import LINE_BYTES
from abi.core import CUBE_SIDE, FLAG_MAXIMUM, FLAGS
from abi.isa import RAM_BYTES
from rtl.core.core import AiCore
from rtl.core.scalar.divider import STEPS
from rtl.core.unified_buffer import BANKS
from runtime.planner import scalar
from tb.house.source_tree import ROOT

CHIP = {
    name: parameter.default
    for name, parameter in inspect.signature(AiCore).parameters.items()
    if isinstance(parameter.default, int)
}
"""What a core has if nothing else is asked for: the reference chip's."""

KIB = 1024

STATED: dict[str, list[str]] = {
    "scalar-unit": [
        f"| RAM, {RAM_BYTES // KIB} KiB |",
        f"cache of {CHIP['cache_lines'] * LINE_BYTES // KIB} KiB",
        f"{CHIP['cache_lines']} lines",
        f"`npu.base` | {scalar.PLAIN} |",
        f"with room | {scalar.MULTIPLY} |",
        f"with room | {scalar.RAM_ACCESS} |",
        f"kept line | {scalar.KEPT_ACCESS} |",
        f"remainder | {scalar.DIVIDE} |",
        f"remainder | {STEPS + 3} |",
        f"memory and {scalar.LINE_FETCH} |",
        f"takes {scalar.CLEAR_CYCLES} cycles",
        f"takes {CHIP['cache_lines']} cycles",
    ],
    "cube": [
        f"{CUBE_SIDE * CUBE_SIDE}: {CUBE_SIDE} along k",
        f"{CUBE_SIDE * CHIP['bf16_depth']}: {CHIP['bf16_depth']} along k",
        f"fewer than {4 * CHIP['bf16_depth'] + 1} rows",
    ],
    "transfer-pipes": [f"{CHIP['depth']} lines in flight"],
    "buffers": [
        f"| {name.upper() if name != 'bias' else name} | {lines} | {lines * LINE_BYTES // KIB} |"
        for name in ("l1", "l0a", "l0b", "l0c", "bias", "ub")
        for lines in (CHIP[f"{name}_lines"],)
    ]
    + [f"modulo {BANKS}", f"{CHIP['l1_lines'] + 3:,} cycles"],
    "flags": [
        f"has {FLAGS} flags",
        f"from 0 to {FLAG_MAXIMUM}",
        f"stood at {FLAG_MAXIMUM}",
    ],
}
"""For each page of docs/mechanisms, texts that it must have."""


@pytest.mark.parametrize(
    ("page", "text"), [(page, text) for page, texts in STATED.items() for text in texts]
)
def test_a_page_states_the_figure_of_the_code(page: str, text: str) -> None:
    whole = (ROOT / "docs" / "mechanisms" / f"{page}.md").read_text(encoding="utf-8")
    assert text in " ".join(whole.split())
