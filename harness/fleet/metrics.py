"""A run as metrics for a node exporter's textfile collector, and alert rules for them.

The text is in the exposition format of Prometheus (version 0.0.4), which the collector reads, as ``prometheus-client``
writes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from harness.extras import require
from harness.fleet.accuse import accusations_of
from harness.fleet.actions import Action
from harness.fleet.policy import Policy
from harness.fleet.seen import Seen
from harness.fleet.verdicts import Accusation
from harness.records import RunRecord, Verdict
from harness.report.printable import one_line

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

#: The number of a verdict: what is not proven is not 1.
_NUMBERS = {Verdict.PASS: 1.0, Verdict.WARN: 1.0, Verdict.FAIL: 0.0}

#: Rules in the format of Prometheus. ``absent`` is no pass: a machine without a recent result raises an alert too.
ALERT_RULES = """\
groups:
  - name: harness
    rules:
      - alert: HarnessCardNeedsAction
        expr: harness_card_action == 1
        labels:
          severity: critical
        annotations:
          summary: "{{ $labels.card }} of {{ $labels.instance }}: {{ $labels.action }}"
      - alert: HarnessMachineFailed
        expr: harness_run_failed == 1
        labels:
          severity: critical
        annotations:
          summary: "harness validate failed on {{ $labels.instance }}"
      - alert: HarnessMachineNotProven
        expr: harness_run_complete == 0
        for: 2h
        labels:
          severity: warning
        annotations:
          summary: "harness validate has no verdict on {{ $labels.instance }}"
      - alert: HarnessResultIsOld
        expr: time() - harness_run_timestamp_seconds > 8 * 86400
        labels:
          severity: warning
        annotations:
          summary: "the last result of {{ $labels.instance }} is more than 8 days old"
"""


def metrics_text(record: RunRecord, *, anonymous: bool = False) -> str:
    """Write a run as metrics. With ``anonymous``, cards have no serial numbers.

    Raises:
        MissingExtra: prometheus-client is not installed.
    """
    require("prometheus_client")
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    _fill(registry, record, anonymous=anonymous)
    return str(generate_latest(registry), "utf-8")


def _fill(registry: CollectorRegistry, record: RunRecord, *, anonymous: bool) -> None:
    seen = Seen("", record)
    started = seen.started
    run = {"harness": record.harness, "level": record.level, "described": str(record.described).lower()}
    _metric(registry, "harness_run_info", "The run that the other metrics are from.", [(run, 1.0)])
    _metric(
        registry,
        "harness_run_timestamp_seconds",
        "When the run started.",
        [({}, started.timestamp())] if started is not None else [],
    )
    whole = record.complete and seen.exercised and not seen.unproven
    failed = record.verdict is Verdict.FAIL
    _metric(registry, "harness_run_complete", "Whether every check came to a verdict.", [({}, float(whole))])
    _metric(registry, "harness_run_failed", "Whether a check failed.", [({}, float(failed))])
    passed = [({"check": each.check}, _NUMBERS.get(each.verdict, math.nan)) for each in record.results]
    _metric(registry, "harness_check_passed", "1 if a check passed, 0 if it failed, NaN without a verdict.", passed)
    accused: dict[tuple[str, ...], Accusation] = {}
    for each in accusations_of(seen, record, (), (), {}, Policy()):
        accused.setdefault(each.labels, each)
    cards = []
    for label, card in seen.cards.items():
        own = next((each for labels, each in accused.items() if label in labels), None)
        names = {"card": label, "model": card.name, "serial": "" if anonymous else card.serial or ""}
        cards += [
            ({**names, "action": str(action)}, float(own is not None and own.action is action)) for action in Action
        ]
    _metric(registry, "harness_card_action", "1 for the action that a card needs.", cards)
    figures = [
        ({"check": result.check, "figure": figure.name, "card": figure.device, "unit": figure.unit}, figure.value)
        for result in record.results
        for figure in result.figures
        if figure.device in seen.cards and figure.peer is None and figure.device
    ]
    unique = {tuple(sorted(labels.items())): (labels, value) for labels, value in figures}
    _metric(registry, "harness_figure", "A measured rate, in the unit of its label.", unique.values())


def _metric(
    registry: CollectorRegistry, name: str, text: str, samples: Iterable[tuple[Mapping[str, str], float]]
) -> None:
    from prometheus_client import Gauge

    found = list(samples)
    if not found:
        return
    gauge = Gauge(name, text, [*found[0][0]], registry=registry)
    for labels, value in found:
        shown = {key: one_line(each) for key, each in labels.items()}
        (gauge.labels(**shown) if shown else gauge).set(value)
