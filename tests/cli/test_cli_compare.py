"""``harness compare`` and ``harness calibrate``, with runs and with commands whose speedups are made up."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import run, start
from ended_processes import is_gone, wait_until
from synthetic_runs import FINGERPRINT, record, write

from harness.records import ExitCode

#: A command that writes a run: the speedup around which it lies, or a file that says it, then where. Each call scatters
#: otherwise.
_MEASURE = """
import json, random, sys
from pathlib import Path
given, path = Path(sys.argv[1]), Path(sys.argv[2])
speedup = float(given.read_text() if given.is_file() else sys.argv[1])
content = json.loads(Path(__file__).with_name("base.json").read_text())
draw = random.Random(path.name)
for benchmark in content["benchmarks"]:
    kept = benchmark["extra_info"]["harness"]
    factor = 1.9 / (speedup * draw.lognormvariate(0.0, 0.004))
    kept["parallel_ns"] = [round(time * factor) for time in kept["parallel_ns"]]
path.write_text(json.dumps(content))
print("measured", speedup)
"""


@pytest.fixture
def measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a command that measures, the run that it starts from, and a folder for temporary files."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "measure.py").write_text(_MEASURE, encoding="utf-8")
    write(tmp_path / "base.json", {"one": record(1.9), "two": record(1.9, seed=1)})
    return tmp_path


def _command(speedup: float, folder: Path) -> str:
    return f"{sys.executable} {folder / 'measure.py'} {speedup} {{json}}"


def _compare(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(folder, "compare", *arguments, planted=False)


@pytest.mark.parametrize(
    ("new", "threshold", "code", "said"),
    [
        (1.9, "5%", ExitCode.SUCCESS, "PASS: no loss of speedup beyond 5.0% was shown in 1 benchmark"),
        (1.5, "5%", ExitCode.FAILURE, "FAIL: a loss of speedup beyond 5.0% in 1 of 1 benchmark: a.py::one"),
        (1.5, "0.4", ExitCode.SUCCESS, "PASS: no loss of speedup beyond 40.0% was shown"),
    ],
)
def test_two_files_are_judged(tmp_path: Path, new: float, threshold: str, code: ExitCode, said: str) -> None:
    write(tmp_path / "base.json", {"a.py::one": record(1.9)})
    write(tmp_path / "new.json", {"a.py::one": record(new, seed=5, second=new)})
    done = _compare(tmp_path, "base.json", "new.json", "--threshold", threshold)
    assert (done.returncode, done.stderr) == (code, "")
    assert said in done.stdout
    assert "variation between runs: ± 1.3% (default, not calibrated on this machine)" in done.stdout


def test_a_loss_that_was_measured_once_alone_is_unknown(tmp_path: Path) -> None:
    write(tmp_path / "base.json", {"a.py::one": record(1.9)})
    write(tmp_path / "new.json", {"a.py::one": record(1.5, seed=5)})
    done = _compare(tmp_path, "base.json", "new.json", "--threshold", "5%")
    assert done.returncode == ExitCode.UNKNOWN
    assert "--harness-speedup-twice" in done.stdout


def test_what_cannot_be_told_is_a_warning_unless_it_has_to_be_told(tmp_path: Path) -> None:
    write(tmp_path / "base.json", {"one": record(scatter=0.3, seed=1)})
    write(tmp_path / "new.json", {"one": record(scatter=0.3, seed=2)})
    done = _compare(tmp_path, "base.json", "new.json")
    assert done.returncode == ExitCode.SUCCESS
    assert "WARN: cannot tell: no loss" in done.stdout
    assert _compare(tmp_path, "base.json", "new.json", "--strict").returncode == ExitCode.UNKNOWN


def test_another_machine_is_unknown(tmp_path: Path) -> None:
    write(tmp_path / "base.json", {"one": record()})
    write(tmp_path / "new.json", {"one": record()}, replace(FINGERPRINT, cpu_model="Another CPU"))
    done = _compare(tmp_path, "base.json", "new.json")
    assert done.returncode == ExitCode.UNKNOWN
    assert "differs: cpu_model: 'A CPU' in the baseline, 'Another CPU' now" in done.stdout


def test_nothing_in_common_is_unknown(tmp_path: Path) -> None:
    write(tmp_path / "base.json", {"one": record()})
    write(tmp_path / "new.json", {"other": record()})
    done = _compare(tmp_path, "base.json", "new.json")
    assert done.returncode == ExitCode.UNKNOWN
    assert "UNKNOWN: nothing was compared" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "0 comparisons given; accepted: exactly one of these: two files"),
        (("base.json",), "1 file given; accepted: two"),
        (("base.json", "gone.json"), "gone.json: No such file or directory"),
        (("base.json", "empty.json"), "empty.json: is not JSON"),
        (("base.json", "base.json", "--ab", "a", "b"), "2 comparisons given; accepted: exactly one of"),
        (("base.json", "base.json", "--threshold", "much"), "--threshold 'much'; accepted: a percentage"),
        (("--ab", "", "b"), "command '' is empty"),
        (("--ab", "'a", "b"), "No closing quotation"),
        (("--ab", "no-such-program", "b"), "no-such-program cannot be started"),
        (("--ab", "true", "true", "--rounds", "0"), "--rounds 0; accepted: 1 or more"),
        (("--ab", "true", "true"), "a command that does not run pytest must contain {json}"),
        (("--ab-revisions", "HEAD", "HEAD~1"), "accepted: revisions of the repository in"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path: Path, arguments: tuple[str, ...], why: str) -> None:
    write(tmp_path / "base.json", {"one": record()})
    (tmp_path / "empty.json").touch()
    done = _compare(tmp_path, *arguments)
    assert done.returncode == ExitCode.USAGE
    assert why in done.stderr
    assert done.stderr.splitlines()[-1].startswith("harness: error: ")


@pytest.mark.parametrize(
    ("damage", "why"),
    [("[" * 100_000, "is nested too deeply"), (str(10**400), "an integer of 1,329 bits is too large")],
)
def test_a_damaged_baseline_is_one_line(tmp_path: Path, damage: str, why: str) -> None:
    write(tmp_path / "base.json", {"one": record()})
    write(tmp_path / "new.json", {"one": record()})
    text = (tmp_path / "base.json").read_text()
    (tmp_path / "base.json").write_text(re.sub(r'("single_ns": \[)\s*\d+', rf"\g<1>{damage}", text), encoding="utf-8")
    done = _compare(tmp_path, "base.json", "new.json")
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("harness: error: base.json")
    assert why in line


def test_two_commands_are_run_in_turn_and_judged(measuring: Path) -> None:
    same = _compare(measuring, "--ab", _command(1.9, measuring), _command(1.9, measuring))
    assert same.returncode == ExitCode.SUCCESS
    order = [line.rpartition(" ")[2] for line in same.stderr.splitlines() if ": run " in line]
    assert order == list("ABBAABBA")
    lost = _compare(measuring, "--ab", _command(1.9, measuring), _command(1.6, measuring), "--rounds", "1")
    assert lost.returncode == ExitCode.FAILURE
    assert "against A (2 runs) alternating with B (2 runs)" in lost.stdout
    assert "FAIL: worse by more than the threshold" in lost.stdout
    assert list(measuring.glob("temporary/harness-*")) == []


def test_a_command_that_fails_is_told_with_what_it_said(measuring: Path) -> None:
    failing = f"{sys.executable} -c 'raise SystemExit(\"out of order\")' {{json}}"
    done = _compare(measuring, "--ab", failing, _command(1.9, measuring))
    assert done.returncode == ExitCode.UNKNOWN
    assert "exit code 1" in done.stderr
    assert "out of order" in done.stderr
    [log] = measuring.glob("temporary/harness-compare-*/*.log")
    assert f"output in {log}" in done.stderr


def test_two_revisions_are_judged_and_their_work_trees_are_gone(measuring: Path) -> None:
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.com")
        return subprocess.run(
            ["git", *who, *arguments], cwd=measuring, check=True, capture_output=True, text=True
        ).stdout

    git("init", "--quiet")
    for speedup in (1.9, 1.5):
        (measuring / "speedup.txt").write_text(str(speedup), encoding="utf-8")
        git("add", "-A")
        git("commit", "--quiet", "-m", str(speedup))
    command = f"{sys.executable} measure.py speedup.txt {{json}}"
    done = _compare(measuring, "--ab-revisions", "HEAD~1", "HEAD", "--command", command, "--rounds", "1")
    assert done.returncode == ExitCode.FAILURE, done.stderr
    assert "FAIL: a loss of speedup beyond 5.0% in 2 of 2 benchmarks: one, two" in done.stdout
    assert len(git("worktree", "list").splitlines()) == 1
    assert list(measuring.glob("temporary/harness-*")) == []


def test_a_calibration_is_made_kept_and_used(measuring: Path) -> None:
    done = run(measuring, "calibrate", "--runs", "5", "--command", _command(1.9, measuring), planted=False)
    assert done.returncode == ExitCode.SUCCESS, done.stderr
    [kept] = (measuring / ".benchmarks").glob("*/calibration.json")
    assert json.loads(kept.read_text())["runs"] == 5
    assert list(measuring.glob("temporary/harness-*")) == []
    line = next(line for line in done.stdout.splitlines() if line.startswith("on this machine: 0 false alarms in 20"))
    assert line in _compare(measuring, "base.json", "base.json").stdout
    kept.write_text("{", encoding="utf-8")
    damaged = _compare(measuring, "base.json", "base.json")
    assert damaged.returncode == ExitCode.USAGE
    assert "calibration.json: is not JSON" in damaged.stderr


def test_too_few_runs_calibrate_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "calibrate", "--runs", "3", planted=False)
    assert done.returncode == ExitCode.USAGE
    assert "--runs 3; accepted: 4 or more" in done.stderr


@pytest.mark.parametrize("arguments", [("compare", "--ab"), ("calibrate", "--command")])
def test_finished_runs_outlive_an_interrupt(measuring: Path, arguments: tuple[str, ...]) -> None:
    begun = measuring / "begun"
    (measuring / "hang.py").write_text(
        "import pathlib, runpy, sys, time\n"
        "if '002' in sys.argv[2] or '02-' in sys.argv[2]:\n"
        f"    pathlib.Path({str(begun)!r}).touch()\n"
        "    time.sleep(600)\n"
        "runpy.run_path(str(pathlib.Path(__file__).with_name('measure.py')), run_name='__main__')\n",
        encoding="utf-8",
    )
    command = f"{sys.executable} {measuring / 'hang.py'} 1.9 {{json}}"
    commands = (command, command) if arguments[0] == "compare" else (command,)
    with start(measuring, *arguments, *commands, planted=False) as process:
        assert wait_until(begun.exists)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=600)
    assert process.returncode == 130
    found = re.search(
        r"^harness: 1 finished run kept in (.*); `harness compare` compares two of its files$", said, re.MULTILINE
    )
    assert found is not None, said
    [kept] = Path(found[1]).glob("*.json")
    assert _compare(measuring, str(kept), str(kept)).returncode == ExitCode.SUCCESS
    shutil.rmtree(found[1])


def test_ended_by_sigterm_it_leaves_no_process(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    sleeper = (
        f"{sys.executable} -c \"import os,time; open(r'{pid}', 'w').write(str(os.getpid())); time.sleep(600)\" {{json}}"
    )
    with start(tmp_path, "compare", "--ab", sleeper, sleeper, planted=False) as process:
        assert wait_until(lambda: pid.exists() and pid.read_text() != "")
        process.terminate()
        process.communicate(timeout=600)
    assert process.returncode == 143
    assert wait_until(lambda: is_gone(int(pid.read_text())))


def test_the_settings_of_the_project_are_the_defaults(tmp_path: Path) -> None:
    write(tmp_path / "base.json", {"one": record(1.9)})
    write(tmp_path / "new.json", {"one": record(1.9, seed=2)})
    settings = tmp_path / "pyproject.toml"
    settings.write_text('[tool.harness]\nthreshold = "40%"\nlevel = "deep"\n')
    assert "accepted loss: 40.0%" in _compare(tmp_path, "base.json", "new.json").stdout
    assert "accepted loss: 7.0%" in _compare(tmp_path, "base.json", "new.json", "--threshold", "7%").stdout
    settings.write_text('[tool.harness]\nthreshold = "many"\n')
    done = run(tmp_path, "list")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"settings {settings}: tool.harness.threshold = 'many'; accepted: a percentage above 0%" in line
    settings.write_text('[tool.harness]\ntreshold = "40%"\n')
    done = _compare(tmp_path, "base.json", "new.json")
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert "(did you mean 'threshold'?)" in done.stderr
