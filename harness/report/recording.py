"""Keeps the record of a run: stored after each result, so that nothing is lost when the run is interrupted.

The reports are written when the run ends, complete or not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from harness.errors import MissingExtra, ReportError, ReportNotRendered
from harness.records import Card, CheckResult, Fingerprint, Host, RunRecord, Verdict, exit_code, overall
from harness.report.anonymous import anonymous
from harness.report.card_verdicts import card_verdicts
from harness.report.cohort import cohort_of
from harness.report.publish import publish, withdraw
from harness.report.storage import json_text, save_run


class RunRecording:
    """Holds the record of a run, and keeps ``run.json`` up to date.

    A folder that is not writable does not end the run: ``problem`` holds the error. ``page`` is the path of
    ``report.html``, once it is written. ``earlier_s`` is how long the run took before it was interrupted.
    With ``without_names``, what is stored has no host names, serial numbers or UUIDs.
    """

    def __init__(
        self,
        folder: Path,
        *,
        harness: str,
        command: tuple[str, ...],
        spec: str,
        planned: tuple[str, ...],
        level: str = "quick",
        earlier_s: float = 0.0,
        host: Host | None = None,
        without_names: bool = False,
    ) -> None:
        self.folder = folder
        self._without_names = without_names
        self.path: Path | None = None
        self.page: Path | None = None
        #: Why there is no page, where only an extra is missing: that is no problem of the run.
        self.no_page: MissingExtra | None = None
        self.problem: ReportError | None = None
        self._began = time.monotonic() - earlier_s
        self.record = RunRecord(
            started_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            harness=harness,
            command=command,
            spec=spec,
            verdict=Verdict.UNKNOWN,
            exit_code=int(exit_code(Verdict.UNKNOWN)),
            complete=False,
            results=(),
            planned=planned,
            level=level,
            host=host,
        )
        self._store()
        self._attempt(lambda: withdraw(self.folder))

    @property
    def text(self) -> str:
        """The record as JSON, as in ``run.json``."""
        return json_text(self.stored)

    @property
    def stored(self) -> RunRecord:
        """The record as it is stored and shown in the reports."""
        return anonymous(self.record) if self._without_names else self.record

    def devices_are(
        self, reason: str, fingerprint: Fingerprint, cards: tuple[Card, ...] = (), *, described: bool = False
    ) -> None:
        """Note the devices and the machine."""
        self.record = replace(
            self.record,
            spec_reason=reason,
            fingerprint=fingerprint,
            cards=cards,
            described=described,
            cohort=cohort_of(cards, fingerprint, self.record.harness),
        )
        self._store()

    def add(self, result: CheckResult) -> None:
        """Note a result, in the order of the plan. The verdict is provisional until :meth:`complete`."""
        place = {check: index for index, check in enumerate(self.record.planned)}
        results = sorted((*self.record.results, result), key=lambda each: place.get(each.check, -1))
        self.record = replace(self.record, results=tuple(results))
        self._store()

    def results_are(self, results: tuple[CheckResult, ...]) -> None:
        """Put other results in the place of those so far."""
        self.record = replace(self.record, results=results)
        self._store()

    def complete(self, passes_again: tuple[str, ...] = ()) -> None:
        """Note that all planned checks have a result, and which known failures no longer occur."""
        self.record = replace(self.record, complete=True, passes_again=passes_again)
        self._store()
        self._attempt(self._publish)

    def cut_short(self, code: int, reason: str | None = None) -> None:
        """Note that the run ended early, with exit code ``code``."""
        if reason is not None:
            self.record = replace(self.record, spec_reason=reason)
        self._store(code)
        self._attempt(self._publish)

    def _store(self, code: int | None = None) -> None:
        verdict = overall(result.verdict for result in self.record.results)
        if not self.record.complete and verdict in (Verdict.PASS, Verdict.WARN):
            verdict = Verdict.UNKNOWN  # a missing check may fail
        self.record = replace(
            self.record,
            verdict=verdict,
            exit_code=int(exit_code(verdict)) if code is None else code,
            elapsed_s=time.monotonic() - self._began,
            card_verdicts=tuple(card_verdicts(self.record)),
        )
        self.path, self.problem = None, None
        self._attempt(self._save)

    def _save(self) -> None:
        self.path = save_run(self.stored, self.folder)

    def _publish(self) -> None:
        try:
            self.page = publish(self.stored, self.folder)
        except MissingExtra as error:
            self.no_page = error

    def _attempt(self, write: Callable[[], None]) -> None:
        try:
            write()
        except ReportError as error:
            self.problem = self.problem or error
        except Exception as error:  # noqa: BLE001 - a failing report must not hide the verdict
            self.problem = self.problem or ReportNotRendered(self.folder, error)
