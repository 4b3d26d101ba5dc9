"""Reads the speedups of a pytest-benchmark run, and the machine that they were measured on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import InvalidBaseline
from harness.records import Fingerprint
from harness.speed.estimate import FEWEST_PAIRS
from harness.speed.record import EXTRA_INFO_KEY, SPEEDUP_SCHEMA_VERSION, SpeedupRecord
from harness.stored import parse_versioned, read_json, validated


@dataclass(frozen=True, slots=True)
class SavedRun:
    """The speedups of one run, by the benchmark's ``fullname``. ``origin`` names their source.

    ``without`` lists benchmarks without a speedup. ``fingerprint`` is ``None`` if the file has none.
    """

    origin: str
    records: Mapping[str, SpeedupRecord]
    fingerprint: Fingerprint | None
    without: tuple[str, ...] = ()


def read_run(path: Path) -> SavedRun:
    """Read a JSON file of pytest-benchmark.

    Raise InvalidBaseline if it is no such file, has no speedup, or has one that is damaged or too new.
    """
    try:
        content = read_json(path)
    except ValueError as error:
        raise InvalidBaseline(path, str(error)) from error
    return parse_run(content, str(path))


def parse_run(content: Any, origin: str) -> SavedRun:
    """Read the content of such a file. Raise InvalidBaseline as :func:`read_run`."""
    benchmarks = content.get("benchmarks") if isinstance(content, dict) else None
    if not isinstance(benchmarks, list):
        raise InvalidBaseline(origin, "is not a pytest-benchmark run: it has no list of benchmarks")
    records: dict[str, SpeedupRecord] = {}
    without: list[str] = []
    for index, benchmark in enumerate(benchmarks):
        name = benchmark.get("fullname") if isinstance(benchmark, dict) else None
        if not isinstance(name, str):
            raise InvalidBaseline(origin, f"is damaged: benchmark {index} has no fullname")
        extra = benchmark.get("extra_info")
        plain = extra.get(EXTRA_INFO_KEY) if isinstance(extra, dict) else None
        record = None if plain is None else parse_record(plain, f"{origin}: {name}")
        if record is None or record.stopped == "disabled":
            without.append(name)
        else:
            records[name] = record
    if not records:
        raise InvalidBaseline(origin, "has no speedup: no benchmark in it used the fixture `speedup`")
    machine = content.get("machine_info")
    plain = machine.get(EXTRA_INFO_KEY) if isinstance(machine, dict) else None
    try:
        fingerprint = None if plain is None else validated(plain, Fingerprint)
    except ValueError as error:
        raise InvalidBaseline(f"{origin}: machine_info", f"is damaged: {error}") from error
    return SavedRun(origin, records, fingerprint, tuple(without))


def parse_record(plain: Any, origin: str) -> SpeedupRecord:
    """Read a stored speedup. ``origin`` names its source, for errors.

    Raise InvalidBaseline if it is damaged, or newer than this harness.
    """
    try:
        record = parse_versioned(plain, SpeedupRecord, SPEEDUP_SCHEMA_VERSION)
    except ValueError as error:
        raise InvalidBaseline(origin, f"is damaged: {error}") from error
    for name, one, other in (
        ("single_ns and parallel_ns", record.single_ns, record.parallel_ns),
        ("second_single_ns and second_parallel_ns", record.second_single_ns, record.second_parallel_ns),
    ):
        if len(one) != len(other):
            why = f"{name} hold {len(one)} and {len(other)} measured times, which are not pairs"
            raise InvalidBaseline(origin, f"is damaged: {why}")
        if 0 < len(one) < FEWEST_PAIRS or any(time <= 0 for time in (*one, *other)):
            why = f"{name} must have at least {FEWEST_PAIRS} pairs of times above 0 ns"
            raise InvalidBaseline(origin, f"is damaged: {why}")
    if not record.single_ns and record.stopped != "disabled":
        raise InvalidBaseline(origin, "is damaged: the speedup has no times")
    return record
