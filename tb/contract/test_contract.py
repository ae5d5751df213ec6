"""The generated pages are current and complete."""

import importlib
import re
from enum import EnumType
from pathlib import Path

import pytest

from abi.packet import COPY_PACKET
from abi.record import Record
from abi.register import Register, RegisterMap
from abi.registers_host import BAR0
from runtime import Device, NpuError, Stream
from tb.contract import generate, runtime_page, source


def test_the_committed_pages_are_current() -> None:
    hint = "run `python -m tb.contract.generate`"
    assert generate.PAGE.read_text(encoding="utf-8") == generate.contract_page(), hint
    runtime_text = generate.RUNTIME_PAGE.read_text(encoding="utf-8")
    assert runtime_text == runtime_page.runtime_page(), hint


def test_every_public_name_of_the_runtime_is_on_its_page() -> None:
    page = runtime_page.runtime_page()
    for name, thing in runtime_page.documented_names().items():
        mark = f"### {name}\n" if isinstance(thing, type) else f"\n- `{name}("
        if isinstance(thing, type) and issubclass(thing, NpuError):
            mark = f"\n- `{name}`, a kind of "
        assert page.count(mark) == 1, name
    for kind in (Device, Stream):
        for member in vars(kind):
            internal = f"{kind.__name__}.{member}" in runtime_page.INTERNAL
            if not member.startswith("_") and callable(getattr(kind, member)):
                listed = re.search(rf"\n- `(Device\.)?{member}\(", page) is not None
                assert listed is not internal, member
    assert (
        "\n- `malloc(nbytes: int) -> DeviceBuffer`: Take `nbytes` of device memory, aligned to "
        "256 bytes; its content is undefined.\n"
    ) in page


def test_a_name_without_a_chapter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    known = runtime_page.documented_names()
    monkeypatch.setattr(runtime_page, "documented_names", lambda: {**known, "novelty": 1})
    with pytest.raises(ValueError, match=r"chapters must have the names .*'novelty'"):
        runtime_page.runtime_page()


@pytest.mark.parametrize(("page", "word"), [("PAGE", "COPY"), ("RUNTIME_PAGE", "malloc")])
def test_check_tells_a_stale_page_from_a_current_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    page: str,
    word: str,
) -> None:
    path = tmp_path / getattr(generate, page).name
    monkeypatch.setattr(generate, page, path)
    assert generate.main(["--check"]) == 1
    assert f"docs/{path.name} is not current" in capsys.readouterr().err
    monkeypatch.setattr(generate, "PAGE", tmp_path / "contract.md")
    monkeypatch.setattr(generate, "RUNTIME_PAGE", tmp_path / "runtime.md")
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    path.write_text(path.read_text().replace(word, "other", 1))
    assert generate.main(["--check"]) == 1


@pytest.mark.parametrize("name", source.module_names())
def test_every_exported_declaration_is_on_the_page(name: str) -> None:
    page = generate.contract_page()
    module = importlib.import_module(f"abi.{name}")
    for exported in module.__all__:
        value = getattr(module, exported)
        if isinstance(value, Register):
            assert f"`{value.name}`: " in page, f"{exported} is placed in no map"
        elif isinstance(value, (Record, RegisterMap)):
            assert f"### {value.name}\n" in page
        elif isinstance(value, EnumType):
            assert f"### {exported}\n" in page
        elif isinstance(value, int):
            assert f"| `{exported}` |" in page


def test_a_module_without_a_chapter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "module_names", lambda: [*source.module_names(), "novelty"])
    with pytest.raises(ValueError, match=r"chapters must be the modules .*'novelty'"):
        generate.contract_page()


def test_a_field_row_names_bits_and_all_owners() -> None:
    rows = {row[1]: row for row in generate.field_rows(COPY_PACKET)}
    assert rows["`opcode`"][0] == "7:0"
    assert rows["`source`"] == [
        "127:64",
        "`source`",
        "unsigned, 64",
        "Device address of the first source byte.",
        "UMD",
        "firmware",
        "hardware",
    ]
    assert rows["`source_stride`"][2] == "signed, 32"


def test_a_place_shows_its_address_rule() -> None:
    assert generate.place_address(BAR0["time"]) == "0x0028"
    assert generate.place_address(BAR0["queue_doorbell"]) == "0x1000 + 0x40 i, i = 0 to 15"


def test_constants_carry_the_string_below_them() -> None:
    constants = {c.name: c for c in source.declarations_of("address").constants}
    assert constants["LINE_BYTES"].value == 64
    assert constants["LINE_BYTES"].meaning.startswith("The unit of every transaction")
