"""What a training went through, step by step: a record that can be saved and compared."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

#: What is recorded of each step, in the order in which it comes about in one.
QUANTITIES = ("loss", "metric", "gradient", "weight", "slot")


@dataclass(frozen=True)
class Apart:
    """A variable of which a replica's copy differs from the first replica's; ``step`` is the first such step."""

    variable: str
    step: int
    device: str
    difference: float


@dataclass(frozen=True)
class Course:
    """What one run of a training went through.

    ``values`` holds, by quantity (:data:`QUANTITIES`) and name, arrays ``[steps, elements]`` in float64, to which
    narrower types convert without loss. ``iterations`` and ``rates`` are the optimizer's counter and learning rate
    after each step. ``rows`` says for each step and each replica of this process which rows it was given (digests), as
    far as that is known. ``homes`` names the devices that hold each variable or slot.
    """

    loop: str
    replicas: int
    devices: tuple[str, ...]
    values: Mapping[str, Mapping[str, Array]]
    iterations: tuple[int, ...]
    rates: tuple[float, ...]
    rows: tuple[tuple[tuple[str, ...], ...], ...] = ()
    apart: tuple[Apart, ...] = ()
    homes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    slot_owners: Mapping[str, str] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """How many steps were taken."""
        return len(self.iterations)

    def save(self, path: Path) -> None:
        """Write the arrays, and the rest beside them as JSON, into one ``.npz``."""
        told = asdict(replace(self, values={}))
        arrays = {f"{kind}\t{name}": array for kind, named in self.values.items() for name, array in named.items()}
        np.savez(path, **{"course": np.asarray(json.dumps(told)), **arrays})  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> Course:
        """Read what :meth:`save` wrote."""
        values: dict[str, dict[str, Array]] = {kind: {} for kind in QUANTITIES}
        with np.load(path, allow_pickle=False) as stored:
            told: dict[str, Any] = json.loads(str(stored["course"]))
            for key in stored.files:
                kind, tab, name = key.partition("\t")
                if tab:
                    values[kind][name] = stored[key]
        return cls(
            loop=told["loop"],
            replicas=told["replicas"],
            devices=tuple(told["devices"]),
            values=values,
            iterations=tuple(told["iterations"]),
            rates=tuple(told["rates"]),
            rows=tuple(tuple(tuple(replica) for replica in step) for step in told["rows"]),
            apart=tuple(Apart(**each) for each in told["apart"]),
            homes={name: tuple(devices) for name, devices in told["homes"].items()},
            slot_owners=told["slot_owners"],
        )


class Recorder:
    """Collects what the steps of a run give."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, list[Array]]] = {kind: defaultdict(list) for kind in QUANTITIES}
        self.iterations: list[int] = []
        self.rates: list[float] = []
        self.rows: list[tuple[tuple[str, ...], ...]] = []
        self.apart: dict[str, Apart] = {}

    def add(self, quantity: str, name: str, value: object) -> None:
        """The value of this step."""
        self._values[quantity][name].append(np.asarray(value, np.float64).reshape(-1))

    def is_apart(self, variable: str, device: str, difference: float) -> None:
        """A copy differs after the step that is being recorded; the first step counts."""
        self.apart.setdefault(f"{variable} {device}", Apart(variable, len(self.iterations), device, difference))

    def values(self) -> dict[str, dict[str, Array]]:
        """By quantity and name, each ``[steps, elements]``."""
        return {kind: {name: np.stack(steps) for name, steps in named.items()} for kind, named in self._values.items()}
