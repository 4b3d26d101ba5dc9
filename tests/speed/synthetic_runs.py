"""Runs as pytest-benchmark would have saved them, with speedups that are known because they are made up."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from harness.records import Fingerprint
from harness.speed.baseline import SavedRun
from harness.speed.estimate import paired_speedup
from harness.speed.record import SpeedupRecord

FINGERPRINT = Fingerprint(
    tensorflow="2.21.0",
    keras="3.12.0",
    numpy="2.3.0",
    python="3.11.9",
    onednn=True,
    cpu_model="A CPU",
    cores_logical=2,
    cores_physical=1,
    memory_mib=7900,
    operating_system="Linux-6.1",
    spec="cpu:2",
    devices=("/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:0/device:CPU:1"),
    intra_op_threads=1,
    inter_op_threads=2,
    tf32=True,
    deterministic_ops=False,
)


def times(speedup: float, *, pairs: int = 60, scatter: float = 0.01, seed: int = 0) -> tuple[list[int], list[int]]:
    """Times in ns of both sides, around 4 ms; each side scatters by this share."""
    draw = random.Random(seed)
    single = [round(4e6 * draw.lognormvariate(0.0, scatter)) for _ in range(pairs)]
    parallel = [round(4e6 / speedup * draw.lognormvariate(0.0, scatter)) for _ in range(pairs)]
    return single, parallel


def record(
    speedup: float = 1.9,
    *,
    pairs: int = 60,
    scatter: float = 0.01,
    seed: int = 0,
    second: float | None = None,
    gates: bool = True,
) -> SpeedupRecord:
    """A record of this speedup; ``second`` is that of a second measurement."""
    single, parallel = times(speedup, pairs=pairs, scatter=scatter, seed=seed)
    found = paired_speedup(single, parallel)
    made = SpeedupRecord(
        devices=FINGERPRINT.devices,
        kind="logical-cpu",
        label="2 logical CPUs, one thread each" if gates else "shares one card: not a speedup",
        gates=gates,
        speedup=found,
        efficiency=found.value / 2,
        single_ns=tuple(single),
        parallel_ns=tuple(parallel),
        stopped="precise",
        wanted_half_width=0.01,
        budget_s=5.0,
        elapsed_s=0.5,
    )
    if second is None:
        return made
    again, again_parallel = times(second, pairs=pairs, scatter=scatter, seed=seed + 1000)
    return replace(made, second_single_ns=tuple(again), second_parallel_ns=tuple(again_parallel))


def run(records: Mapping[str, SpeedupRecord], fingerprint: Fingerprint | None = FINGERPRINT) -> SavedRun:
    """A run as it is read."""
    return SavedRun("base.json", records, fingerprint)


def saved(records: Mapping[str, SpeedupRecord], fingerprint: Fingerprint | None = FINGERPRINT) -> dict[str, Any]:
    """A run as pytest-benchmark writes it: what its own comparison reads is there too."""
    machine: dict[str, Any] = {"node": "here", "cpu": {}}
    if fingerprint is not None:
        machine["harness"] = asdict(fingerprint)
    return {
        "machine_info": machine,
        "commit_info": {},
        "datetime": "2026-01-01T00:00:00+00:00",
        "version": "5.3.0",
        "benchmarks": [
            {
                "group": None,
                "name": name.rpartition("::")[2],
                "fullname": name,
                "params": None,
                "param": None,
                "extra_info": {"harness": asdict(each)},
                "options": {},
                "stats": _stats(each),
            }
            for name, each in records.items()
        ],
    }


def write(path: Path, records: Mapping[str, SpeedupRecord], fingerprint: Fingerprint | None = FINGERPRINT) -> Path:
    """The same as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(saved(records, fingerprint)), encoding="utf-8")
    return path


def _stats(each: SpeedupRecord) -> dict[str, Any]:
    names = ("min", "max", "mean", "median", "q1", "q3", "hd15iqr", "ld15iqr")
    return {
        **dict.fromkeys(names, 0.002),
        **dict.fromkeys(("stddev", "iqr"), 0.0),
        "iqr_outliers": 0,
        "stddev_outliers": 0,
        "outliers": "0;0",
        "rounds": len(each.parallel_ns),
        "iterations": 1,
        "ops": 500.0,
        "total": 0.1,
    }
