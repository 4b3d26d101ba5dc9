"""Standard output and error that may be full, closed, or read no further: the work goes on all the same."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from harness.cli.errors import say
from harness.records import ExitCode

_STDOUT, _STDERR = 1, 2


class Guarded(io.FileIO):
    """A descriptor that takes all that is written to it, and remembers why something of it is lost."""

    problem: str | None = None
    was_closed = False

    def write(self, data: Any, /) -> int:
        """Write what can be written; of what cannot, say that it was all of ``data``."""
        try:
            written = super().write(data)
        except BrokenPipeError:  # the reader has seen enough (`| head`)
            pass
        except OSError as error:
            self.problem = self.problem or error.strerror or str(error)
        else:
            if not self.was_closed:
                return written
        if self.was_closed:
            self.problem = "it is closed"
        return memoryview(data).nbytes


@contextlib.contextmanager
def guarded_streams() -> Iterator[Guarded | None]:
    """Let no output raise an error within the body; yield standard output, or ``None`` where that is no file.

    What the terminal's encoding cannot say, such as some paths, is written as an escape.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, output = _guarded(sys.stdout, _STDOUT)
    sys.stderr, _ = _guarded(sys.stderr, _STDERR)
    try:
        yield output
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


def _guarded(stream: TextIO | None, number: int) -> tuple[TextIO, Guarded | None]:
    if stream is None:
        # The descriptor is closed: a file that is opened next would get its number, and with it the output.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
    else:
        stream.flush()
    try:
        raw = Guarded(number if stream is None else stream.fileno(), "w", closefd=False)
    except (OSError, AttributeError):
        assert stream is not None
        return stream, None
    raw.was_closed = stream is None
    made = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8" if stream is None else stream.encoding,
        errors="backslashreplace",
        line_buffering=number == _STDERR or raw.isatty(),
    )
    return made, raw


def code_with_output(code: int, output: Guarded | None) -> int:
    """Return the exit code of a command. Where its output is lost it is no success, and one line says so."""
    if output is None or output.problem is None:
        return code
    say(f"error: standard output cannot be written: {output.problem}; what was to be printed is lost")
    return code or ExitCode.USAGE
