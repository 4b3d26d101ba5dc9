"""A call of ``verify`` that takes a while shows on a terminal what it is doing."""

from __future__ import annotations

import io
import time

from harness.judgement.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def wait_for(terminal: Terminal, text: str) -> None:
    deadline = time.monotonic() + 60
    while text not in terminal.getvalue() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert text in terminal.getvalue()


def test_what_takes_a_while_is_shown_on_one_line_that_is_gone_at_the_end() -> None:
    terminal = Terminal()
    with Progress(terminal, after_s=0.01) as progress:
        progress("running the reference, eager")
        wait_for(terminal, "verify: running the reference, eager (0 s so far)")
        progress("comparing, eager")
        assert "verify: comparing, eager" in terminal.getvalue()
    assert "\n" not in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_nothing_is_shown_of_what_is_quick_or_where_nobody_watches() -> None:
    quick, file = Terminal(), io.StringIO()
    with Progress(quick, after_s=600) as progress:
        progress("comparing, eager")
    with Progress(file, after_s=0.001) as progress:
        progress("comparing, eager")
        time.sleep(0.05)
        progress("comparing, graph")
    assert quick.getvalue() == file.getvalue() == ""
