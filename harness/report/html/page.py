"""The page of one run."""

from __future__ import annotations

from dataclasses import fields

from harness.records import Fingerprint, RunRecord
from harness.report.html.copies import copies_of
from harness.report.html.environment import render
from harness.report.html.findings import told_results
from harness.report.html.machine import cards_of
from harness.report.html.programs import programs_of
from harness.report.html.rates import others_of, rates_of, speedups_of
from harness.report.html.sensors import sensors_of
from harness.report.html.tables import Table, table
from harness.report.printable import device_label, one_line
from harness.report.quantities import NOTHING, count, duration
from harness.report.standing import all_exercised, counts, not_run, replay_of, standing
from harness.report.style import exercised_text

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
    "intra_op_threads": "threads within an op",
    "inter_op_threads": "threads between ops",
    "tf32": "TF32",
    "deterministic_ops": "deterministic ops",
    "soft_placement": "soft placement",
}


def report_page(record: RunRecord) -> str:
    """``record`` as one HTML file that refers to nothing outside of itself."""
    return render(
        "report.html.j2",
        record=record,
        title=one_line(f"{record.verdict} on {record.spec}" if record.spec else str(record.verdict)),
        counts=counts(record.results),
        exercised=all_exercised(record),
        missing=not_run(record),
        told=told_results(record),
        cards=cards_of(record),
        copies=copies_of(record),
        rates=rates_of(record),
        speedups=speedups_of(record),
        others=others_of(record),
        programs=programs_of(record),
        sensors=sensors_of(record),
        exercised_table=_exercised(record),
        environment=environment_facts(record.fingerprint),
        replays=[(standing(result), result.check, replay_of(record, result)) for result in record.results],
        command=" ".join(record.command),
    )


def environment_facts(facts: Fingerprint | None) -> tuple[tuple[str, str], ...]:
    """What a fingerprint says, as names with texts; empty without one."""
    if facts is None:
        return ()
    return tuple((_FACTS[field.name], _fact(getattr(facts, field.name))) for field in fields(facts))


def _fact(value: object) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(_item(item) for item in value) or "none"
    return str(value)


def _item(item: object) -> str:
    name = getattr(item, "name", None)
    return device_label(str(item)) if name is None else " ".join(filter(None, (name, getattr(item, "uuid", None))))


def _exercised(record: RunRecord) -> Table:
    rows = []
    for result in record.results:
        done = result.exercised
        numbers = (done.programs, done.values, done.gradients, done.ops, done.gradient_ops)
        rows.append(
            (
                result.check,
                str(standing(result)),
                *(count(each) if each else NOTHING for each in numbers),
                ", ".join(map(device_label, done.devices)) or NOTHING,
                "; ".join(result.scope) or ("nothing" if done.nothing else exercised_text(done)),
                duration(result.elapsed_s),
            )
        )
    head = (
        "check",
        "verdict",
        "programs",
        "values",
        "gradient values",
        "ops",
        "gradient ops",
        "devices",
        "scope",
        "time",
    )
    return table("What each check exercised", head, rows, numeric=(2, 3, 4, 5, 6, 9))
