"""Decides whether two runs can be compared: the hardware and software that affect speedups must be the same."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from harness.records import Fingerprint

#: Hexadecimal digits of the hash in a key: with 48 bits, two of a thousand machines collide with a chance of 1e-9.
_HASH_DIGITS = 12
_FACTS = (
    *("tensorflow", "keras", "python", "onednn", "cpu_model", "cores_logical", "cores_physical", "gpus", "driver"),
    *("cuda", "cudnn", "spec", "devices", "intra_op_threads", "inter_op_threads", "tf32", "deterministic_ops"),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One field in which two machines differ, with both values as texts."""

    field: str
    base: str
    new: str

    def __str__(self) -> str:
        return f"{self.field}: {self.base} in the baseline, {self.new} now"


def comparable_facts(fingerprint: Fingerprint) -> dict[str, Any]:
    """List the facts that must be the same in two runs, by name.

    Left out: NumPy (both sides of a measurement are TensorFlow programs), the operating system, the host's memory, and
    the UUIDs of GPUs. A patch release of TensorFlow or Keras counts, because it changes kernels and graphs.
    """
    gpus = [f"{gpu.name}, {gpu.compute_capability or '?'}, {gpu.memory_mib or '?'} MiB" for gpu in fingerprint.gpus]
    python = ".".join(fingerprint.python.split(".")[:2])
    facts = {name: getattr(fingerprint, name) for name in _FACTS}
    return facts | {"python": python, "gpus": gpus, "devices": list(fingerprint.devices)}


def differences(base: Fingerprint | None, new: Fingerprint | None) -> tuple[Difference, ...]:
    """List the fields that differ; none if two runs are comparable. An unknown machine differs from every other."""
    if base is None or new is None:
        return (Difference("fingerprint", *("unknown" if each is None else "known" for each in (base, new))),)
    before, now = comparable_facts(base), comparable_facts(new)
    return tuple(
        Difference(name, _text(before[name]), _text(now[name])) for name in before if before[name] != now[name]
    )


def machine_key(fingerprint: Fingerprint) -> str:
    """Name this hardware and software, for a folder: a readable part, then a hash of every fact.

    Two fingerprints have the same key exactly if :func:`differences` finds none.
    """
    facts = comparable_facts(fingerprint)
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:_HASH_DIGITS]
    hardware = fingerprint.gpus[0].name if fingerprint.gpus else f"cpu-{fingerprint.cores_logical or 'unknown'}-cores"
    readable = f"{hardware}-{fingerprint.spec or 'no-spec'}-tf{fingerprint.tensorflow}"
    return f"{re.sub('[^a-z0-9.]+', '-', readable.lower()).strip('-')}-{digest}"


def _text(value: Any) -> str:
    return "unknown" if value is None else repr(value)
