"""``run.json``: written in one step, validated when read."""

from __future__ import annotations

import errno
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from harness.errors import InvalidRecord, ReportError
from harness.records import (
    RUN_SCHEMA_VERSION,
    CheckResult,
    Exercised,
    Finding,
    Fingerprint,
    GpuFacts,
    RunRecord,
    Verdict,
)
from harness.report.storage import load_run, save_run

RESULT = CheckResult(
    check="matpow",
    verdict=Verdict.FAIL,
    reason="1 finding",
    next_step="look",
    exercised=Exercised(1, 2, 3, 4, 5, ("/device:CPU:0", "/device:CPU:1")),
    findings=(Finding("value", "y", "/device:CPU:1", "1", "2", "ünïcode \udc80"),),
    elapsed_s=1.25,
    spec="cpu:2",
    log="logs/worker-1.log",
    measured={"error_ulp": 0.5, "share_of_bound": math.inf},
)
RECORD = RunRecord(
    started_at="2026-01-02T03:04:05+00:00",
    harness="0.1.0",
    command=("harness", "validate"),
    spec="auto",
    verdict=Verdict.FAIL,
    exit_code=1,
    complete=True,
    results=(RESULT, replace(RESULT, check="vector-add", verdict=Verdict.PASS, findings=())),
    planned=("matpow", "vector-add"),
    spec_reason="no GPU",
    fingerprint=Fingerprint(
        "2.21", None, "2.4", "3.11", None, "a cpu", 2, None, 4096, "linux", gpus=(GpuFacts("a card", memory_mib=8),)
    ),
    elapsed_s=2.5,
)


@pytest.mark.parametrize("damage", ["NaN", "Infinity", '"inf"', '"nan"', "1e999"])
@pytest.mark.parametrize("was", ["1.25", "2.5"])
def test_a_time_that_is_no_number_is_no_record(tmp_path: Path, damage: str, was: str) -> None:
    path = save_run(RECORD, tmp_path)
    text = path.read_text(encoding="utf-8")
    assert f'"elapsed_s": {was}' in text
    path.write_text(text.replace(f'"elapsed_s": {was}', f'"elapsed_s": {damage}'), encoding="utf-8")
    with pytest.raises(InvalidRecord, match=r"run\.json: elapsed_s.* is not a finite number"):
        load_run(path)


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    path = save_run(RECORD, tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "run.json"
    assert load_run(path) == RECORD
    assert load_run(path.parent) == RECORD


def test_the_file_is_strict_json_with_a_version_and_null_for_what_is_missing(tmp_path: Path) -> None:
    text = save_run(RECORD, tmp_path).read_text(encoding="utf-8")
    content = json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))
    assert content["schema_version"] == RUN_SCHEMA_VERSION
    assert content["verdict"] == "FAIL"
    assert content["fingerprint"]["driver"] is None
    assert content["results"][0]["exercised"]["devices"] == ["/device:CPU:0", "/device:CPU:1"]


def test_a_record_takes_the_place_of_the_one_before_and_nothing_else_is_left(tmp_path: Path) -> None:
    save_run(RECORD, tmp_path)
    save_run(replace(RECORD, spec="cpu:8"), tmp_path)
    assert load_run(tmp_path).spec == "cpu:8"
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_full_disk_leaves_the_record_before_and_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_run(RECORD, tmp_path)

    def full(descriptor: int) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ReportError, match="No space left on device; name another folder with --report") as caught:
        save_run(replace(RECORD, spec="cpu:8"), tmp_path)
    assert caught.value.path == str(tmp_path)
    assert load_run(tmp_path) == RECORD
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match="cannot be written: Not a directory"):
        save_run(RECORD, tmp_path / "file" / "report")


def test_a_record_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecord, match=r"run\.json: No such file or directory"):
        load_run(tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[]", "has no schema_version"),
        ("{}", "has no schema_version"),
        ('{"schema_version": "1"}', "has no schema_version"),
        ('{"schema_version": true}', "has no schema_version"),
        ('{"schema_version": 0}', "has no schema_version"),
        ('{"schema_version": 1}', "started_at: "),
        ('{"schema_version": 999}', "has schema_version 999, newer than 2: upgrade the harness"),
    ],
)
def test_what_is_no_record_is_refused_and_says_why(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(InvalidRecord, match=why) as caught:
        load_run(tmp_path / "run.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"), [("verdict", "GREEN"), ("results", [{"check": "x"}]), ("complete", "maybe"), ("elapsed_s", None)]
)
def test_a_record_with_a_bad_value_is_refused_and_names_it(tmp_path: Path, key: str, value: object) -> None:
    path = save_run(RECORD, tmp_path)
    content = json.loads(path.read_text())
    content[key] = value
    path.write_text(json.dumps(content))
    with pytest.raises(InvalidRecord, match=key):
        load_run(path)


def test_reading_and_writing_loads_no_tensorflow() -> None:
    import subprocess
    import sys

    code = "import sys, harness.report.storage, harness.report.terminal; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
