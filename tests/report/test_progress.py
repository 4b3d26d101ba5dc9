"""What is shown while a run goes on."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from harness.records import CheckResult, Exercised, Verdict
from harness.report.progress import BarDisplay, LineDisplay, display, is_interactive

PASSED = CheckResult("matpow", Verdict.PASS, "fine", "", Exercised(values=3), elapsed_s=1.5)
FAILED = CheckResult("matpow", Verdict.FAIL, "off by [red]\none", "", Exercised(values=3), elapsed_s=1.5)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def console(stream: io.StringIO, term: str = "xterm") -> Console:
    return Console(file=stream, width=100, _environ={"TERM": term}, highlight=False)


def test_a_bar_is_for_terminals_that_can_move_their_cursor_and_not_for_ci() -> None:
    assert is_interactive(console(Terminal()), {})
    assert is_interactive(console(Terminal()), {"CI": "false"})
    assert not is_interactive(console(Terminal()), {"CI": "true"})
    assert not is_interactive(console(Terminal(), "dumb"), {})
    assert not is_interactive(console(io.StringIO()), {})


def test_forced_colour_does_not_make_a_terminal_of_a_file() -> None:
    forced = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"})
    assert not is_interactive(forced, {})


def test_the_display_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "1")
    assert isinstance(display(console(Terminal()), [1.0]), LineDisplay)
    monkeypatch.setenv("CI", "")
    assert isinstance(display(console(io.StringIO()), [1.0]), LineDisplay)


def test_without_a_terminal_each_event_is_a_plain_line() -> None:
    stream = io.StringIO()
    with LineDisplay(console(stream), 2) as shown:
        shown.note("devices: [4]")
        shown.started("matpow", "a [bold] title", 2.4)
        shown.finished(PASSED)
        shown.started("vector-add", "another", 1)
        shown.finished(FAILED)
    assert stream.getvalue().splitlines() == [
        "devices: [4]",
        "[1/2] matpow: a [bold] title (about 2 s)",
        "      PASS matpow after 1.5 s: 3 values",
        "[2/2] vector-add: another (about 1 s)",
        "      FAIL matpow after 1.5 s: off by [red] one",
    ]


def test_on_a_terminal_a_bar_says_what_runs_and_results_stay() -> None:
    stream = Terminal()
    with BarDisplay(console(stream), [2.4, 7.0]) as shown:
        shown.note("devices: [4]")
        shown.started("matpow", "a [bold] title", 2.4)
        shown.finished(PASSED)
        shown.started("second", "the last", 7.0)
    text = stream.getvalue()
    assert "about 7 s left" in text
    assert "devices: [4]" in text
    assert "PASS" in text
    assert "1/2" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is hidden, and shown again


def test_the_terminal_is_left_as_it_was_when_the_run_is_interrupted() -> None:
    stream = Terminal()
    with pytest.raises(KeyboardInterrupt), BarDisplay(console(stream), [2.4, 7.0]):
        raise KeyboardInterrupt
    assert "\x1b[?25h" in stream.getvalue()
