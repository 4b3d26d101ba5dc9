"""Temporary folders: what stays, what is removed, and when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.temporary import folder_of_this_process, temporary_folder


@pytest.fixture(autouse=True)
def below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def run(text: str, error: type[BaseException] | None = None) -> Path:
    with temporary_folder("harness-a-") as folder:
        (folder / "run.log").write_text(text, encoding="utf-8")
        if error is not None:
            raise error(str(folder))
    return folder


def test_a_folder_ends_with_its_body_but_stays_where_an_error_may_need_its_files(below: Path) -> None:
    run("text")
    for text, error in (("text", KeyboardInterrupt), ("text", SystemExit), ("", ValueError)):
        with pytest.raises(error):
            run(text, error)
    assert list(below.iterdir()) == []
    with pytest.raises(ValueError, match="harness-a-") as raised:
        run("text", ValueError)
    assert list(below.iterdir()) == [Path(str(raised.value))]


@pytest.mark.parametrize(("results", "left"), [("*.log", 1), ("*.json", 0), (None, 0)])
def test_results_outlive_an_interrupt(below: Path, results: str | None, left: int) -> None:
    with pytest.raises(KeyboardInterrupt), temporary_folder("harness-a-", results) as folder:  # noqa: PT012
        (folder / "run.log").write_text("text", encoding="utf-8")
        raise KeyboardInterrupt
    assert len(list(below.iterdir())) == left


def test_the_folder_of_a_killed_process_is_removed_by_the_next_and_that_of_a_living_one_is_not(below: Path) -> None:
    text = (
        f"import tempfile, sys; tempfile.tempdir = {str(below)!r}\n"
        "from harness.temporary import folder_of_this_process\n"
        "print(folder_of_this_process('harness-b-'), flush=True); sys.stdin.read()"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    folders = []
    for process in started:
        assert process.stdout is not None
        folders.append(Path(process.stdout.readline().strip()))
    killed, living, ending = started
    assert all(folder.is_dir() for folder in folders)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    ending.communicate()
    assert [folder.exists() for folder in folders] == [True, True, False]
    own = folder_of_this_process("harness-b-")
    assert [folder.exists() for folder in (*folders, own)] == [False, True, False, True]
    living.communicate()
    assert sorted(below.iterdir()) == [own]
