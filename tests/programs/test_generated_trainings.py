"""Generated trainings under strategies of one process, against one device: not one finding.

HYPOTHESIS_PROFILE=ci runs 2 of each, =long 100 of each, 300 in all.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from harness import Devices

EXAMPLES = {"dev": 2, "ci": 2, "long": 100}[os.environ.get("HYPOTHESIS_PROFILE", "dev")]
#: Other examples for each number.
SEED = 1000 * int(os.environ.get("HARNESS_PROGRAMS_SEED", "0"))

_LOOPS = {"mirrored": ("custom", "fit"), "central_storage": ("custom",), "dtensor_data": ("custom",)}
#: DTensor has no mixed precision of Keras's; what cannot be divided among replicas is for a custom loop alone.
_OPTIONS: dict[str, dict[str, Any]] = {
    "mirrored": {},
    # Keras's LossScaleOptimizer raises under it.
    "central_storage": {"even": False, "policies": ("float32", "float64", "mixed_bfloat16")},
    "dtensor_data": {"policies": ("float32", "float64")},
}


@pytest.mark.long
@pytest.mark.parametrize("strategy", list(_LOOPS))
def test_generated_trainings_give_no_finding(
    strategy: str,
    devices: Devices,
    fresh_process: Callable[..., subprocess.CompletedProcess[str]],
    spec_of: Callable[[int], str],
) -> None:
    if len(devices) < 2:
        pytest.skip("a strategy over one device is one device")
    done = fresh_process(train, timeout_s=900 + 60 * EXAMPLES, STRATEGY=strategy, DEVICES=spec_of(len(devices)))
    print(done.stdout)


def train() -> None:
    """A process has one strategy."""
    import harness
    from harness import Verdict, strategies
    from harness.distribute.one_process import examine
    from harness.distribute.single_device import Experiment
    from harness.distribute.training import Data

    name = os.environ["STRATEGY"]
    devices = harness.configure(os.environ["DEVICES"])
    setups = strategies.training_setups(replicas=len(devices), **_OPTIONS[name])
    for setup in strategies.sample(setups, EXAMPLES, seed=SEED + len(devices)):
        data = Data(*setup.data(), setup.batch_size)
        found = examine(name, devices, Experiment(setup.build, repr(setup), data, setup.steps, _LOOPS[name]))
        assert found.verdict is Verdict.PASS, f"{setup!r}\n{found}"
        assert found.exercised.gradients, f"{setup!r}: no gradient was compared"
    print(f"{EXAMPLES} trainings under {name} on {len(devices)} devices")
