"""Writes the reports of a run for people and CI systems beside its ``run.json``."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import InvalidRecord, MissingExtra, ReportError
from harness.extras import require
from harness.records import RunRecord
from harness.report.storage import save_text

if TYPE_CHECKING:
    from harness.speed.scaling.record import ScaleRecord
    from harness.speed.timeline.record import Profile

PAGE_FILE = "report.html"
MARKDOWN_FILE = "report.md"
JUNIT_FILE = "junit.xml"


def publish(record: RunRecord, folder: Path, beside: Path | None = None) -> Path:
    """Write ``junit.xml``, ``report.md`` and ``report.html`` to ``folder``, and return the path of the last.

    The page needs the extra ``report``; without it the other two are written all the same. ``beside`` is the folder of
    the run, if it is another: a ``scale.json`` and the memory of a ``profile.json`` there are shown in the page.

    Raises:
        ReportError: the folder cannot be written.
        MissingExtra: Jinja or Matplotlib is not installed.
    """
    from harness.report.junit import junit_xml
    from harness.report.markdown import report_markdown

    save_text(junit_xml(record), folder, JUNIT_FILE)
    save_text(report_markdown(record), folder, MARKDOWN_FILE)
    require("jinja2", "matplotlib")
    from harness.report.html.page import report_page

    found = beside or folder
    return save_text(report_page(record, _curve(found), _profile(found)), folder, PAGE_FILE)


def page_beside(folder: Path, name: str, page: Callable[[], str]) -> Path | None:
    """Write a page to ``folder``, and return its path; ``None`` where the extra ``report`` is missing.

    ``page`` imports what it needs and makes the page.

    Raises:
        ReportError: the folder cannot be written.
    """
    try:
        require("jinja2", "matplotlib")
    except MissingExtra:
        return None
    return save_text(page(), folder, name)


@functools.cache
def load_ahead() -> None:
    """Begin to import what the page needs, in a thread and once, while there is something else to wait for."""
    threading.Thread(target=_load, name="harness-report-imports", daemon=True).start()


def _load() -> None:
    with contextlib.suppress(ImportError):  # publish says what is missing
        import matplotlib.backends.backend_svg
        import matplotlib.figure  # noqa: F401

        import harness.report.html.page  # noqa: F401


def _curve(folder: Path) -> ScaleRecord | str | None:
    """The scaling curve in ``folder``, or why it cannot be read: that must not cost the report."""
    from harness.report.scale import SCALE_FILE, load_scale

    if not (folder / SCALE_FILE).exists():
        return None
    try:
        return load_scale(folder)
    except InvalidRecord as error:
        return str(error)


def _profile(folder: Path) -> Profile | str | None:
    """The profile in ``folder``, or why it cannot be read."""
    from harness.report.profile import PROFILE_FILE, load_profile

    if not (folder / PROFILE_FILE).exists():
        return None
    try:
        return load_profile(folder)
    except InvalidRecord as error:
        return str(error)


def withdraw(folder: Path) -> None:
    """Remove the reports of an earlier run from ``folder``."""
    for name in (PAGE_FILE, MARKDOWN_FILE, JUNIT_FILE):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            try:
                (folder / name).unlink()
            except PermissionError as error:
                raise ReportError(folder, error.strerror or str(error)) from error
