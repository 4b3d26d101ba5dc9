"""The strategies by name, and how to make one in a process whose devices are configured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.errors import StrategyTaken
from harness.lazy import tf

#: By the name that a user gives: what it stands for.
STRATEGIES = {
    "mirrored": "MirroredStrategy: a copy of the variables on each device of one process",
    "central_storage": "CentralStorageStrategy: the variables in one place, the work on all devices of one process",
    "multi_worker": "MultiWorkerMirroredStrategy: a copy of the variables in each of several processes",
    "parameter_server": "ParameterServerStrategy: the variables in a process of their own, updated asynchronously",
    "dtensor_data": "DTensor: each device has its rows of the batch",
    "dtensor_model": "DTensor: each device has its columns of the weights",
}
#: Those that one process can run, and whose every step must match the single-device run.
IN_ONE_PROCESS = ("mirrored", "central_storage", "dtensor_data", "dtensor_model")

#: The strategy of this process, by name and devices.
_made: dict[tuple[str, tuple[str, ...]], Any] = {}


def make_strategy(name: str, devices: Sequence[str], reduction: str = "") -> Any:
    """Make ``mirrored`` or ``central_storage`` over these devices (full names), or return that of this process.

    ``reduction`` names the class in ``tf.distribute`` that adds what the replicas of ``mirrored`` have; empty:
    TensorFlow's choice, which is collectives.

    The devices are always given: by default a strategy takes all it finds, and a replica's batch would change with the
    machine. A process has one strategy: each numbers its collectives from the same number on, so that those of
    a second one would be mixed up with those of the first, and fail or hang. Those that copy, as their ``reduction``
    says, have no collectives, and do not count.

    Raise StrategyTaken if this process already has another one.
    """
    if reduction:
        return tf.distribute.MirroredStrategy(list(devices), getattr(tf.distribute, reduction)())
    key = (name, tuple(devices))
    if key not in _made:
        if _made:
            (other, taken), *_ = _made
            raise StrategyTaken(f"{name} over {', '.join(devices)}", f"{other} over {', '.join(taken)}")
        if name == "mirrored":
            _made[key] = tf.distribute.MirroredStrategy(list(devices))
        else:
            _made[key] = tf.distribute.experimental.CentralStorageStrategy(list(devices), devices[0])
    return _made[key]
