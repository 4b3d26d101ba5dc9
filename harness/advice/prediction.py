"""A trial for cards that this machine lacks: ways are verified on software GPUs, and their times are predicted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import psutil

from harness.advice.cards import Cards
from harness.advice.counted import NotCounted, tasks_of
from harness.advice.record import CPU, Way
from harness.advice.running import Running, copied_by, peaks_of, start
from harness.advice.script import Script, on_one_device
from harness.advice.step_time import Task, step_seconds
from harness.advice.trial import Trial
from harness.devices.device import Devices
from harness.devices.kinds.software_gpu import LEAST_MIB, MOST_MIB
from harness.devices.runtime import configure, current
from harness.errors import EvidenceError
from harness.evidence.tracing import trace
from harness.plural import plural

#: The share of the host's free memory that the software GPUs may need together.
_SHARE = 0.6
#: So many devices are verified at most: more of them take long, and are verified alike.
_MOST = 16


def software_gpus(cards: Cards) -> Devices:
    """Configure software GPUs to verify on, or take those that are configured: at most one for each card."""
    known = current()
    if known is None or any(each.kind != "software-gpu" for each in known):
        mib = int(psutil.virtual_memory().available * _SHARE) >> 20
        known = configure(f"softgpu:{min(cards.count, _MOST)}x{min(max(mib, LEAST_MIB), MOST_MIB)}")
    return known[: cards.count]


@dataclass
class PredictedTrial(Trial):
    """Predicts instead of timing. ``cards`` are those that the user asks for."""

    cards: Cards = field(kw_only=True)
    about_layers: ClassVar[str] = "predicting the time of the layers"
    _tasks: tuple[Task, ...] = ()
    _unknown: str = ""
    _limited: str = ""

    @property
    def about(self) -> dict[str, Any]:
        """The fields of the record that are not of one way, with the cards that it is for."""
        label = f"{self.cards.count:,} {self.cards.profile.name}{self._limited}"
        known = {"label": label, "gates": False, "kind": "predicted", "cards": label}
        return {**super().about, **known, "spec": str(self.cards)}

    def start(self) -> Way:
        """Run the program on one device, and see how many this machine can hold."""
        way = super().start()
        peak = max((each.peak_bytes or 0 for each in way.memory), default=0)
        held = int(psutil.virtual_memory().available * _SHARE) // max(peak, 1)
        count = max(1, min(len(self.devices), held))
        if count < self.cards.count:
            why = "ways are verified on no more" if count == _MOST else "this machine can hold no more to verify"
            self._limited = f" instead of {self.cards.count:,}, as {why}"
            self.say(f"verifying and predicting on {plural(count, 'device')}{self._limited}")
        self.cards = replace(self.cards, count=count)
        self.devices = self.devices[:count]
        self.facts = replace(self.facts, spec=f"gpu:{count}")
        self.one = replace(self.one, script=on_one_device(self.facts))
        return replace(way, code=self.one.script.text)

    def _alone(self, way: Way) -> Way:
        try:
            self._tasks = tasks_of(trace(self.one.step))
        except (EvidenceError, NotCounted) as error:
            self._unknown = str(error)
            return replace(way, reason=f"not predicted: {error}")
        found = self.cards.predict(self._tasks, self._tasks)
        return replace(way, time_ns=found.time_ns, time_interval_ns=found.interval_ns)

    def _layer_s(self, run: Callable[[], Any]) -> float:
        run()
        return step_seconds(tasks_of(trace(run)), self.cards.machine())

    def _timed(self, way: Way, script: Script) -> Way:
        """Predict the time of a right way, and its speedup."""
        self.say(f"{way.name}: {way.judgement}; predicting its time")
        if differs := self._differs(way, script):
            return replace(way, judgement="wrong", reason=differs)
        if way.name == CPU:
            return replace(way, reason=f"{way.reason}; not predicted: the host of those cards is not known")
        running: list[Running] = []

        def run() -> None:
            running.append(start(way.name, script, self.devices, self._fresh).warmed_up())

        way = replace(way, memory=peaks_of(run, self.devices), copied_bytes=copied_by(running[0].step))
        try:
            tasks = tasks_of(trace(running[0].step))
        except (EvidenceError, NotCounted) as error:
            return replace(way, reason=f"{way.reason}; not predicted: {error}")
        if self._unknown:
            return replace(way, reason=f"{way.reason}; not predicted: {self._unknown}")
        found = self.cards.predict(self._tasks, tasks)
        return replace(way, time_ns=found.time_ns, time_interval_ns=found.interval_ns, speedup=found.speedup)
