"""``harness validate``: ``--require``, ``--known-failures``, ``--quiet``, ``--json``, ``--fake``."""

from __future__ import annotations

import html
import json
import shutil
from pathlib import Path

import pytest
from command_line import run

from harness.cli.options import spec_of
from harness.records import Verdict
from harness.report.storage import load_run
from harness.softgpu.compiler import NAMES


def test_hardware_that_is_required_and_not_there_is_a_failure(tmp_path: Path) -> None:
    done = run(tmp_path, "validate", "--devices", "cpu:2", "--only", "passes", "--require", "gpu=8", "--quiet")
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert line.startswith("FAIL on cpu:2: 0 of 1 check in ")
    assert line.endswith("; gpu>=8 is required, but 0 can be used")
    record = load_run(tmp_path / "harness-report")
    assert [each.check for each in record.results] == ["required"], "it fails before a check runs"
    assert (record.verdict, record.exit_code, record.complete) == (Verdict.FAIL, 1, True)
    for enough in ("device=2", "device=1", "device>=2", "device==2"):
        met = run(tmp_path, "validate", "--devices", "cpu:2", "--only", "passes", "--require", enough)
        assert met.returncode == 0
        assert "PASS on cpu:2: 1 check " in met.stdout
    (passed,) = load_run(tmp_path / "harness-report").results
    assert passed.replay == "harness validate --devices cpu:2 --only passes --level quick"
    assert run(tmp_path, "validate", "--devices", "cpu:2", "--only", "passes", "--require", "device==1").returncode == 1


def test_devices_that_cannot_be_had_are_a_failure_where_they_are_required(tmp_path: Path) -> None:
    done = run(tmp_path, "validate", "--devices", "cpu:7", "--only", "passes", "--require", "gpu>=1")
    assert done.returncode == 1
    assert "7 moons" in done.stderr
    assert load_run(tmp_path / "harness-report").verdict is Verdict.FAIL
    without = run(tmp_path, "validate", "--devices", "cpu:7", "--only", "passes")
    assert without.returncode == 2


def test_a_known_failure_is_accepted_and_one_that_passes_again_is_told(tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(
        'schema_version = 1\n[[known]]\ncheck = "finds"\nreason = "seen before"\n'
        '[[known]]\ncheck = "passes"\nreason = "was broken"\n'
    )
    only = ("--only", "passes", "--only", "finds")
    done = run(tmp_path, "validate", *only, "--known-failures", "known.toml")
    assert done.returncode == 0
    assert "known and accepted (finds: seen before)" in " ".join(done.stdout.split())
    assert "known failure no longer occurs: passes: was broken" in done.stdout
    record = load_run(tmp_path / "harness-report")
    assert record.verdict is Verdict.WARN
    assert record.passes_again == ("passes: was broken",)
    assert run(tmp_path, "validate", *only).returncode == 1
    refused = run(tmp_path, "validate", *only, "--known-failures", "nothing.toml")
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1


def test_quiet_prints_the_verdict_alone_and_json_the_record_alone(tmp_path: Path) -> None:
    quiet = run(tmp_path, "validate", "--only", "finds", "--quiet")
    assert quiet.returncode == 1
    (line,) = quiet.stdout.splitlines()
    assert line.startswith("FAIL on auto: 1 check ")
    told = run(tmp_path, "validate", "--only", "passes", "--json")
    assert told.returncode == 0
    assert json.loads(told.stdout) == json.loads((tmp_path / "harness-report" / "run.json").read_text())
    bad = run(tmp_path, "validate", "--devices", "cpu:7", "--only", "passes", "--json")
    assert bad.returncode == 2
    assert json.loads(bad.stdout)["complete"] is False


@pytest.mark.parametrize("command", [("validate",), ("burnin", "--minutes", "1")])
def test_what_is_wrong_with_a_described_machine_is_said_in_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    for given, accepted in (
        (("--devices", "cpu:2", "--fake", "machine.toml"), "cannot be combined with --fake"),
        (("--fake", "machine"), "accepted: a .toml file, or @NAME"),
        (("--fake", "@none"), "no described machine is named @none"),
    ):
        done = run(tmp_path, *command, *given)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert accepted in line


def test_a_described_machine_stands_for_its_software_gpus() -> None:
    assert spec_of("auto", "@clean-8") == "softgpu:@clean-8"
    assert spec_of("auto", "machine.toml") == "softgpu:machine.toml"
    assert spec_of("cpu:2", None) == "cpu:2"


@pytest.mark.skipif(not any(map(shutil.which, NAMES)), reason="needs a C++ compiler, to make software GPUs")
def test_a_described_machine_is_checked_on_software_gpus_and_compared_with_its_history(tmp_path: Path) -> None:
    clean = ("validate", "--fake", "@clean-8", "--only", "cards")
    first = run(tmp_path, *clean, "--report", "first", planted=False)
    assert first.returncode == 0, first.stderr
    assert "(a described machine, not real hardware)" in first.stdout
    found = load_run(tmp_path / "first").results[0]
    note = "described, not read from hardware: the driver's list of cards (static)"
    assert found.reason.endswith(note)
    assert note in " ".join(first.stdout.split())
    assert note in html.unescape((tmp_path / "first" / "report.html").read_text(encoding="utf-8"))
    assert found.replay == "harness validate --devices softgpu:@clean-8 --only cards --level quick"
    again = ("--history", "first/run.json", "--report", "second")
    faulty = ("validate", "--fake", "@missing-of-4", "--only", "cards")
    assert run(tmp_path, *faulty, *again, planted=False).returncode == 1
    (tmp_path / "first" / "run.json").write_text("{}")
    broken = run(tmp_path, *clean, *again, planted=False)
    assert broken.returncode == 2
    assert "has no schema_version" in broken.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("validate", "--timeout", "abc"), "'--timeout': 'abc'; accepted: a number, such as 2.5"),
        (("validate", "--level", "medium"), "'--level': 'medium'; accepted: quick, standard, deep"),
        (("run", "a.py", "--timeout", "x"), "'--timeout': 'x'; accepted: a number, such as 2.5"),
        (("burnin", "--hours", "1e"), "'--hours': '1e'; accepted: a number, such as 2.5"),
        (("profile", "a.py:f", "--calls", "1.5"), "'--calls': '1.5'; accepted: a whole number, such as 3"),
        (("serve", "--port", "x"), "'--port': 'x'; accepted: a whole number, such as 3"),
        (("calibrate", "--runs", "many"), "'--runs': 'many'; accepted: a whole number, such as 3"),
    ],
)
def test_a_value_of_another_kind_is_named_with_what_is_accepted(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = run(tmp_path, *arguments, planted=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == f"Error: Invalid value for {said}"


@pytest.mark.parametrize("command", ["validate", "devices", "selftest"])
def test_a_switch_that_would_abort_tensorflow_is_refused(tmp_path: Path, command: str) -> None:
    done = run(tmp_path, command, TF_DETERMINISTIC_OPS="maybe")
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("harness: error: environment variable TF_DETERMINISTIC_OPS='maybe'; accepted: 0, 1, true, f")
