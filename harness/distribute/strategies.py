"""The strategies by name, and how each is made in a process whose devices are configured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.errors import StrategyTaken, UnknownStrategy

#: By the name that a user gives: what it stands for.
STRATEGIES = {
    "mirrored": "MirroredStrategy: a copy of the variables on each device of one process",
    "central_storage": "CentralStorageStrategy: the variables in one place, the work on all devices of one process",
    "multi_worker": "MultiWorkerMirroredStrategy: a copy of the variables in each of several processes",
    "parameter_server": "ParameterServerStrategy: the variables in a process of their own, updated in no order",
    "dtensor_data": "DTensor, each device with its rows of the batch",
    "dtensor_model": "DTensor, each device with its columns of the weights",
}
#: Those whose every step is that of one device, and which one process can run.
IN_ONE_PROCESS = ("mirrored", "central_storage", "dtensor_data", "dtensor_model")


def known(name: str) -> str:
    """``name``, if it is one of :data:`STRATEGIES`.

    Raises:
        UnknownStrategy: it is not.
    """
    if name not in STRATEGIES:
        raise UnknownStrategy(name, tuple(STRATEGIES))
    return name


#: What this process has made, by name and devices.
_made: dict[tuple[str, tuple[str, ...]], Any] = {}


def make_strategy(name: str, devices: Sequence[str]) -> Any:
    """The strategy over these devices (full names), each of which it is told: by itself it would take all there are,
    and the batch of a replica would change with the machine (FAULTS C06).

    A process has one strategy, whoever asks: each numbers its collectives from the same number on, so that those of a
    second one are taken for parts of the first one's, and fail or hang (FAULTS C07).

    Raises:
        UnknownStrategy: no such strategy works in one process.
        StrategyTaken: this process has another one already.
    """
    import tensorflow as tf

    key = (name, tuple(devices))
    if key not in _made:
        if name not in ("mirrored", "central_storage"):
            raise UnknownStrategy(name, ("mirrored", "central_storage"))
        if _made:
            (other, taken), *_ = _made
            raise StrategyTaken(f"{name} over {', '.join(devices)}", f"{other} over {', '.join(taken)}")
        if name == "mirrored":
            _made[key] = tf.distribute.MirroredStrategy(list(devices))
        else:
            _made[key] = tf.distribute.experimental.CentralStorageStrategy(list(devices), devices[0])
    return _made[key]
