"""Wrong set-up: more devices are used than intended, as by a strategy that takes all it finds (C06)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, Program, kinds
from harness.faults.samples import in_shards, sample
from harness.lazy import tf


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
    return in_shards(devices.names, tf.tanh)


def _one_too_many(faulty: Program, right: Program, devices: Devices) -> Case:
    # Divides among any number of replicas up to 4, and among 6 and 8.
    inputs = {"x": sample(24, 3)}
    return Case(faulty, right, tf.tanh, inputs, kinds("op-placement"), meant=devices[:-1])


def _takes_all(devices: Devices) -> Case:
    return _one_too_many(_under(None), _under(devices[:-1].names), devices)


def _one_more(devices: Devices) -> Case:
    return _one_too_many(_by_hand(devices), _by_hand(devices[:-1]), devices)


_NOT_MEANT = "names a device that the program must not use"

FAULTS = (
    Fault("C06-strategy-takes-all", "MirroredStrategy() takes all devices", "example programs", _takes_all, _NOT_MEANT),
    Fault(
        "C06-one-device-more",
        "an op runs on a device that the program should not use",
        "made up for this list",
        _one_more,
        _NOT_MEANT,
    ),
)
