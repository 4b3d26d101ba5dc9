"""A folder that cannot be written is one line before anything is measured, and is blamed on no program."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import run

_PROGRAM = "raise SystemExit('it was run')\n"
_TARGET = ("program.py:step", "--devices", "cpu:1")
_REPORT = "report folder /dev/null/x cannot be written: Not a directory; name another folder with --report"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("profile", *_TARGET, "--report"), _REPORT),
        (("scale", *_TARGET, "--report"), _REPORT),
        (("run", "program.py", "--devices", "cpu:1", "--report"), _REPORT),
        (("selftest", "--report"), _REPORT),
        (("burnin", "--minutes", "1", "--report"), _REPORT),
        (
            ("calibrate", "--baselines"),
            "--baselines /dev/null/x cannot be written: Not a directory; name another folder",
        ),
        (
            ("profile-machine", "--devices", "cpu:1", "--output"),
            "profile /dev/null/x cannot be written: Not a directory; name another file with --output",
        ),
        (
            ("trace", *_TARGET, "--save"),
            "trace cannot be saved to /dev/null/x: Not a directory; name a file in a writable folder",
        ),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_a_folder_that_cannot_be_written_is_refused_first(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM, encoding="utf-8")
    done = run(tmp_path, *arguments, "/dev/null/x", planted=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"harness: error: {said}\n"
