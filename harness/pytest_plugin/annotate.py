"""``--harness-format``: the findings of a session at their lines, in the form that a service of code review reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from harness.records import Finding

OPTION = "--harness-format"
_ATTRIBUTE = "_harness_notes"
#: Where the reports are written if no file is given: GitLab's usual name, and one that code scanning looks for.
_FILES = {"gitlab": "gl-code-quality-report.json", "sarif": "harness.sarif"}


def add_options(group: pytest.OptionGroup) -> None:
    """Add the option."""
    group.addoption(
        OPTION,
        action="append",
        default=[],
        metavar="FORMAT[:FILE]",
        help=f"report findings as github (workflow commands and a job summary; the default in GitHub Actions), gitlab "
        f"(a code quality report in FILE, default {_FILES['gitlab']}), sarif (FILE, default {_FILES['sarif']}) or none",
    )


def register(config: pytest.Config) -> None:
    """Refuse an unknown format, and collect findings where one is wanted."""
    wanted: dict[str, str] = {}
    for text in config.getoption(OPTION):
        name, _, file = str(text).partition(":")
        if name not in ("github", "gitlab", "sarif", "none") or (file and name not in _FILES):
            raise pytest.UsageError(f"{OPTION}={text}; accepted: github, gitlab[:FILE], sarif[:FILE], none")
        wanted[name] = file or _FILES.get(name, "")
    if not wanted and os.environ.get("GITHUB_ACTIONS") == "true":
        wanted["github"] = ""
    wanted.pop("none", None)
    if not hasattr(config, "workerinput"):  # the reports of xdist's workers arrive in its controller
        config.pluginmanager.register(_Annotations(config, wanted), "harness-annotations")


def attach(report: pytest.TestReport, item: pytest.Item, findings: Sequence[Finding]) -> None:
    """Attach findings of a test to its report, in plain values; JUnit files then have them as properties."""
    if not findings:
        return
    from harness.report.review import Note

    path, line, _ = item.reportinfo()
    root = item.config.invocation_params.dir
    here = Path(path).relative_to(root).as_posix() if Path(path).is_relative_to(root) else Path(path).name
    notes = [Note.of(finding, item.nodeid, (here, (line or 0) + 1), root) for finding in findings]
    setattr(report, _ATTRIBUTE, [astuple(note) for note in notes])
    # The report of the tear-down, from which JUnit files are made, has those of the test.
    item.user_properties += [("harness-finding", f"[{note.code} {note.kind}] {note.message}") for note in notes]


class _Annotations:
    """Collects the notes where all reports arrive, and writes them at the end."""

    def __init__(self, config: pytest.Config, wanted: dict[str, str]) -> None:
        self.config = config
        self.wanted = wanted
        #: What each note is made of.
        self.notes: list[tuple[Any, ...]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.notes += getattr(report, _ATTRIBUTE, ())

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.wanted:
            return
        from harness import __version__
        from harness.report import review

        notes = review.most_important(review.Note(*plain) for plain in self.notes)
        notes = [replace(note, file=f"{self._folder()}{note.file}") for note in notes]
        if "github" in self.wanted:
            for line in review.github(notes):
                terminalreporter.line(line)
            if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
                totals = getattr(self.config.pluginmanager.get_plugin("harness-summary"), "totals", None)
                text = review.summary(notes, totals.lines() if totals is not None else [])
                self._write(terminalreporter, summary, text, append=True)
        if file := self.wanted.get("gitlab"):
            self._write(terminalreporter, file, review.gitlab(notes))
        if file := self.wanted.get("sarif"):
            self._write(terminalreporter, file, review.sarif(notes, __version__))

    def _folder(self) -> str:
        """The way from the top of the repository, where the service knows it, to the working directory."""
        here = Path(self.config.invocation_params.dir).resolve()
        for variable in ("GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
            top = Path(os.environ.get(variable) or here).resolve()
            if top != here and here.is_relative_to(top):
                return f"{here.relative_to(top).as_posix()}/"
        return ""

    def _write(self, terminalreporter: Any, file: str, text: str, *, append: bool = False) -> None:
        path = self.config.invocation_params.dir / file
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a" if append else "w", encoding="utf-8") as stream:
                stream.write(text)
        except OSError as error:
            # The tests have run: what they found is in the log all the same.
            terminalreporter.line(f"harness: {path} was not written: {error.strerror}", red=True)
        else:
            if not append:
                terminalreporter.line(f"harness: findings are in {path}")
