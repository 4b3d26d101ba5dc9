"""Wrong set-up: more devices are used than intended, as by a strategy that takes all it finds (C06)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, Program, kinds, planted
from harness.faults.samples import per_shard, sample, shares
from harness.lazy import tf

FAULTS: list[Fault[Case]] = []


def _under(names: Sequence[str] | None) -> Program:
    """``tanh`` of a shard of ``x`` in each replica of a MirroredStrategy on these devices; ``None``: its default."""
    strategy = tf.distribute.MirroredStrategy(names)
    count = strategy.num_replicas_in_sync

    def program(x: Any) -> Any:
        def replica() -> Any:
            own = x.shape[0] // count
            index = tf.distribute.get_replica_context().replica_id_in_sync_group
            return tf.tanh(tf.slice(x, [index * own, 0], [own, x.shape[1]]))

        return tf.concat(strategy.experimental_local_results(strategy.run(replica)), axis=0)

    compiled: Program = tf.function(program)
    return compiled


def _by_hand(devices: Devices) -> Program:
    def program(x: Any) -> Any:
        return tf.concat(per_shard(devices, x, shares(x.shape[0], len(devices)), tf.tanh), axis=0)

    return program


def _case(devices: Devices, parallel: Program, twin: Program) -> Case:
    # Divides among any number of replicas up to 4, and among 6 and 8.
    inputs = {"x": sample(24, 3)}
    return Case(parallel, twin, tf.tanh, inputs, kinds("op-placement"), meant=devices[:-1])


@planted(
    FAULTS,
    "C06-strategy-takes-all",
    "MirroredStrategy() takes all devices",
    "seeds",
    "names a device that the program must not use",
)
def _takes_all(devices: Devices) -> Case:
    return _case(devices, _under(None), _under(devices[:-1].names))


@planted(
    FAULTS,
    "C06-one-device-more",
    "an op runs on a device that the program should not use",
    "own attack",
    "names a device that the program must not use",
)
def _one_more(devices: Devices) -> Case:
    return _case(devices, _by_hand(devices), _by_hand(devices[:-1]))
