"""Checks run in a process of their own: planted ones that crash, hang, raise, print, or do what they should."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from harness.checking.check import Check
from harness.checking.run import Event, Plan, run_checks, shared_out
from harness.checking.suite import load_suite
from harness.errors import RefusedByWorker
from harness.records import CheckResult, Verdict
from harness.runner.messages import Finished, Ready, Started

pytest_plugins = ["waiting_clock"]
pytestmark = pytest.mark.usefixtures("forked_workers")

PLANTED = "planted_checks:SUITE"


def events(tmp_path: Path, *checks: str, spec: str = "cpu:2", timeout_s: float = 300, **limits: float) -> list[Event]:
    return list(run_checks(Plan(spec, checks, tmp_path / "logs", PLANTED, timeout_s, **limits)))  # type: ignore[arg-type]


def results(
    tmp_path: Path, *checks: str, spec: str = "cpu:2", timeout_s: float = 300, **limits: float
) -> list[CheckResult]:
    happened = events(tmp_path, *checks, spec=spec, timeout_s=timeout_s, **limits)
    return [event.result for event in happened if isinstance(event, Finished)]


def is_gone(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    return True


def wait_until(true: Callable[[], bool], limit_s: float = 300) -> bool:
    deadline = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_checks_that_do_what_they_should_are_told_as_they_begin_and_end(tmp_path: Path) -> None:
    ready, *rest = events(tmp_path, "passes", "passes-too")
    assert isinstance(ready, Ready)
    assert ready.reason == "planted"
    assert ready.fingerprint.spec == "cpu:2"
    assert [type(event) for event in rest] == [Started, Finished, Started, Finished]
    result = rest[1].result if isinstance(rest[1], Finished) else None
    assert result is not None
    assert result.verdict is Verdict.PASS
    assert result.exercised.devices == ready.devices
    assert result.measured == {"largest_error_ulp": 0.5}
    assert result.log == str(tmp_path / "logs" / "worker-1.log")


def test_events_come_as_they_happen(tmp_path: Path) -> None:
    stream = run_checks(Plan("cpu:2", ("passes", "hangs"), tmp_path, PLANTED))
    with contextlib.closing(stream):
        finished = next(event for event in stream if isinstance(event, Finished))
    assert finished.result.check == "passes"  # while the next one hangs


def test_a_crash_fails_the_check_that_ran_with_stacks_and_log_and_the_rest_goes_on(tmp_path: Path) -> None:
    crashed, after = results(tmp_path, "crashes", "passes")
    assert crashed.verdict is Verdict.FAIL
    assert "killed by SIGABRT" in crashed.reason
    assert "in _crashes" in crashed.reason
    (finding,) = crashed.findings
    assert finding.kind == "error"
    assert "Fatal Python error: Aborted" in finding.found
    assert "in _crashes" in finding.found
    assert "about to crash" in finding.found
    assert crashed.log is not None
    assert Path(crashed.log).read_text() == "about to crash\n"
    assert after.verdict is Verdict.PASS
    assert after.log == str(tmp_path / "logs" / "worker-2.log")


def test_a_process_that_ends_without_a_word_fails_the_check_that_ran(tmp_path: Path) -> None:
    ended, after = results(tmp_path, "ends-at-once", "passes")
    assert (ended.verdict, ended.reason) == (Verdict.FAIL, "its process ended: exit code 0")
    assert after.verdict is Verdict.PASS


@pytest.mark.usefixtures("begun")
def test_a_hang_fails_the_check_that_ran_with_its_stacks_and_the_rest_goes_on(tmp_path: Path) -> None:
    before, hung, after = results(tmp_path, "passes", "hangs", "passes-too", timeout_s=60)
    assert before.verdict is Verdict.PASS
    assert hung.verdict is Verdict.FAIL
    assert "timed out after 60 s" in hung.reason
    assert "in _hangs" in hung.reason
    assert "in _hangs" in hung.findings[0].found
    assert hung.elapsed_s >= 60
    assert after.verdict is Verdict.PASS


def test_a_check_within_its_limit_is_left_alone(tmp_path: Path) -> None:
    (result,) = results(tmp_path, "passes", timeout_s=300)
    assert result.verdict is Verdict.PASS


@pytest.mark.usefixtures("begun")
def test_what_a_hanging_check_started_is_ended_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_PIDS", str(tmp_path / "pids"))
    (hung,) = results(tmp_path, "hangs-with-child")
    assert hung.verdict is Verdict.FAIL
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    assert wait_until(lambda: all(is_gone(pid) for pid in pids))


def test_a_crash_is_seen_though_a_forked_child_holds_the_pipe_open(tmp_path: Path) -> None:
    began = time.monotonic()
    crashed, after = results(tmp_path, "crashes-with-forked-child", "passes")
    assert crashed.verdict is Verdict.FAIL
    assert "killed by SIGKILL" in crashed.reason
    assert after.verdict is Verdict.PASS
    assert time.monotonic() - began < 300


def test_a_check_that_raises_or_leaves_fails_and_the_process_goes_on(tmp_path: Path) -> None:
    raised, left, after = results(tmp_path, "raises", "exits", "passes")
    assert (raised.verdict, raised.reason) == (Verdict.FAIL, "raised ValueError: planted failure")
    assert (left.verdict, left.reason) == (Verdict.FAIL, "raised SystemExit: 0")
    assert after.log == raised.log


def test_what_a_check_prints_goes_to_the_log_and_is_no_message(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (result,) = results(tmp_path, "prints")
    assert result.verdict is Verdict.PASS
    log = (tmp_path / "logs" / "worker-1.log").read_text()
    assert '{"message": "Finished"' in log
    assert "chatter on stderr" in log
    assert "chatter from below Python" in log
    assert capfd.readouterr() == ("", "")


def test_a_check_finds_its_stdin_empty(tmp_path: Path) -> None:
    (result,) = results(tmp_path, "reads-stdin")
    assert result.verdict is Verdict.PASS


def test_the_central_rules_hold_in_the_process_too(tmp_path: Path) -> None:
    vacuous, warned, skipped, found = results(tmp_path, "vacuous", "warns", "needs-many", "finds")
    assert [vacuous.verdict, warned.verdict] == [Verdict.UNKNOWN, Verdict.WARN]
    assert [skipped.verdict, found.verdict] == [Verdict.SKIP, Verdict.FAIL]
    assert found.findings[0].found == "1.001"


def test_stacks_are_kept_only_where_something_went_wrong(tmp_path: Path) -> None:
    results(tmp_path, "crashes", "passes")
    kept = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert kept == ["worker-1.log", "worker-1.stacks", "worker-2.log"]


def test_logs_of_an_earlier_run_are_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name in ("worker-7.log", "worker-7.stacks", "trace.log", "worker.txt"):
        (tmp_path / "logs" / name).write_text("of an earlier run")
    results(tmp_path, "passes")
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["trace.log", "worker-1.log", "worker.txt"]


def test_devices_that_cannot_be_had_are_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(RefusedByWorker, match="needs 7 moons") as caught:
        results(tmp_path, "passes", spec="cpu:7")
    assert caught.value.error == "DevicesUnavailable"


def test_a_crash_while_the_devices_are_set_up_fails_one_check_and_leaves_the_rest_unknown(tmp_path: Path) -> None:
    first, second, third = results(tmp_path, "passes", "finds", "passes-too", spec="cpu:8")
    assert first.verdict is Verdict.FAIL
    assert "while the devices were being configured" in first.reason
    assert "SIGABRT" in first.reason
    for other in (second, third):
        assert other.verdict is Verdict.UNKNOWN
        assert "did not start" in other.reason
        assert "passes" in other.next_step
    assert sorted(path.name for path in (tmp_path / "logs").glob("*.log")) == ["worker-1.log"]


@pytest.mark.usefixtures("begun")
def test_a_hang_while_the_devices_are_set_up_has_a_limit_of_its_own(tmp_path: Path) -> None:
    first, second = results(tmp_path, "passes", "finds", spec="cpu:9", startup_limit_s=60)
    assert "timed out after 60 s" in first.reason
    assert "in _devices" in first.reason
    assert second.verdict is Verdict.UNKNOWN


def test_closing_the_stream_ends_the_process_and_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pids"
    monkeypatch.setenv("PLANTED_PIDS", str(pids))
    stream = run_checks(Plan("cpu:2", ("hangs-with-child",), tmp_path, PLANTED))
    assert isinstance(next(stream), Ready)
    assert isinstance(next(stream), Started)
    assert wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    stream.close()
    assert wait_until(lambda: all(is_gone(int(pid)) for pid in pids.read_text().split()))


def test_two_processes_share_the_checks_and_nothing_runs_beside_one_that_is_timed(tmp_path: Path) -> None:
    checks = ("passes", "finds", "prints", "passes-too", "warns")
    plan = Plan("cpu:2", checks, tmp_path, PLANTED, 300, beside=("prints", "warns"), alone=("finds", "passes-too"))
    happened = list(run_checks(plan))
    order = [event.result.check for event in happened if isinstance(event, Finished)]
    assert order[:2] == ["finds", "passes-too"]
    assert sorted(order) == sorted(checks)
    logs = {event.result.check: Path(event.result.log or "").name for event in happened if isinstance(event, Finished)}
    assert logs == {
        **dict.fromkeys(("passes", "finds", "passes-too"), "worker-1.log"),
        **dict.fromkeys(("prints", "warns"), "worker-beside-1.log"),
    }
    # Both start up first, and the second waits until the timed checks are done.
    assert [type(event) for event in happened[:3]] == [Ready, Ready, Started]
    begun = [event.check for event in happened if isinstance(event, Started)]
    assert min(map(begun.index, ("prints", "warns"))) > max(map(begun.index, ("finds", "passes-too")))


def test_a_check_that_hangs_in_one_process_does_not_hold_up_the_other(tmp_path: Path) -> None:
    plan = Plan("cpu:2", ("hangs", "passes"), tmp_path, PLANTED, beside=("passes",))
    with contextlib.closing(run_checks(plan)) as stream:
        finished = next(event for event in stream if isinstance(event, Finished))
    assert finished.result.check == "passes"


def test_each_of_two_processes_is_replaced_when_it_is_lost(tmp_path: Path) -> None:
    checks = ("crashes", "passes", "ends-at-once", "passes-too")
    plan = Plan("cpu:2", checks, tmp_path, PLANTED, 300, beside=checks[2:])
    found = {event.result.check: event.result for event in run_checks(plan) if isinstance(event, Finished)}
    assert [found[check].verdict for check in checks] == [Verdict.FAIL, Verdict.PASS, Verdict.FAIL, Verdict.PASS]


def test_nothing_runs_in_a_second_process_where_the_devices_cannot_be_set_up(tmp_path: Path) -> None:
    plan = Plan("cpu:8", ("passes", "finds", "passes-too"), tmp_path, PLANTED, 300, beside=("passes-too",))
    found = [event.result for event in run_checks(plan) if isinstance(event, Finished)]
    assert [result.verdict for result in found] == [Verdict.FAIL, Verdict.UNKNOWN, Verdict.UNKNOWN]
    assert "not run" in found[2].reason


def test_checks_are_shared_out_by_their_time_and_those_of_hardware_are_not() -> None:
    def check(name: str, typical_s: float, *, hardware: bool = False) -> Check:
        first = load_suite(PLANTED).checks[0]
        return replace(first, id=name, typical_s=typical_s, hardware=hardware)

    copies = check("copies", 50, hardware=True)
    checks = [copies, check("a", 15), check("b", 8), check("c", 6), check("d", 1)]
    assert shared_out(checks, alone=("copies",)) == ("b", "c", "d")
    assert shared_out(checks) == ("a", "b", "c", "d"), "what need not be alone counts"
    assert shared_out([check("memory", 9, hardware=True), check("a", 15), check("b", 8)]) == ("a",)
    assert shared_out([copies, check("a", 3)], alone=("copies",)) == ()
    assert shared_out([]) == ()


def test_no_checks_start_no_process(tmp_path: Path) -> None:
    assert events(tmp_path) == []
    assert not (tmp_path / "logs").exists()


def test_the_process_does_not_import_what_lies_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('the wrong json')\n")
    monkeypatch.chdir(tmp_path)
    (result,) = results(tmp_path, "passes")
    assert result.verdict is Verdict.PASS


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    results(tmp_path, "passes")
    before = psutil.Process().num_fds()
    results(tmp_path, "crashes", "passes")
    assert psutil.Process().num_fds() == before
