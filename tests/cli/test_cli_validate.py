"""``harness validate`` with planted checks: what is printed, what is stored, and the exit code."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run, run_process, start
from ended_processes import is_gone, wait_until

from harness.plural import plural
from harness.records import Verdict
from harness.report.storage import load_run

pytest_plugins = ["waiting_clock"]


@pytest.mark.parametrize(
    ("checks", "code", "verdict"),
    [
        (["passes", "passes-too"], 0, Verdict.PASS),
        (["passes", "needs-many"], 0, Verdict.PASS),
        (["passes", "warns"], 0, Verdict.WARN),
        (["passes", "finds"], 1, Verdict.FAIL),
        (["raises"], 1, Verdict.FAIL),
        (["crashes", "passes"], 1, Verdict.FAIL),
        (["vacuous", "finds"], 1, Verdict.FAIL),
        (["passes", "vacuous"], 3, Verdict.UNKNOWN),
        (["needs-many"], 3, Verdict.UNKNOWN),
    ],
)
def test_the_exit_code_follows_the_verdicts(tmp_path: Path, checks: list[str], code: int, verdict: Verdict) -> None:
    only = [word for check in checks for word in ("--only", check)]
    done = run(tmp_path, "validate", "--devices", "cpu:2", *only)
    assert done.returncode == code, done.stderr
    assert done.stderr == ""
    assert f"{verdict} on cpu:2: {plural(len(checks), 'check')} in " in done.stdout
    record = load_run(tmp_path / "harness-report")
    assert (record.verdict, record.exit_code, record.complete) == (verdict, code, True)
    assert {result.check for result in record.results} == set(checks)


@pytest.mark.usefixtures("begun")
def test_a_run_goes_on_after_a_crash_and_a_hang_and_tells_both(tmp_path: Path) -> None:
    only = [word for check in ("crashes", "hangs", "passes-too") for word in ("--only", check)]
    done = run(tmp_path, "validate", "--timeout", "60", "--report", "here", *only)
    assert done.returncode == 1
    assert "killed by SIGABRT" in done.stdout
    assert "timed out after 60 s" in done.stdout
    assert "Record: here/run.json" in done.stdout
    crashed, hung, passed = load_run(tmp_path / "here").results
    assert "in _crashes" in crashed.findings[0].found
    assert "in _hangs" in hung.findings[0].found
    assert passed.verdict is Verdict.PASS


def test_each_check_is_a_plain_line_as_it_runs_where_there_is_no_terminal(tmp_path: Path) -> None:
    done = run(tmp_path, "validate", "--only", "passes", "--only", "finds")
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        "devices: planted",
        "[1/2] passes: planted: passes (about 1 s)",
        "      PASS passes after 0.0 s: 3 values, 2 ops on 2 devices",
    ]
    assert "\x1b" not in done.stdout


def test_lines_come_as_the_checks_run(tmp_path: Path) -> None:
    with start(tmp_path, "validate", "--only", "passes", "--only", "hangs") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("[2/2] hangs"):
                break  # it is said before the check ends: it never does
        process.terminate()


def test_a_bar_says_what_runs_on_a_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "harness", "validate", "--only", "passes", "--only", "finds"]
    planted = str(Path(__file__).resolve().parent.parent / "checking")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([planted, *sys.path]),
        "_HARNESS_SUITE": "planted_checks:SUITE",
        "TERM": "xterm",
        "CI": "",
    }
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:  # how Linux says that the other side is closed
            pass
    os.close(ours)
    assert process.returncode == 1
    assert b"starting TensorFlow" in shown
    assert b"2/2" in shown
    assert shown.count(b"\x1b[?25h") >= 1
    assert b"[1/2]" not in shown


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_keeps_what_was_finished_and_leaves_no_process(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    pids = tmp_path / "pids"
    only = ["--only", "passes", "--only", "hangs-with-child"]
    with start(tmp_path, "validate", *only, PLANTED_PIDS=str(pids)) as process:
        assert wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        assert wait_until(lambda: len(load_run(tmp_path / "harness-report").results) == 1)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=600)
    assert process.returncode == code
    assert "Traceback" not in stderr
    assert f"ended by {number.name}" in stderr
    assert "INTERRUPTED" in stdout
    record = load_run(tmp_path / "harness-report")
    assert (record.complete, record.verdict, record.exit_code) == (False, Verdict.UNKNOWN, code)
    assert [result.check for result in record.results] == ["passes"]
    assert record.planned == ("passes", "hangs-with-child")
    assert wait_until(lambda: all(is_gone(int(pid)) for pid in pids.read_text().split()))


def test_a_killed_run_leaves_no_process_and_an_incomplete_record(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    only = ["--only", "passes", "--only", "hangs-with-child"]
    with start(tmp_path, "validate", *only, PLANTED_PIDS=str(pids)) as process:
        assert wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        assert wait_until(lambda: len(load_run(tmp_path / "harness-report").results) == 1)
        process.kill()
        process.communicate(timeout=600)
    assert wait_until(lambda: all(is_gone(int(pid)) for pid in pids.read_text().split()))
    record = load_run(tmp_path / "harness-report")
    assert (record.complete, record.exit_code) == (False, 3)
    assert [result.check for result in record.results] == ["passes"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--devices", "cpu:0"], "device spec 'cpu:0': at least 1 device is needed"),
        (["--devices", "four"], "device spec 'four': unknown; accepted: auto, cpu:N"),
        (["--devices", "@nope"], "no such profile; accepted: @cpu-2"),
        (["--devices", "nope.toml"], "device spec 'nope.toml': the profile cannot be read"),
        (["--devices", "broken.toml"], "profile broken.toml: soft_placement = 3"),
        (["--devices", "cpu:7"], "device spec 'cpu:7' needs 7 moons; available: CPU:0"),
        (["--only", "nope"], "check 'nope' does not exist; accepted: passes, finds"),
        (["--timeout", "0"], "--timeout 0; accepted: a number of seconds above 0"),
        (["--timeout", "nan"], "--timeout nan; accepted: a number of seconds above 0"),
        (["--timeout", "-1"], "--timeout -1; accepted: a number of seconds above 0"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "broken.toml").write_text('schema_version = 1\ndescription = "x"\nspec = "cpu:2"\nsoft_placement = 3\n')
    done = run(tmp_path, "validate", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("harness: error: ")
    assert message in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--timeout", "soon"], "--timeout"), (["--bogus"], "--bogus"), (["--report", "file"], "'file' is a file")],
)
def test_bad_options_name_the_option_and_exit_with_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "file").write_text("")
    done = run(tmp_path, "validate", *arguments)
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_what_refused_the_devices_is_in_the_record(tmp_path: Path) -> None:
    run(tmp_path, "validate", "--devices", "cpu:7")
    record = load_run(tmp_path / "harness-report")
    assert (record.complete, record.exit_code, record.results) == (False, 2, ())
    assert "7 moons" in record.spec_reason


@pytest.mark.parametrize(("check", "code"), [("passes", 2), ("finds", 1), ("vacuous", 3)])
def test_a_report_that_cannot_be_written_is_said_and_the_verdict_is_still_had(
    tmp_path: Path, check: str, code: int
) -> None:
    (tmp_path / "file").write_text("")
    done = run(tmp_path, "validate", "--only", check, "--report", "file/report", TMPDIR=str(tmp_path))
    assert done.returncode == code
    assert "report folder file/report cannot be written: Not a directory" in done.stderr
    assert "Traceback" not in done.stderr
    assert ": 1 check in " in done.stdout
    assert "Record:" not in done.stdout
    (logs,) = tmp_path.glob("harness-logs-*")
    assert (logs / "worker-1.log").exists()


def test_a_reader_that_goes_away_does_not_end_the_run(tmp_path: Path) -> None:
    with start(tmp_path, "validate", "--only", "passes", "--only", "passes-too") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=600) == 0
    assert load_run(tmp_path / "harness-report").complete


def test_the_record_of_an_earlier_run_does_not_outlive_the_beginning_of_the_next(tmp_path: Path) -> None:
    assert run(tmp_path, "validate", "--only", "passes").returncode == 0
    with start(tmp_path, "validate", "--only", "hangs") as process:
        assert wait_until(lambda: load_run(tmp_path / "harness-report").planned == ("hangs",))
        process.kill()
    assert load_run(tmp_path / "harness-report").exit_code == 3


def test_output_in_an_encoding_that_lacks_a_character_is_escaped(tmp_path: Path) -> None:
    done = run_process(tmp_path, "validate", "--only", "passes", "--report", "ü", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "Record: \\xfc/run.json" in done.stdout
    assert load_run(tmp_path / "ü").complete
