"""The history of a training, step by step: a record that can be saved and compared."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, TypeAdapter

Array = npt.NDArray[np.float64]

#: What is recorded of each step, in the order in which a step computes it.
QUANTITIES = ("loss", "metric", "gradient", "weight", "slot")


@dataclass(frozen=True)
class DifferentCopy:
    """A replica's copy of a variable that differs from the first replica's, and the first step after which it does."""

    variable: str
    step: int
    device: str
    difference: float


@dataclass(frozen=True)
class History:
    """What one run of a training computed.

    ``values`` holds, by quantity (:data:`QUANTITIES`) and name, arrays ``[steps, elements]`` in float64, which holds
    narrower types without loss. ``iterations`` and ``rates`` are the optimizer's counter and learning rate after each
    step. ``rows`` holds the digests of the rows that each replica of this process was given in each step, where
    known. ``variable_devices`` are the devices that hold each variable or slot.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True)

    loop: str
    replicas: int
    devices: tuple[str, ...]
    values: Mapping[str, Mapping[str, Array]]
    iterations: tuple[int, ...]
    rates: tuple[float, ...]
    rows: tuple[tuple[tuple[str, ...], ...], ...] = ()
    different_copies: tuple[DifferentCopy, ...] = ()
    variable_devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the arrays, and everything else as JSON beside them, into one ``.npz``."""
        scalars = asdict(replace(self, values={}))
        arrays = {f"{kind}\t{name}": array for kind, named in self.values.items() for name, array in named.items()}
        np.savez(path, **{"history": np.asarray(json.dumps(scalars)), **arrays})  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> History:
        """Read what :meth:`save` wrote."""
        values: dict[str, dict[str, Array]] = {kind: {} for kind in QUANTITIES}
        with np.load(path, allow_pickle=False) as stored:
            scalars: dict[str, Any] = json.loads(str(stored["history"]))
            for key in stored.files:
                kind, tab, name = key.partition("\t")
                if tab:
                    values[kind][name] = stored[key]
        return TypeAdapter(cls).validate_python({**scalars, "values": values})


class Recorder:
    """Collects the history of a run, step by step."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, list[Array]]] = {kind: defaultdict(list) for kind in QUANTITIES}
        self.iterations: list[int] = []
        self.rates: list[float] = []
        self.rows: list[tuple[tuple[str, ...], ...]] = []
        self.different_copies: dict[str, DifferentCopy] = {}

    def add(self, quantity: str, name: str, value: object) -> None:
        """Add a value of this step."""
        self._values[quantity][name].append(np.asarray(value, np.float64).reshape(-1))

    def add_different_copy(self, variable: str, device: str, copy: Any, first: Any) -> None:
        """Add a copy that differs from the first replica's after this step, unless it already did before."""
        difference = np.abs(np.asarray(copy, np.float64) - np.asarray(first, np.float64)).max(initial=0.0)
        found = DifferentCopy(variable, len(self.iterations), device, float(difference))
        self.different_copies.setdefault(f"{variable} {device}", found)

    def history(self, loop: str, replicas: int, devices: tuple[str, ...], **rest: Any) -> History:
        """The history so far."""
        values = {
            kind: {name: np.stack(steps) for name, steps in named.items()} for kind, named in self._values.items()
        }
        return History(
            loop,
            replicas,
            devices,
            values,
            tuple(self.iterations),
            tuple(self.rates),
            tuple(self.rows),
            tuple(self.different_copies.values()),
            **rest,
        )
