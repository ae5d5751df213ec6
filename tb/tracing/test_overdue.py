"""What is said of blocks that keep a better band waiting."""

from tb.tracing.overdue import overdue_blocks


def test_each_overdue_block_has_a_line() -> None:
    fields = {"queue": 2, "packet": 7, "core": 1, "block": 5, "waited": 250_008}
    notes = [(10, "begin", {"queue": 2, "packet": 7}), (250_300, "overdue", fields)]
    assert overdue_blocks(notes) == [
        "cycle 250300: a better band waits since 250008 cycles for core 1; it runs block 5 of "
        "packet 7 of queue 2"
    ]
    assert overdue_blocks(notes[:1]) == []
