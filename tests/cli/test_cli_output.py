"""Output that is full, closed or read no further ends no command, and is no success where it is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import IMPORT_ROOT, PLANTED_FOLDER


def _shell(folder: Path, command: str) -> tuple[int, str]:
    """The exit code of ``harness``, and what it prints on stderr."""
    paths = (str(IMPORT_ROOT), str(PLANTED_FOLDER))
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; '{sys.executable}' -m harness {command}"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "_HARNESS_SUITE": "planted_checks:SUITE"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("command", ["list", "explain", "--version", "validate --devices cpu:2 --only passes"])
@pytest.mark.parametrize(("where", "why"), [("> /dev/full", "No space left on device"), (">&-", "it is closed")])
def test_output_that_is_lost_is_no_success_and_costs_no_record(
    tmp_path: Path, command: str, where: str, why: str
) -> None:
    said = f"harness: error: standard output cannot be written: {why}; what was to be printed is lost\n"
    code, text = _shell(tmp_path, f"{command} {where}")
    assert code == 2
    assert text.endswith(said)
    assert "Traceback" not in text
    if command.startswith("validate"):
        record = json.loads((tmp_path / "harness-report" / "run.json").read_text())
        assert (record["verdict"], record["complete"]) == ("PASS", True)


@pytest.mark.parametrize("command", ["list", "explain", "list --json"])
def test_who_has_read_enough_costs_nothing(tmp_path: Path, command: str) -> None:
    assert _shell(tmp_path, f"{command} | head -1") == (0, "")
    assert _shell(tmp_path, f"{command} | true") == (0, "")


def test_a_failure_is_a_failure_wherever_its_output_goes(tmp_path: Path) -> None:
    code, _ = _shell(tmp_path, "validate --devices cpu:2 --only finds > /dev/full")
    assert code == 1


def test_an_error_line_that_nobody_can_read_changes_no_exit_code(tmp_path: Path) -> None:
    for where in ("2> /dev/full", "2>&-", ">&- 2>&-"):
        assert _shell(tmp_path, f"explain nothing {where}") == (2, "")
