"""Writing a file in one step."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from harness.atomic_file import write_atomically


def test_a_file_is_written_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_atomically(path, "one")
    write_atomically(path, "two \udc80")
    assert path.read_text(encoding="utf-8") == "two \\udc80"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.replace"])
def test_a_failure_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    path = tmp_path / "file.txt"
    write_atomically(path, "old")

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(step, full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]
