"""``harness selftest``: figures, the record, and what is refused."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from command_line import run, start

from harness.faults.selftest import SELFTEST_SCHEMA_VERSION, SelfTest
from harness.report.storage import load_versioned

pytestmark = pytest.mark.usefixtures("forked_workers")


def test_the_command_prints_the_figures_and_keeps_the_record(tmp_path: Path) -> None:
    only = ("--only", "V04", "--only", "P03-device-of-a-result")
    done = run(tmp_path, "selftest", "--devices", "cpu:3", *only, planted=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "V04-cut-by-zero: found, cause right" in done.stdout
    (row,) = (line.split() for line in done.stdout.splitlines() if "all" in line.split())
    assert [cell for cell in row if cell not in "│┃"][:6] == ["all", "2", "4", "4", "0", "0"]
    record = load_versioned(tmp_path / "harness-report" / "selftest.json", SelfTest, SELFTEST_SCHEMA_VERSION)
    assert [each.name for each in record.tried] == ["V04-cut-by-zero", "P03-device-of-a-result"]
    assert len(record.devices) == 3


def test_what_was_tried_outlives_an_interrupt(tmp_path: Path) -> None:
    with start(tmp_path, "selftest", "--devices", "cpu:3", "--only", "values", planted=False) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate(timeout=600)
    assert process.returncode == 130
    assert said == "harness: ended by SIGINT\n"
    record = load_versioned(tmp_path / "harness-report" / "selftest.json", SelfTest, SELFTEST_SCHEMA_VERSION)
    assert (record.tried[0].name, record.complete, record.good) == (first.partition(":")[0], False, False)
    assert "all" in printed.split()
    assert re.search(rf"^INTERRUPTED: {len(record.tried)} of \d+ faults tried$", printed, re.MULTILINE)


def test_what_cannot_be_tried_is_refused_in_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, "selftest", "--only", "V00", planted=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no planted fault, class or group is named 'V00'; accepted: values, " in done.stderr
    done = run(tmp_path, "selftest", "--devices", "cpu:2", planted=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "cpu:2 has 2 devices; accepted: 3 or more" in done.stderr
