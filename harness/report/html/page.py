"""The page of one run."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING

from harness.plural import plural
from harness.records import Fingerprint, RunRecord, Verdict
from harness.report.card_verdicts import card_verdicts, others, subject
from harness.report.html.copies import copies_of
from harness.report.html.environment import render
from harness.report.html.findings import results_to_show
from harness.report.html.machine import cards_of
from harness.report.html.memory import memory_of
from harness.report.html.programs import programs_of
from harness.report.html.rates import others_of, rates_of, speedups_of
from harness.report.html.scaling import scaling_of
from harness.report.html.sensors import sensors_of
from harness.report.html.tables import Table, table
from harness.report.printable import device_label, shortened
from harness.report.quantities import NOTHING, count, duration
from harness.report.verdicts import (
    all_exercised,
    by_severity,
    command_name,
    counts,
    finished,
    is_of_machine,
    not_run,
    replay_of,
)

if TYPE_CHECKING:
    from harness.speed.scaling.record import ScaleRecord
    from harness.speed.timeline.record import Profile

_LONGEST_NAME = 80
_FACTS = {
    "tensorflow": "TensorFlow",
    "keras": "Keras",
    "numpy": "NumPy",
    "python": "Python",
    "onednn": "oneDNN",
    "cpu_model": "processor",
    "cores_logical": "logical cores",
    "cores_physical": "physical cores",
    "memory_mib": "memory, MiB",
    "operating_system": "operating system",
    "gpus": "GPUs",
    "driver": "driver",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "spec": "device spec",
    "devices": "devices",
    "intra_op_threads": "intra-op threads",
    "inter_op_threads": "inter-op threads",
    "tf32": "TF32",
    "deterministic_ops": "deterministic ops",
    "soft_placement": "soft placement",
}


#: The sections in order, by their ids.
_SECTIONS = {
    "findings": "Findings",
    "programs": "Placement",
    "machine": "Machine",
    "copies": "Bandwidth",
    "rates": "Rates",
    "speedups": "Speedups",
    "memory": "Memory",
    "sensors": "Sensors",
    "exercised": "Exercised",
    "environment": "Environment",
    "replay": "Rerun",
}
#: Those of a run that looks at programs alone, where nothing else was measured.
_OF_PROGRAMS = ("findings", "programs", "exercised", "environment", "replay")


def report_page(record: RunRecord, scale: ScaleRecord | str | None = None, profile: Profile | str | None = None) -> str:
    """Write ``record`` as one self-contained HTML file.

    ``scale`` is the scaling curve in its folder, and ``profile`` the profile there; a text says why one cannot be read.
    """
    shared = bool(record.cards) and all(card.shares_threads for card in record.cards)
    measured = {
        "machine": cards_of(record),
        "copies": None if shared else copies_of(record),
        "rates": None if shared else rates_of(record),
        "speedups": speedups_of(record) or scale,
        "memory": profile if isinstance(profile, str) else memory_of(profile),
        "sensors": sensors_of(record),
    }
    wanted = {*_OF_PROGRAMS, *(name for name, made in measured.items() if made)}
    if is_of_machine(record):
        wanted = set(_SECTIONS) - ({"copies", "rates", "sensors"} if shared else set())
        wanted -= set() if measured["memory"] else {"memory"}
    programs = programs_of(record)
    # Where all of these are well, one example is enough to look at.
    opened = [
        result.check
        for result in by_severity(record.results)
        if result.verdict is not Verdict.PASS and result.check in programs
    ]
    return render(
        "report.html.j2",
        record=record,
        title=f"{record.verdict} on {machine_name(record)}",
        machine=machine_name(record),
        unknown_facts=unknown_facts(record.fingerprint),
        brand=command_name(record),
        finished=finished(record),
        counts=counts(record.results),
        exercised=all_exercised(record),
        missing=not_run(record),
        shown=results_to_show(record),
        verdicts=[(each, subject(each, {card.label: card for card in record.cards})) for each in card_verdicts(record)],
        other_cards=others(record, card_verdicts(record)),
        sections={name: title for name, title in _SECTIONS.items() if name in wanted},
        shared=shared,
        of_machine=is_of_machine(record),
        cards=measured["machine"],
        copies=measured["copies"],
        rates=measured["rates"],
        speedups=speedups_of(record),
        scaling=None if isinstance(scale, str) else scaling_of(record, scale),
        scaling_problem=scale if isinstance(scale, str) else None,
        memory=None if isinstance(profile, str) else memory_of(profile),
        memory_problem=profile if isinstance(profile, str) else None,
        others=None if shared else others_of(record),
        programs=programs,
        opened=opened or list(programs)[:1],
        sensors=measured["sensors"],
        exercised_table=_exercised(record),
        scopes=[(result.check, result.scope) for result in record.results if result.scope],
        environment=environment_facts(record.fingerprint),
        replays=[(result.verdict, result.check, replay_of(record, result)) for result in record.results],
        command=" ".join(record.command),
    )


def machine_name(record: RunRecord) -> str:
    """Name the machine in a few words: how many GPUs of which model, or the device spec."""
    usable = [card for card in record.cards if card.error is None]
    names = Counter(card.name for card in usable or record.cards)
    cards = ", ".join(f"{number} \u00d7 {name}" for name, number in names.items())
    if not is_of_machine(record):
        checks = ", ".join(result.check for result in record.results)
        return shortened(f"{checks} on {record.spec}" if len(record.results) == 1 else record.spec, _LONGEST_NAME)
    if record.cards and all(card.label.startswith("CPU:") for card in record.cards):
        cards = f"{plural(len(record.cards), 'logical CPU')} of {', '.join(names)}"
    return shortened(cards or record.spec or "no devices", _LONGEST_NAME)


def environment_facts(facts: Fingerprint | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """List the known facts of a fingerprint, as names with lines of text."""
    if facts is None:
        return ()
    return tuple(
        (_FACTS[field.name], _lines(value))
        for field in fields(facts)
        if (value := getattr(facts, field.name)) is not None
    )


def unknown_facts(facts: Fingerprint | None) -> tuple[str, ...]:
    """List the unknown facts of a fingerprint."""
    return tuple(_FACTS[each.name] for each in fields(facts) if getattr(facts, each.name) is None) if facts else ()


def _lines(value: object) -> tuple[str, ...]:
    if isinstance(value, bool):
        return ("on" if value else "off",)
    return tuple(map(_item, value)) or ("none",) if isinstance(value, tuple) else (str(value),)


def _item(item: object) -> str:
    name = getattr(item, "name", None)
    return device_label(str(item)) if name is None else " ".join(filter(None, (name, getattr(item, "uuid", None))))


def _exercised(record: RunRecord) -> Table:
    rows = []
    all_devices = all_exercised(record).devices
    for result in record.results:
        done = result.exercised
        numbers = (done.programs, done.values, done.gradients, done.ops, done.gradient_ops)
        rows.append(
            (
                result.check,
                str(result.verdict),
                *(count(each) if each else NOTHING for each in numbers),
                _devices(done.devices, all_devices),
                duration(result.elapsed_s),
            )
        )
    head = ("check", "verdict", "programs", "values", "gradient values", "ops", "gradient ops", "ran on", "time")
    return table("What each check exercised", head, rows, numeric=(2, 3, 4, 5, 6, 8))


def _devices(proven: tuple[str, ...], every: tuple[str, ...]) -> str:
    if len(every) > 1 and set(proven) == set(every):
        return f"all {len(every)} devices"
    return ", ".join(map(device_label, proven)) or NOTHING
