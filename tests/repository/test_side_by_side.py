"""Commands that run at once: all are printed, and one that fails fails all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import side_by_side

#: Ends when the other has begun.
MEETS = (
    "import pathlib, sys, time\n"
    "pathlib.Path(sys.argv[1]).touch()\n"
    "while not pathlib.Path(sys.argv[2]).exists(): time.sleep(0.01)\n"
    "print('met', sys.argv[2])\n"
    "sys.exit(int(sys.argv[3]))\n"
)


@pytest.mark.parametrize("code", [0, 3])
def test_commands_run_at_once_and_one_that_fails_is_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    first = [sys.executable, "-c", MEETS, one, other, str(code)]
    second = [sys.executable, "-c", MEETS, other, one, "0"]
    assert side_by_side.main([*first, "--", *second]) == code
    printed = capsys.readouterr().out
    assert f"met {other}" in printed
    assert f"met {one}" in printed
    assert f"exit status {code}: " in printed
