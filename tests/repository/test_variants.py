"""Of a test that takes long for each case, tox tries some cases; environments of CI run the others in turn."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest
import variants

TESTS = """
import pytest

NINE = pytest.mark.parametrize("case", ["first", "first-again", "other", "firstly", *"abcde"])

@pytest.mark.cases(3)
@NINE
def test_three(case): ...

@pytest.mark.cases("first", "e")
@NINE
def test_named(case): ...

@pytest.mark.cases("a name that is gone")
@NINE
def test_at_least_one(case): ...

@pytest.mark.cases(1)
@pytest.mark.parametrize("case", [pytest.param(0, marks=pytest.mark.long), pytest.param(1)])
def test_a_long_case(case): ...

@NINE
def test_all(case): ...

@pytest.mark.rotated(3)
@NINE
def test_in_turn(case): ...

@pytest.mark.cases("other", "a", "b")
@pytest.mark.rotated(2)
@NINE
def test_three_and_in_turn(case): ...
"""


def ran(pytester: pytest.Pytester, *options: str) -> dict[str, list[str]]:
    markers = ["long: x", "variant: x", "cases(which): x", "rotated(commits): x"]
    pytester.makepyprojecttoml(f'[tool.pytest]\nmarkers = {markers}\naddopts = ["-p", "no:harness"]')
    pytester.makepyfile(TESTS)
    recorder = pytester.inline_run(*options, plugins=[variants])
    cases = [report.nodeid.split("::")[1].rstrip("]").split("[") for report in recorder.listoutcomes()[0]]
    return {test: [case for other, case in cases if other == test] for test, _ in cases}


def test_some_cases_are_tried_and_the_others_are_run_by_long(pytester: pytest.Pytester) -> None:
    first = ran(pytester, "-m", "not long and not variant")
    assert {test: len(cases) for test, cases in first.items()} == {
        "test_three": 3, "test_named": 3, "test_at_least_one": 1, "test_a_long_case": 1, "test_all": 9,
        "test_three_and_in_turn": 3,
    }  # fmt: skip
    assert first["test_named"] == ["first", "first-again", "e"]
    assert ran(pytester, "--environment=unit") == first
    second = ran(pytester, "-m", "long or variant")
    assert "test_all" not in second
    for test, cases in second.items():
        assert len(cases) + len(first.get(test, [])) == (2 if test == "test_a_long_case" else 9)
        assert not set(cases).intersection(first.get(test, []))


def test_a_commit_runs_a_part_of_rotated_cases_and_as_many_commits_run_all(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for number in (6, 7, 8):
        monkeypatch.setenv("HARNESS_VARIANTS", str(number))
        tests = ran(pytester, "--environment=long")
        seen.append(tests["test_in_turn"])
        assert len(tests["test_three_and_in_turn"]) == 3
    assert [len(cases) for cases in seen] == [3, 3, 3]
    assert len(set().union(*seen)) == 9
    monkeypatch.setenv("HARNESS_VARIANTS", "9")
    assert ran(pytester, "--environment=long")["test_in_turn"] == seen[0]
    monkeypatch.setenv("HARNESS_VARIANTS", "all")
    assert len(ran(pytester, "--environment=long")["test_in_turn"]) == 9
    monkeypatch.delenv("HARNESS_VARIANTS")
    assert len(ran(pytester)["test_in_turn"]) == 9


def test_the_choice_is_printed_and_one_that_is_no_number_is_refused(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HARNESS_VARIANTS", "41")
    ran(pytester, "--environment=long")
    assert "HARNESS_VARIANTS=41 repeats the choice" in capsys.readouterr().out
    with pytest.raises(pytest.UsageError, match="accepted: a number of 0 or more, or 'all'"):
        variants.choice_of("some")


NAMES = [f"judgement/test_first_gradient.py::test_x[{case}]" for case in range(300)]
FILE = "judgement/test_first_gradient.py"
ALL = ("unit", "long", "kernels", "softgpu")


def environments(file: str, name: str, kind: str, number: int, commits: int = 1) -> list[str]:
    return [each for each in ALL if variants.runs_in(each, file, name, kind, number, commits)]


def test_a_variant_runs_in_one_environment_and_within_six_commits_in_each() -> None:
    for name in NAMES:
        chosen = [environments(FILE, name, "variant", number) for number in range(100, 106)]
        assert sorted(itertools.chain(*chosen)) == ["kernels", "long", "softgpu"], name
        assert all(len(each) + len(other) == 1 for each, other in itertools.pairwise(chosen))
    shares = [sum(environments(FILE, name, "variant", 7) == [each] for name in NAMES) for each in ALL]
    assert shares[0] == 0
    assert all(30 < share < 70 for share in shares[1:]), shares


def test_a_rotated_case_changes_its_environment_with_each_of_its_turns() -> None:
    turns = [number for number in range(24) if variants.has_its_turn(3, 8, number)]
    assert turns == [3, 11, 19]
    chosen = [environments(FILE, NAMES[0], "variant", number, commits=8) for number in turns]
    assert sorted(itertools.chain(*chosen)) == ["kernels", "long", "softgpu"]


def test_what_depends_on_kernels_and_devices_runs_in_each_environment_in_turn() -> None:
    file = "judgement/test_verify.py"
    for name in NAMES:
        chosen = [environments(file, name, "plain", number) for number in range(4, 7)]
        assert sorted(chosen) == [["kernels"], ["softgpu"], ["unit"]], name
        both = [environments("programs/test_generated_programs.py", name, "plain", number) for number in (4, 5)]
        assert sorted(both) == [["softgpu"], ["unit"]], name
    assert variants.runs_in("unit", file, "x", "plain", "all")
    assert variants.runs_in("softgpu", file, "x", "plain", "all")


def test_of_what_takes_long_plain_tox_runs_a_half_and_the_rest_is_repeated_now_and_then() -> None:
    for number in (4, 5):
        assert environments("fleet/test_x.py", "x", "plain", number) == ["unit"]
    for file, kind in (("report/test_x.py", "variant"), ("distribute/test_mirrored.py", "long")):
        assert sorted(environments(file, "x", kind, number) for number in (4, 5)) == [[], ["long"]]
    assert sorted(environments("speed/test_x.py", "x", "plain", number) for number in (4, 5)) == [[], ["unit"]]
    for name in NAMES:
        chosen = [environments(FILE, name, "plain", number) for number in range(4, 12)]
        assert sorted(chosen) == [[], [], ["kernels"], ["softgpu"], *4 * [["unit"]]], name
        assert all(("unit" in each) != ("unit" in other) for each, other in itertools.pairwise(chosen))
    assert variants.runs_in("unit", FILE, NAMES[0], "plain", "all")


def test_the_long_tests_of_a_file_run_in_one_environment() -> None:
    chosen = []
    for number in range(4, 8):
        checks = [environments("checks/test_check_faults.py", name, "long", number) for name in NAMES]
        assert checks == [checks[0]] * len(checks)
        chosen += checks[0]
    assert sorted(chosen) == ["kernels", "long"]


def test_every_folder_and_file_that_is_named_is_there() -> None:
    named = {name for folders in variants.ENVIRONMENTS.values() for name in folders} | {
        *variants.IN_TURN,
        *variants.HALVED,
    }
    assert [name for name in named if not (Path(__file__).parents[1] / name).exists()] == []


def test_commits_are_counted_and_without_git_the_sources_decide(tmp_path: Path) -> None:
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "a.py").write_text("one", encoding="utf-8")
    first = variants.number_of_commit(tmp_path)
    (tmp_path / "harness" / "a.py").write_text("two", encoding="utf-8")
    assert variants.number_of_commit(tmp_path) != first
    settings = ["-c", "user.name=x", "-c", "user.email=x", "-c", "commit.gpgsign=false"]
    try:
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    except OSError:
        pytest.skip("git is not installed")
    for count in (1, 2):
        commit = ["git", "-C", str(tmp_path), *settings, "commit", "-q", "--allow-empty", "-m", "x"]
        subprocess.run(commit, check=True)
        assert variants.number_of_commit(tmp_path) == count


def test_cases_are_spread_evenly_and_begin_by_the_name_of_the_test() -> None:
    ids = [*"abcdefghijkl"]
    assert {len(variants.tried(name, ids[:7], [3])) for name in ("a", "b", "c", "d")} == {3}
    assert variants.tried("a", ids[:2], [5]) == {0, 1}
    assert len({min(variants.tried(name, ids[:2], [1])) for name in ("a", "b", "c", "d")}) == 2
    kept = sorted(variants.tried("a", ids, [4]))
    assert [later - earlier for earlier, later in itertools.pairwise(kept)] == [3, 3, 3]
