"""Runs the full-stack tests on the simulated RTL, each group in one simulator process."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tb.fullstack.conftest import STARTERS
from tb.machine.run import run_hosted

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]

FILES = sorted(path for path in HERE.glob("test_*.py") if path.name not in STARTERS)
FILES.append(REPOSITORY / "examples" / "test_full_stack.py")

GROUPS = 3
SEED = 1


@pytest.mark.parametrize("group", range(GROUPS))
def test_full_stack_on_rtl(group: int, tmp_path: Path) -> None:
    files = FILES[group::GROUPS]
    results = tmp_path / "results.xml"
    arguments = [*map(str, files), "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    arguments += ["-o", "junit_family=xunit1", f"--junitxml={results}"]
    code = run_hosted("tb.cli.hosted:run_pytest", [arguments], seed=SEED, timeout=900)
    assert results.exists(), f"no results; the simulator's code is {code}"
    passed: dict[str, int] = {str(path): 0 for path in files}
    bad: list[str] = []
    for case in ElementTree.parse(results).iter("testcase"):
        outcomes = [child for child in case if child.tag in ("failure", "error", "skipped")]
        if outcomes:
            bad.append(f"{outcomes[0].tag}: {case.get('name')}: {outcomes[0].get('message')}")
            continue
        file = str(REPOSITORY / str(case.get("file")))
        passed[file if file in passed else str(Path(str(case.get("file"))).resolve())] += 1
    assert bad == []
    assert code == 0
    assert all(passed.values()), f"a file without a test: {passed}"
    print(f"{sum(passed.values())} tests passed on the RTL")
