"""A burn-in goes on after an interruption, ends in time, and says when each error came."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import run

from harness.checking.suite import Suite
from harness.checks.registry import SUITE
from harness.cli import burnin
from harness.cli.burnin import burn
from harness.errors import InvalidRecord
from harness.records import CheckResult, Exercised, Finding, Fingerprint, Series, Verdict
from harness.report.burnin import FILE, MOST_POINTS, BurnIn
from harness.report.recording import RunRecording
from harness.runner.messages import Finished, Ready

HOT = Finding("sensor", "throttling", "GPU:1", "none", "heat", "GPU:1 throttles", subject="heat")
CHECKS = ("sustained-load", "memory")


def result(check: str, *findings: Finding, value: float = 50.0) -> CheckResult:
    curve = Series("temperature", "C", "GPU:1", (0.0, 1.0), (value, value + 1))
    verdict = Verdict.FAIL if findings else Verdict.PASS
    return CheckResult(check, verdict, "as it is", "", Exercised(values=10), findings, 2.0, series=(curve,))


class Clock:
    """Each look takes a second."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


class Rounds:
    """Rounds of two checks; the load fails from a round on, and ^C comes in the middle of another."""

    def __init__(self, fails_from: int = 99, stops_in: int = 99) -> None:
        self.number, self.closed = 0, 0
        self.asked: list[tuple[str, ...]] = []
        self.fails_from, self.stops_in = fails_from, stops_in

    def __call__(self, checks: tuple[str, ...] = CHECKS) -> Iterator[Finished]:
        self.number += 1
        self.asked.append(checks)
        try:
            if CHECKS[0] in checks:
                failing = [HOT] if self.number >= self.fails_from else []
                yield Finished(result(CHECKS[0], *failing, value=float(self.number)))
            if self.number == self.stops_in:
                raise KeyboardInterrupt
            yield Finished(result(CHECKS[1]))
        finally:
            self.closed += 1


def recording(folder: Path) -> RunRecording:
    return RunRecording(folder, harness="0", command=(), spec="gpu", planned=CHECKS)


def test_rounds_run_until_the_time_is_over_and_the_report_says_when_an_error_came_first(tmp_path: Path) -> None:
    kept, rounds, made = BurnIn.opened(tmp_path, "gpu"), Rounds(fails_from=3), recording(tmp_path)
    burn(kept, 40.0, rounds, made, Clock())
    assert rounds.closed == rounds.number >= 4, "every process is ended"
    assert 30.0 < kept.elapsed_s < 50.0
    load, memory = made.record.results
    assert (load.verdict, memory.verdict) == (Verdict.FAIL, Verdict.PASS)
    (found,) = load.findings
    assert f"in {rounds.number - 2} of {rounds.number} rounds" in found.message
    assert "first after" in found.message
    assert load.exercised.values == 10 * rounds.number
    (curve,) = load.series
    assert list(curve.at_s) == sorted(curve.at_s)
    assert curve.values[0] == 1.0
    assert curve.values[-1] == rounds.number + 1


def test_it_goes_on_where_it_was_stopped_and_a_line_that_was_cut_off_does_not_count(tmp_path: Path) -> None:
    first = BurnIn.opened(tmp_path, "gpu")
    with pytest.raises(KeyboardInterrupt):
        burn(first, 1000.0, Rounds(stops_in=3), recording(tmp_path), Clock())
    with first.path.open("ab") as file:
        file.write('{"spec": "gpu", "at_s": 9, "reason": "é'.encode()[:-1])
    again = BurnIn.opened(tmp_path, "gpu")
    assert again.entries == first.entries
    assert (again.rounds, len(again.entries)) == (3, 5)
    again.add(99.0, 4, result("memory"))
    assert len(BurnIn.opened(tmp_path, "gpu").entries) == 6, "what follows it counts"
    assert BurnIn.opened(tmp_path, "gpu:2").entries == [], "other devices are another burn-in"


def test_an_unfinished_first_round_is_finished_also_when_the_time_has_passed(tmp_path: Path) -> None:
    first = BurnIn.opened(tmp_path, "gpu")
    with pytest.raises(KeyboardInterrupt):
        burn(first, 0.5, Rounds(stops_in=1), recording(tmp_path), Clock())
    again, rounds = BurnIn.opened(tmp_path, "gpu"), Rounds()
    assert not again.is_over(CHECKS, again.elapsed_s, 0.5)
    burn(again, 0.5, rounds, recording(tmp_path), Clock())
    assert rounds.asked == [CHECKS[1:]], "what has a result is not run again"
    assert [(entry.round, entry.result.check) for entry in again.entries] == [(1, CHECKS[0]), (1, CHECKS[1])]
    assert again.is_over(CHECKS, again.elapsed_s, 0.5)
    burn(again, 20.0, longer := Rounds(), recording(tmp_path), Clock())
    assert set(longer.asked) == {CHECKS}, "the next rounds are whole"


def test_the_same_command_after_an_early_end_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("burnin", "--devices", "cpu:2", "--minutes", "0.001", "--report", "kept")
    first = BurnIn.opened(tmp_path / "kept", "cpu:2")
    first.add(99.0, 1, result("one"))

    def round_of(spec: str, checks: tuple[str, ...], logs: Path) -> Iterator[Finished]:
        yield from (Finished(result(check)) for check in checks)

    checks = tuple(replace(SUITE.checks[0], id=name, hardware=True) for name in ("one", "two"))
    monkeypatch.setattr(burnin, "_round", round_of)
    monkeypatch.setattr(burnin, "suite", lambda: Suite(checks))
    done = run(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert "continuing after 1 round" in done.stderr
    assert [each.result.check for each in BurnIn.opened(tmp_path / "kept", "cpu:2").entries] == ["one", "two"]
    done = run(tmp_path, *arguments)
    assert "continuing" not in done.stderr, "what is complete starts again"


def test_a_folder_that_cannot_be_written_is_one_line_before_anything_runs(tmp_path: Path) -> None:
    done = run(tmp_path, "burnin", "--devices", "cpu:2", "--minutes", "1", "--report", "/proc/x")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("harness: error: report folder /proc/x cannot be written: ")


def test_verdicts_are_printed_when_the_disk_is_full_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def round_of(spec: str, checks: tuple[str, ...], logs: Path) -> Iterator[Finished]:
        (tmp_path / "kept" / FILE).symlink_to("/dev/full")
        yield Finished(result(checks[0], HOT))

    monkeypatch.setattr(burnin, "_round", round_of)
    done = run(tmp_path, "burnin", "--devices", "cpu:2", "--minutes", "1", "--report", "kept", planted=False)
    assert done.returncode == 2
    assert "GPU:1 throttles" in done.stdout
    assert "harness: error: report folder kept cannot be written: No space left on device" in done.stderr


def test_a_damaged_line_among_others_costs_none_of_them(tmp_path: Path) -> None:
    kept = BurnIn.opened(tmp_path, "gpu")
    burn(kept, 20.0, Rounds(), recording(tmp_path), Clock())
    first, second, *rest = kept.path.read_text(encoding="utf-8").splitlines(keepends=True)
    damaged = "".join([first, second[: len(second) // 2] + "\n", *rest])
    kept.path.write_text(damaged, encoding="utf-8")
    with pytest.raises(InvalidRecord, match=r"burnin\.jsonl: line 2 is damaged; delete line 2 to keep"):
        BurnIn.opened(tmp_path, "gpu")
    assert kept.path.read_text(encoding="utf-8") == damaged


def test_line_separators_within_a_reason_end_no_line(tmp_path: Path) -> None:
    kept = BurnIn.opened(tmp_path, "gpu")
    kept.add(1.0, 1, replace(result("memory"), reason="one\u2028two\u0085three"))
    kept.add(2.0, 1, result("copies"))
    assert BurnIn.opened(tmp_path, "gpu").entries == kept.entries


def test_what_went_on_is_one_burn_in(tmp_path: Path) -> None:
    first = BurnIn.opened(tmp_path, "gpu")
    burn(first, 20.0, Rounds(), recording(tmp_path), Clock())
    again = BurnIn.opened(tmp_path, "gpu")
    burn(again, 60.0, Rounds(fails_from=1), recording(tmp_path), Clock())
    assert again.entries[: len(first.entries)] == first.entries
    assert [entry.at_s for entry in again.entries] == sorted(entry.at_s for entry in again.entries)
    assert again.results()[0].verdict is Verdict.FAIL
    again.begin_again()
    assert BurnIn.opened(tmp_path, "gpu").entries == []


def test_every_check_has_a_result_however_short_the_time(tmp_path: Path) -> None:
    kept, made = BurnIn.opened(tmp_path, "gpu"), recording(tmp_path)
    burn(kept, 0.5, Rounds(), made, Clock())
    assert [each.check for each in made.record.results] == list(CHECKS)
    assert kept.rounds == 1


def test_a_long_curve_is_thinned(tmp_path: Path) -> None:
    kept = BurnIn.opened(tmp_path, "gpu")
    for number in range(2):
        long = Series("clock", "MHz", "GPU:0", tuple(map(float, range(5000))), (1.0,) * 5000)
        kept.add(10_000.0 * (number + 1), number, replace(result("memory"), series=(long,), elapsed_s=5000.0))
    (joined,) = kept.results()
    assert MOST_POINTS / 2 < len(joined.series[0].at_s) <= MOST_POINTS


def test_without_a_usable_device_one_round_is_enough(tmp_path: Path) -> None:
    facts = Fingerprint("0", None, "0", "3", None, None, 1, None, None, "planted")

    def round_of(*devices: str) -> Iterator[Ready | Finished]:
        yield Ready(devices, "no GPU can be used", facts)
        yield from Rounds()()

    for devices, rounds in (((), 1), (("GPU:0",), 3)):
        kept = BurnIn.opened(tmp_path / str(rounds), "gpu")
        burn(kept, 40.0, lambda _: round_of(*devices), recording(tmp_path), Clock())  # noqa: B023 - run at once
        assert kept.rounds >= rounds
        assert kept.rounds == 1 or devices


def test_between_two_rounds_a_curve_has_a_gap(tmp_path: Path) -> None:
    kept = BurnIn.opened(tmp_path, "gpu")
    for number in range(3):
        kept.add(300.0 * (number + 1), number, result("sustained-load", value=float(number)))
    (curve,) = kept.results()[0].series
    assert curve.values == (0.0, 1.0, None, 1.0, 2.0, None, 2.0, 3.0)
    assert list(curve.at_s) == sorted(curve.at_s)
    once = BurnIn.opened(tmp_path / "once", "gpu")
    once.add(300.0, 0, result("sustained-load"))
    assert None not in once.results()[0].series[0].values


def test_what_follows_from_a_missing_library_refers_to_the_check_that_found_it_in_every_round(tmp_path: Path) -> None:
    missing = Finding("software", "libnccl.so.2", None, "it", "none", "could not load libnccl", subject="nccl")
    follows = Finding("error", "check memory", None, "it completes", "Traceback", "raised InternalError: NCCL failed")

    def round_of(_: tuple[str, ...]) -> Iterator[Finished]:
        yield Finished(result(CHECKS[0], missing))
        yield Finished(result(CHECKS[1], follows))

    kept, made = BurnIn.opened(tmp_path, "gpu"), recording(tmp_path)
    burn(kept, 20.0, round_of, made, Clock())
    assert kept.rounds > 1
    load, memory = made.record.results
    assert (load.verdict, memory.verdict, memory.findings) == (Verdict.FAIL, Verdict.UNKNOWN, ())
    assert "see the check 'sustained-load'" in memory.reason
