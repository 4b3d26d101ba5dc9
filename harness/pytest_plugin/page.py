"""``--harness-report DIR``: the verifications of a session as the page of a run, beside its ``run.json``."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from harness.judgement.verification import Verification
    from harness.records import CheckResult

OPTION = "--harness-report"
_ATTRIBUTE = "_harness_results"
_FINGERPRINT = "_harness_fingerprint"
#: The ops of so many programs are kept, those of verifications that did not pass first.
_MOST_PROGRAMS = 12


def add_options(group: pytest.OptionGroup) -> None:
    """Add the option."""
    group.addoption(
        OPTION,
        metavar="DIR",
        help="write report.html, run.json, report.md and junit.xml of the session's verifications to this folder",
    )


def register(config: pytest.Config) -> bool:
    """Whether a report is wanted; if so, collect what the verifications of all processes found.

    Raise UsageError if the folder is a file.
    """
    folder = config.getoption(OPTION)
    if folder is None:
        return False
    if not folder or ((place := Path(config.invocation_params.dir) / folder).exists() and not place.is_dir()):
        raise pytest.UsageError(f"{OPTION}={folder}; accepted: a folder, which need not exist")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Report(config), "harness-report")
    return True


def attach(report: pytest.TestReport, item: pytest.Item, made: list[Verification]) -> None:
    """Attach the verifications of a test to its report, in plain values, which xdist carries."""
    if not made:
        return
    from pydantic import TypeAdapter

    from harness.devices.fingerprint import fingerprint
    from harness.records import CheckResult, Fingerprint
    from harness.report.verifications import result_of

    names = [item.nodeid if len(made) == 1 else f"{item.nodeid} ({number})" for number in range(1, len(made) + 1)]
    results = tuple(map(result_of, made, names))
    setattr(report, _ATTRIBUTE, TypeAdapter(tuple[CheckResult, ...]).dump_python(results, mode="json"))
    setattr(report, _FINGERPRINT, TypeAdapter(Fingerprint).dump_python(fingerprint(), mode="json"))


class _Report:
    """Collects the results where all reports arrive, and writes them at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.folder = Path(config.invocation_params.dir) / config.getoption(OPTION)
        self.spec = str(config.getoption("--harness-devices") or os.environ.get("HARNESS_DEVICES") or "")
        self.arguments = config.invocation_params.args
        self.results: list[dict[str, Any]] = []
        self.fingerprint: dict[str, Any] | None = None
        self.began = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.results += getattr(report, _ATTRIBUTE, ())
        self.fingerprint = getattr(report, _FINGERPRINT, self.fingerprint)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        from pydantic import TypeAdapter

        from harness.errors import HarnessError
        from harness.records import CheckResult, Fingerprint
        from harness.report.verifications import write_results

        results = TypeAdapter(tuple[CheckResult, ...]).validate_python(self.results)
        if not results:
            terminalreporter.line(f"harness: no verification ran, so {self.folder} has no report", yellow=True)
            return
        facts = TypeAdapter(Fingerprint).validate_python(self.fingerprint)
        try:
            page = write_results(
                _without_most_ops(_numbered(results)),
                self.folder,
                command=("pytest", *map(str, self.arguments)),
                spec=self.spec or facts.spec or "",
                reason="",
                facts=facts,
                elapsed_s=time.monotonic() - self.began,
            )
        except HarnessError as error:
            # The tests have run: what they found is in the log all the same.
            terminalreporter.line(f"harness: {error}", red=True)
        else:
            terminalreporter.line(f"harness: report of {len(results)} verifications: {os.path.relpath(page)}")


def _numbered(results: tuple[CheckResult, ...]) -> tuple[CheckResult, ...]:
    """The results with names that differ: a fixture may verify in each phase of a test."""
    seen: Counter[str] = Counter()
    found = []
    for result in results:
        seen[result.check] += 1
        again = f" [{seen[result.check]}]" if seen[result.check] > 1 else ""
        found.append(replace(result, check=f"{result.check}{again}"))
    return tuple(found)


def _without_most_ops(results: tuple[CheckResult, ...]) -> tuple[CheckResult, ...]:
    """The results, of which the worst keep where their programs ran."""
    from harness.report.verdicts import by_severity

    room, kept = _MOST_PROGRAMS, set()
    for result in by_severity(results):
        if 0 < len(result.placements) <= room:
            kept.add(result.check)
            room -= len(result.placements)
    return tuple(result if result.check in kept else replace(result, placements=()) for result in results)
