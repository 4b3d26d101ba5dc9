"""A planted fault of a training under ``tf.distribute``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.devices.device import Devices
from harness.distribute.one_process import examine
from harness.distribute.single_device import LOOPS as SESSIONS, Experiment
from harness.distribute.training import Data, Training
from harness.faults.fault import Planted
from harness.faults.samples import sample
from harness.judgement.verification import Verification

FEATURES, OUTPUTS = 5, 3
LOOPS = tuple(SESSIONS)


@dataclass(frozen=True)
class TrainingCase(Planted):
    """A training under ``MirroredStrategy``; ``modes`` are its loops, which TensorFlow runs as graphs."""

    parallel: Callable[[], Training]
    twin: Callable[[], Training]
    kinds: frozenset[str]
    modes: tuple[str, ...] = LOOPS
    also: frozenset[str] = frozenset({"gradient"})

    def judge(self, devices: Devices, *, faulty: bool) -> Verification:
        """Train for three steps on equal shards, and judge."""
        build = self.parallel if faulty else self.twin
        batch = 2 * len(devices)
        data = Data(sample(3 * batch, FEATURES), sample(3 * batch, OUTPUTS, seed=1), batch)
        found = examine("mirrored", devices, Experiment(build, build.__name__, data, 3, self.modes))
        # What no loop shows alone, all show.
        loops = {SESSIONS[name].loop: name for name in self.modes}
        findings = tuple(replace(each, mode=loops.get(each.mode, ", ".join(self.modes))) for each in found.findings)
        return replace(found, findings=findings)
