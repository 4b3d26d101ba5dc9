"""``harness fleet`` and ``harness export``: what is printed and written, and the exit codes."""

from __future__ import annotations

import errno
import json
import random
import re
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
import simulated_fleet as simulated
from command_line import run

from harness.atomic_file import write_atomically
from harness.records import Host
from harness.report.storage import json_text, save_run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Twelve machines, of which one has a defective card."""
    for number in range(12):
        record = simulated.sound(number, random.Random(number))
        if number == 4:
            record, _ = simulated.plant(record, "stuck-bit", 2)
        save_run(record, tmp_path / "fleet" / simulated.name_of(record))
    return tmp_path


def test_a_report_is_printed_and_written_and_its_exit_code_is_the_verdict(store: Path) -> None:
    done = run(store, "fleet", "report")
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "FAIL: 12 machines asked, 12 reached, 12 exercised, 11 proven; 1 needs an action"
    assert lines[2].startswith("replace (1 machine): ")
    assert "sim-0004: GPU:2 (serial 1650000042" in lines[3]
    assert lines[-3:] == [
        "Report: fleet/fleet.html",
        "Report: fleet/fleet-verdict.json",
        "Report: fleet/fleet-junit.xml",
    ]
    text = run(store, "fleet", "report", "--json").stdout
    assert json.loads(text)["counts"]["action"] == 1
    assert text == (store / "fleet" / "fleet-verdict.json").read_text(encoding="utf-8"), "the same bytes"
    hidden = run(store, "fleet", "report", "--anonymous", "--output", "public").stdout
    assert "machine-0005: GPU:2 (serial card-00035" in hidden
    assert "sim-0004" not in (store / "public" / "fleet.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--levl", "quick"], "No such option: --levl"),
        (["--level", "slow"], "'slow'; accepted: quick, standard, deep"),
        (["--only", "memry"], "check 'memry' does not exist"),
    ],
)
def test_what_validate_does_not_accept_is_refused_before_a_machine_gets_it(
    tmp_path: Path, options: list[str], why: str
) -> None:
    (tmp_path / "hosts.txt").write_text("gpu-01\n", encoding="utf-8")
    done = run(tmp_path, "fleet", "run", "--hosts", "hosts.txt", "--ssh", "touch reached", "--", *options)
    assert done.returncode == 2
    assert why in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["hosts.txt"]


def test_a_plan_is_printed_and_history_tells_where_a_card_failed(store: Path) -> None:
    done = run(store, "fleet", "plan")
    assert (done.returncode, done.stderr) == (0, "")
    assert "scontrol update NodeName=sim-0004 State=DRAIN 'Reason=harness: replace: " in done.stdout
    assert "kubectl taint nodes sim-0004" in run(store, "fleet", "plan", "--scheduler", "kubernetes").stdout
    done = run(store, "fleet", "history", "--serial", "1650000042")
    assert done.returncode == 1
    assert "2026-11-01T08:00:00+00:00  FAIL     sim-0004 PCI 0000:21:00.0: did not hold" in done.stdout
    assert run(store, "fleet", "history", "--serial", "1650000041").returncode == 0
    assert run(store, "fleet", "history", "--serial", "9").returncode == 3


def test_a_store_can_be_at_a_url(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(store / "cache"))
    memory, url = fsspec.filesystem("memory"), ("--store", "memory://bucket/fleet")
    try:
        folders = [f"fleet/sim-{number:04}" for number in range(12)]
        assert run(store, "fleet", "add", *folders, *url).stdout.count("added memory://bucket/fleet/records/") == 12
        done = run(store, "fleet", "report", *url)
        assert done.stdout.splitlines()[-3:] == [
            f"Report: memory://bucket/fleet/fleet{rest}" for rest in (".html", "-verdict.json", "-junit.xml")
        ]
        there = memory.cat_file("/bucket/fleet/fleet-verdict.json").decode()
        assert run(store, "fleet", "report", "--json", "--output", "here", *url).stdout == there
        assert json.loads(there)["counts"]["action"] == 1
        assert "scontrol update NodeName=sim-0004 State=DRAIN" in run(store, "fleet", "plan", *url).stdout
        assert run(store, "fleet", "history", "--serial", "1650000042", *url).returncode == 1
        assert run(store, "fleet", "report", "--store", f"file://{store}/fleet").stdout.startswith("FAIL: 12 machines")
        done = run(store, "fleet", "report", "--store", "memory://bucket/none")
        assert done.returncode == 3
        assert done.stderr.startswith("harness: error: store memory://bucket/none: no record of any machine; ")
    finally:
        memory.rm("/bucket", recursive=True)


def test_a_store_that_is_full_ends_a_run_with_its_summary_and_the_rest_can_be_done(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store / "hosts.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    (store / "ssh").write_text(f"cat {store}/fleet/sim-0001/run.json\n", encoding="utf-8")
    arguments = ("fleet", "run", "--hosts", "hosts.txt", "--ssh", "sh ssh", "--at-once", "1", "--store", "new")

    def full(path: Path, text: str) -> None:
        if path.parent.name == "two":
            raise OSError(errno.ENOSPC, "No space left on device")
        write_atomically(path, text)

    with monkeypatch.context() as patch:
        patch.setattr("harness.fleet.files.write_atomically", full)
        done = run(store, *arguments)
    (folder,) = (store / "new" / "runs").iterdir()
    place = folder.relative_to(store)
    assert done.returncode == 2
    assert done.stdout.startswith(f"one: done\n1 of 3 machines sent a record: {place}\n")
    assert done.stderr == (
        f"harness: error: store {place}: No space left on device; the run has ended, and what has come so far is kept; "
        "harness fleet run --resume does the rest\n"
        "harness: INCOMPLETE: 2 of 3 machines have no record of this run\n"
    )
    done = run(store, "fleet", "report", "--store", "new")
    assert done.stdout.startswith("UNKNOWN, INCOMPLETE: 3 machines asked, 1 reached, 1 exercised, 1 proven")
    done = run(store, *arguments, "--resume")
    assert (done.returncode, done.stdout.splitlines()[-2]) == (0, f"3 of 3 machines sent a record: {place}")


def test_records_are_added_and_what_is_none_is_named(store: Path) -> None:
    (store / "bad.json").write_text("{", encoding="utf-8")
    other = replace(simulated.sound(20, random.Random(20)), host=Host("new"))
    (store / "good.json").write_text(json_text(other), encoding="utf-8")
    done = run(store, "fleet", "add", "bad.json", "good.json", "absent.json")
    assert done.returncode == 2
    assert done.stdout.startswith("added fleet/records/20261101T080000-new-")
    assert [line.partition(": error: ")[2].partition(":")[0] for line in done.stderr.splitlines()] == [
        "bad.json",
        "absent.json",
    ]
    assert "13 machines asked" in run(store, "fleet", "report").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fleet", "report", "--store", "absent"], "store absent: no such folder; harness fleet run --store makes it"),
        (["fleet", "report", "--store", "ftp9://a/b"], "store ftp9://a/b: Protocol not known: ftp9"),
        (["fleet", "report", "--as-of", "soon"], "--as-of 'soon'; accepted: a date, such as 2027-01-31"),
        (["fleet", "report", "--policy", "none.toml"], "policy none.toml: No such file or directory"),
        (["fleet", "plan", "--scheduler", "lsf"], "--scheduler 'lsf'; accepted: slurm, kubernetes"),
        (["fleet", "run"], "no engine given; accepted: one of --hosts FILE, --slurm, --ray ADDRESS"),
        (["fleet", "run", "--slurm", "--hosts", "a"], "--hosts and --slurm; accepted: one of"),
        (["fleet", "run", "--slurm", "--store", "memory://a/b"], "store memory://a/b: the machines write to a folder"),
        (
            ["fleet", "links", "--slurm", "--store", "memory://a/b"],
            "store memory://a/b: the machines write to a folder",
        ),
        (["fleet", "run", "--hosts", "absent"], "--hosts absent: No such file or directory"),
        (["fleet", "run", "--slurm", "--limit", "0"], "--limit 0; accepted: a number of seconds above 0"),
        (["fleet", "links"], "no engine given; accepted: one of --hosts FILE, --slurm, --ray ADDRESS"),
        (["fleet", "links", "--slurm", "--ring", "2"], "--rounds 3 --ring 2 --port 8520; accepted: --rounds 1 or more"),
        (["fleet", "links", "--slurm", "--wait", "0"], "--wait 0; accepted: a number of seconds above 0"),
        (["fleet", "exchange", "x", "--finished", "f", "--report", "r"], "no plan of exchanges: "),
        (["fleet", "manifest"], "--image is missing; accepted: a container image"),
        (["export", "openmetrics", "--run", "absent.json"], "absent.json: No such file or directory"),
    ],
)
def test_what_cannot_be_used_is_one_clear_line(store: Path, arguments: list[str], message: str) -> None:
    done = run(store, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"harness: error: {message}")
    assert done.stderr.count("\n") == 1


def test_a_cluster_without_its_tools_is_one_clear_line(store: Path) -> None:
    done = run(store, "fleet", "run", "--slurm", PATH="/nowhere")
    assert done.stderr == "harness: error: sinfo: not found; is its client installed on this machine?\n"
    done = run(store, "fleet", "return", "sim-0004", "--scheduler", "kubernetes", PATH="/nowhere")
    assert done.stderr == "harness: error: kubectl: not found; is its client installed on this machine?\n"


def test_metrics_and_manifests_are_printed(store: Path) -> None:
    done = run(store, "export", "openmetrics", "--run", "fleet/sim-0004", "--output", "harness.prom")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert re.search(r'action="replace",.*} 1\.0', (store / "harness.prom").read_text(encoding="utf-8"))
    assert run(store, "export", "openmetrics", "--rules").stdout.startswith("groups:\n")
    done = run(store, "fleet", "manifest", "--image", "a/b:1", "--count", "4", "--", "--level", "deep")
    assert "completions: 4" in done.stdout
    assert '- "--level"\n            - deep' in done.stdout
