"""Which two runs may be compared: those on the same hardware and software, as far as it moves speedups."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from harness.records import Fingerprint

#: Hexadecimal digits of the hash in a key: with 48 bits, a thousand machines share one with a chance of 2e-9.
_HASH_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Difference:
    """One field in which two machines differ, with both values as texts."""

    field: str
    base: str
    new: str

    def __str__(self) -> str:
        return f"{self.field}: {self.base} in the baseline, {self.new} now"


def comparable_facts(fingerprint: Fingerprint) -> dict[str, Any]:
    """What has to be the same in two runs, by name.

    In: TensorFlow and Keras whole (a patch release changes kernels and graphs), Python to its minor version, oneDNN,
    the CPU's model and its cores, the model of each GPU with its compute capability and memory, driver, CUDA, cuDNN,
    the device spec and what it came to, threads, TF32, determinism. Out: NumPy (both sides of a measurement are
    TensorFlow programs), the kernel and its build, the host's memory, and which card of a model it is (its uuid).
    """
    gpus = [f"{gpu.name}, {gpu.compute_capability or '?'}, {gpu.memory_mib or '?'} MiB" for gpu in fingerprint.gpus]
    return {
        "tensorflow": fingerprint.tensorflow,
        "keras": fingerprint.keras,
        "python": ".".join(fingerprint.python.split(".")[:2]),
        "onednn": fingerprint.onednn,
        "cpu_model": fingerprint.cpu_model,
        "cores_logical": fingerprint.cores_logical,
        "cores_physical": fingerprint.cores_physical,
        "gpus": gpus,
        "driver": fingerprint.driver,
        "cuda": fingerprint.cuda,
        "cudnn": fingerprint.cudnn,
        "spec": fingerprint.spec,
        "devices": list(fingerprint.devices),
        "intra_op_threads": fingerprint.intra_op_threads,
        "inter_op_threads": fingerprint.inter_op_threads,
        "tf32": fingerprint.tf32,
        "deterministic_ops": fingerprint.deterministic_ops,
    }


def differences(base: Fingerprint | None, new: Fingerprint | None) -> tuple[Difference, ...]:
    """The fields that make two runs not comparable; none where they are. An unknown machine is like no other."""
    if base is None or new is None:
        return (Difference("fingerprint", _text(base and "there"), _text(new and "there")),)
    before, now = comparable_facts(base), comparable_facts(new)
    return tuple(
        Difference(name, _text(before[name]), _text(now[name])) for name in before if before[name] != now[name]
    )


def machine_key(fingerprint: Fingerprint) -> str:
    """A name for this hardware and software, fit for a folder: what a person looks for, then a hash of every fact.

    Two fingerprints have the same key exactly where :func:`differences` finds none between them.
    """
    facts = comparable_facts(fingerprint)
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:_HASH_DIGITS]
    hardware = fingerprint.gpus[0].name if fingerprint.gpus else f"cpu-{fingerprint.cores_logical or 'unknown'}-cores"
    readable = f"{hardware}-{fingerprint.spec or 'no-spec'}-tf{fingerprint.tensorflow}"
    return f"{re.sub('[^a-z0-9.]+', '-', readable.lower()).strip('-')}-{digest}"


def _text(value: Any) -> str:
    return "not known" if value is None else repr(value)
