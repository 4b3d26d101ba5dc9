"""``--harness-save`` and its default: the case of a test that fails is in a file until the test passes.

In ``tests/cli/test_cli_replay.py`` failures of real programs are saved and replayed. Here, stand-ins
take the place of cases.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.pytest_plugin import saving

Session = Callable[..., pytest.RunResult]

_TEST = """
    import os
    import pytest
    from harness import session

    class Case:
        def __init__(self, text):
            self.text = text

        def save_as(self, path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.text)

    def fail(text, wanted=True):
        session.cases.keep(Case(text), len(text))
        assert not wanted

    @pytest.mark.parametrize("side", ["left/in", "left in"])
    def test_it(side):
        fail(f"{side} {os.environ['WHY']}", bool(os.environ["WHY"]))

    def test_expected():
        fail("expected", False)

    @pytest.mark.xfail
    def test_known():
        fail("known")

    def test_without_a_case():
        assert not os.environ["WHY"]
"""
_FOLDER = Path(".harness") / "failures"


def _texts(folder: Path) -> list[str]:
    return sorted(path.read_text() for path in folder.glob("*.npz"))


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "xdist"])
def test_the_case_of_a_failing_test_is_in_one_file_until_the_test_passes(
    workers: tuple[str, ...], pytester: pytest.Pytester, inner_pytest: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_it=_TEST)
    folder = pytester.path / _FOLDER
    for why in ("first", "second"):
        monkeypatch.setenv("WHY", why)
        result = inner_pytest("-p", "no:cacheprovider", *workers)
        result.assert_outcomes(failed=3, passed=1, xfailed=1)
        assert _texts(folder) == [f"left in {why}", f"left/in {why}"]
        replays = [line for line in result.outlines if line.startswith("Replay: harness replay .harness/failures/")]
        assert {pytester.path / line.split()[-1] for line in replays} == set(folder.glob("*.npz"))
    assert (folder.parent / ".gitignore").read_text().endswith("\n*\n")
    monkeypatch.setenv("WHY", "")
    inner_pytest(*workers).assert_outcomes(passed=4, xfailed=1)
    assert _texts(folder) == []


def test_another_folder_and_off_are_chosen_by_the_option_before_the_project(
    pytester: pytest.Pytester, inner_pytest: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_it=_TEST.replace("session.cases.keep", "session.cases and session.cases.keep"))
    monkeypatch.setenv("WHY", "why")
    off = inner_pytest("--harness-save=off")
    off.assert_outcomes(failed=3, passed=1, xfailed=1)
    off.stdout.no_fnmatch_line("*Replay*")
    pytester.makepyprojecttoml("[tool.harness]\nsave_failures = 'off'\n")
    inner_pytest("-k", "test_it and left").assert_outcomes(failed=2, deselected=3)
    monkeypatch.setenv("CI", "true")
    pytester.makepyprojecttoml("[tool.harness]\n")
    inner_pytest("-k", "test_it and left").assert_outcomes(failed=2, deselected=3)
    assert not (pytester.path / ".harness").exists()
    pytester.makepyprojecttoml("[tool.harness]\nsave_failures = 'of the project'\n")
    inner_pytest("-k", "test_it and left").assert_outcomes(failed=2, deselected=3)
    chosen = inner_pytest("--harness-save=my cases", "-k", "test_it and left")
    chosen.stdout.fnmatch_lines(["Replay: harness replay 'my cases/*.npz'"])
    assert (
        _texts(pytester.path / "of the project") == _texts(pytester.path / "my cases") == ["left in why", "left/in why"]
    )
    assert not (pytester.path / ".gitignore").exists(), "the folder of a user is the user's"


def test_a_file_where_failures_are_to_be_saved_is_refused_before_anything_runs(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    pytester.makepyfile("def test_it(): pass\n")
    pytester.makeini("[pytest]\n")
    result = inner_pytest("--harness-save=tox.ini")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --harness-save=tox.ini is a file; accepted: the path of a folder, or off"])
    empty = inner_pytest("--harness-save=")
    assert empty.ret == pytest.ExitCode.USAGE_ERROR
    empty.stderr.fnmatch_lines(["ERROR: --harness-save= is empty; accepted: the path of a folder, or off"])
    inner_pytest("--harness-save=failures").assert_outcomes(passed=1)


def test_a_folder_that_cannot_be_written_is_one_line(
    pytester: pytest.Pytester, inner_pytest: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_it=_TEST)
    monkeypatch.setenv("WHY", "why")
    (pytester.path / ".harness").write_text("a file")
    result = inner_pytest()
    result.assert_outcomes(failed=3, passed=1, xfailed=1)
    lines = [line for line in result.outlines if line.startswith("harness: failing cases could not be saved in ")]
    assert len(lines) == 1
    assert lines[0].endswith("; --harness-save=DIR names another folder, --harness-save=off saves none")
    result.stdout.no_fnmatch_line("Replay: *")


def test_a_case_that_is_too_large_is_named_and_removes_that_of_another_failure(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    keep = "def test_it():\n    from harness import session\n"
    large = keep + f"    session.cases.keep(None, {3 << 30})\n    assert 0\n"
    pytester.makepyfile(test_it=large)
    (pytester.path / _FOLDER).mkdir(parents=True)
    result = inner_pytest()
    result.stdout.fnmatch_lines(
        ["harness: the failing case of test_it.py::test_it is not saved: it has 3 GiB, more than 64 MiB; *DIR saves it"]
    )
    pytester.makepyfile(test_it=keep + "    assert session.cases.most_bytes is None\n")
    inner_pytest("--harness-save=cases").assert_outcomes(passed=1)


def test_the_oldest_cases_make_room(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    kept = saving.Saving(pytestconfig, tmp_path / "failures", is_default=True)
    kept.folder.mkdir()
    for age, name in enumerate(("latest", "new", "old", "oldest")):
        with (kept.folder / f"{name}.npz").open("wb") as file:
            file.truncate(saving.MOST_BYTES_OF_ALL // 3)  # takes no room on the disk
        os.utime(file.name, (1e9 - age, 1e9 - age))
    kept._bound(kept.folder / "oldest.npz")
    assert {path.stem for path in kept.folder.iterdir()} == {"oldest", "latest", "new"}
