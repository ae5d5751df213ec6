"""Grouped trigger tests: the same pieces, in the same order, behind tests that cover theirs."""

import re

from tb.engine.verilated.trigger_groups import GROUP, group_triggers

HEAD = "void Vtop___024root___eval_nba(Vtop___024root* vlSelf) {\n"
TRIGGERS = "vlSelfRef.__VnbaTriggered"


def piece(number: int, mask: int, word: int = 0) -> str:
    shown = f"{mask}ULL" if mask < 10 else f"0x{mask:016x}ULL"  # As Verilator writes numbers.
    return f"    if (({shown} & {TRIGGERS}[{word}U])) {{\n        run({number});\n    }}\n"


def source(*statements: str) -> str:
    return "int before;\n" + HEAD + "    // Body\n" + "".join(statements) + "}\nint after;\n"


def runs(text: str, triggers: dict[int, int]) -> list[int]:
    """What the walk runs while `triggers` are set: its tests, interpreted line by line."""
    skips = 0  # Depth of blocks that are not entered.
    out = []
    for line in re.sub(r"\s*\|\s*\n?\s*", " | ", text).splitlines():
        if match := re.match(r"\s+if \((.*)\) \{$", line):
            masks = re.findall(r"(0x[0-9a-f]+|\d)ULL & \S+\[(\d+)U\]", match[1])
            true = any(int(mask, 0) & triggers.get(int(word), 0) for mask, word in masks)
            skips += bool(skips) or not true
        elif re.match(r"\s+\}$", line):
            skips -= bool(skips)
        elif (match := re.match(r"\s+run\((\d+)\);", line)) and not skips:
            out.append(int(match[1]))
    return out


def test_runs_the_same_pieces_in_the_same_order() -> None:
    pieces = [(number, 1 << (number * 7 % 61), number % 3 // 2) for number in range(100)]
    before = source(*(piece(*each) for each in pieces))
    after, grouped = group_triggers(before)
    assert grouped == 100
    assert after.count("run(") == 100
    for word in range(2):
        for bit in range(64):
            expected = [n for n, mask, where in pieces if where == word and mask >> bit & 1]
            assert runs(after, {word: 1 << bit}) == runs(before, {word: 1 << bit}) == expected
    assert runs(after, {0: (1 << 64) - 1, 1: (1 << 64) - 1}) == list(range(100))


def test_a_group_asks_for_all_its_triggers_once() -> None:
    after, _ = group_triggers(source(*(piece(n, 1 << n) for n in range(GROUP + 1))))
    assert f"    if ((0x{(1 << GROUP) - 1:016x}ULL & {TRIGGERS}[0U])) {{\n" in after
    # The last one stands alone, as it was.
    assert after.count("if (") == GROUP + 2


def test_other_statements_stay_where_they_are() -> None:
    other = "    if ((0x01ULL & vlSelfRef.__VnbaTriggered[0U]) & other) {\n        run(7);\n    }\n"
    call = "    call();\n"
    before = source(piece(0, 1), piece(1, 2), other, piece(2, 4), call, piece(3, 8))
    after, grouped = group_triggers(before)
    assert grouped == 4
    lines = [line.strip() for line in after.splitlines()]
    order = [line for line in lines if line.startswith(("run", "call")) or "other" in line]
    assert order == [
        "run(0);",
        "run(1);",
        other.splitlines()[0].strip(),
        "run(7);",
        "run(2);",
        "call();",
        "run(3);",
    ]


def test_a_file_without_the_walk_stays_as_it_is() -> None:
    assert group_triggers("int x;\n") == ("int x;\n", 0)
