"""Runs collectives over all cards, by the algorithms that TensorFlow has.

``ring`` and ``nccl`` are TensorFlow's own collective ops, one on each card, started by threads: a ring over
TensorFlow's copies on any device, or NVIDIA's library on GPUs. Broadcast has no ring: TensorFlow sends along a tree.
``hierarchical-copy`` and ``reduce-to-one`` are those of ``tf.distribute``, which only reduce: their all-gather is that
of ``tf.distribute``, and their broadcast its copy to each card.

TensorFlow has a reduce-scatter only for NCCL. With any other algorithm it is an all-reduce of which each card keeps its
share.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError as NotYet
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Generic, TypeVar

from harness.devices.device import Device
from harness.hardware.machine import NeverReturns, NoLibrary
from harness.lazy import tf
from harness.softgpu import DescribedGpus, loaded

#: TensorFlow tells groups of collectives apart by their key. Those of tf.distribute count from 1, so this one is free.
_GROUP_KEY = 0x4D414348
#: How long TensorFlow waits for a card that does not take part.
_TIMEOUT_S = 120.0
#: A collective that takes longer than this hangs, in seconds: NCCL may take some 20 to start on many cards.
LIMIT_S = 60.0
#: The algorithms that are made of TensorFlow's own ops, which take their names as a hint.
_OF_OPS = ("ring", "nccl")

_keys = itertools.count(1)


def algorithms_for(devices: Sequence[Device]) -> tuple[str, ...]:
    """Return the algorithms: none with one card or with other processes; NCCL with a GPU for each rank.

    Software GPUs stand in for NCCL with code of their own.
    """
    if len(devices) < 2 or not all(device.parsed.in_this_process for device in devices):
        return ()
    # TensorFlow's hierarchical copy halves the GPUs: of an odd number it leaves out the share of the last.
    odd = len(devices) % 2 == 1 and any(device.parsed.kind == "GPU" for device in devices)
    names = ["ring", *([] if odd else ["hierarchical-copy"]), "reduce-to-one"]
    gpus = {device.physical for device in devices if device.kind in ("gpu", "software-gpu")}
    # NCCL refuses two ranks on one card.
    return tuple(["nccl", *names] if len(gpus) == len(devices) else names)


class Collectives:
    """Runs collectives over ``devices``."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = tuple(devices)
        self._strategies: dict[str, Any] = {}
        self._limited: Limited[list[Any]] = Limited()
        self._instance: dict[tuple[object, ...], int] = {}
        # One thread for each card is kept, because starting threads would be timed with the collective.
        self._pool = ThreadPoolExecutor(max(len(self._devices), 1), thread_name_prefix="harness-collective")

    def run(self, kind: str, algorithm: str, tensors: Sequence[Any]) -> list[Any]:
        """Return the results, one on each device; ``tensors`` are on the devices and have one shape, ``[n, …]``.

        For reduce-scatter ``n`` is a multiple of the devices. Raise NoLibrary if NCCL does not work, and NeverReturns
        after ``LIMIT_S`` seconds: nothing can end such a call but the end of its process.
        """
        described = loaded()
        hangs = False
        if isinstance(described, DescribedGpus):
            said = dict(described.driver)
            lost = said.get("missing_libraries", "")
            if algorithm == "nccl" and "nccl" in lost:
                raise NoLibrary("NCCL", f"cannot open {lost}")
            hangs = kind in said.get(f"hangs.{algorithm}", "").split()

        def call() -> list[Any]:
            if hangs:
                Event().wait()
            by = self._by_ops if algorithm in _OF_OPS else self._by_strategy
            return by(kind, algorithm, tensors)

        return self._limited.run(call, LIMIT_S)

    def _by_ops(self, kind: str, algorithm: str, tensors: Sequence[Any]) -> list[Any]:
        composed = kind == "reduce-scatter" and algorithm != "nccl"
        op = "all-reduce" if composed else kind
        # An instance belongs to one shape and type.
        key = (op, algorithm, tensors[0].dtype.name, tuple(tensors[0].shape))
        instance = self._instance.setdefault(key, next(_keys))
        started = [
            self._pool.submit(_on_one_device, op, algorithm, device, rank, len(tensors), tensor, instance)
            for rank, (device, tensor) in enumerate(zip(self._devices, tensors, strict=True))
        ]
        results = _results(started)
        return self._shares(results) if composed else results

    def _by_strategy(self, kind: str, algorithm: str, tensors: Sequence[Any]) -> list[Any]:
        strategy = self._strategy(algorithm)
        values = strategy.experimental_distribute_values_from_function(
            lambda context: tensors[context.replica_id_in_sync_group]
        )
        if kind in ("all-reduce", "reduce-scatter"):
            reduced = strategy.extended.reduce_to(tf.distribute.ReduceOp.SUM, values, destinations=values)
            results = list(strategy.experimental_local_results(reduced))
            return self._shares(results) if kind == "reduce-scatter" else results
        if kind == "all-gather":
            gathered = strategy.gather(values, axis=0)
            return self._copies(gathered)
        return self._copies(tensors[0])

    def _copies(self, tensor: Any) -> list[Any]:
        def copy(device: Device) -> Any:
            with tf.device(device.name):
                return tf.identity(tensor)

        return list(self._pool.map(copy, self._devices))

    def _shares(self, results: Sequence[Any]) -> list[Any]:
        def share(rank: int, device: Device, result: Any) -> Any:
            rows = int(result.shape[0]) // len(self._devices)
            # One op: slicing in Python starts several on each card, which took longer than the all-reduce.
            begin, size = [0] * result.shape.rank, result.shape.as_list()
            begin[0], size[0] = rank * rows, rows
            with tf.device(device.name):
                return tf.raw_ops.Slice(input=result, begin=begin, size=size)

        return list(self._pool.map(share, range(len(self._devices)), self._devices, results))

    def _strategy(self, algorithm: str) -> Any:
        if algorithm not in self._strategies:
            reductions: dict[str, Callable[[], Any]] = {
                "hierarchical-copy": tf.distribute.HierarchicalCopyAllReduce,
                "reduce-to-one": tf.distribute.ReductionToOneDevice,
            }
            names = [device.name for device in self._devices]
            reduction = reductions[algorithm]()
            self._strategies[algorithm] = tf.distribute.MirroredStrategy(names, cross_device_ops=reduction)
        return self._strategies[algorithm]


def _results(started: Sequence[Future[Any]]) -> list[Any]:
    try:
        return [each.result() for each in started]
    except tf.errors.OpError as error:
        if "NCCL" not in error.message:
            raise
        raise NoLibrary("NCCL", error.message.splitlines()[0]) from error


def _on_one_device(kind: str, algorithm: str, device: Device, rank: int, size: int, tensor: Any, instance: int) -> Any:
    """Run the op of one rank. It waits for those of all others."""
    with tf.device(device.name):
        group = {
            "group_size": tf.constant(size),
            "group_key": tf.constant(_GROUP_KEY),
            "instance_key": tf.constant(instance),
            "communication_hint": algorithm,
            "timeout_seconds": _TIMEOUT_S,
        }
        if kind == "all-reduce":
            return tf.raw_ops.CollectiveReduceV2(
                input=tensor, ordering_token=[], merge_op="Add", final_op="Id", **group
            )
        if kind == "all-gather":
            return tf.raw_ops.CollectiveGatherV2(input=tensor, ordering_token=[], **group)
        if kind == "reduce-scatter":
            return tf.raw_ops.CollectiveReduceScatterV2(
                input=tensor, ordering_token=[], merge_op="Add", final_op="Id", **group
            )
        if rank == 0:
            return tf.raw_ops.CollectiveBcastSendV2(input=tensor, **group)
        shape = tf.constant(tensor.shape.as_list(), tf.int32)
        return tf.raw_ops.CollectiveBcastRecvV2(shape=shape, T=tensor.dtype, **group)


_T = TypeVar("_T")
_Call = tuple[Callable[[], _T], "Future[_T]"]


class Limited(Generic[_T]):
    """Runs calls in a thread that is kept for all of them, because starting one would be timed with the call."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call[_T]] | None = None

    def run(self, call: Callable[[], _T], limit_s: float) -> _T:
        """Return what the call returns, or raise what it raises, or NeverReturns. Its thread is then left alone."""
        if self._calls is None:
            self._calls = SimpleQueue()
            # A process ends without waiting for it.
            Thread(target=_work, args=(self._calls,), name="harness-limited", daemon=True).start()
        future: Future[_T] = Future()
        self._calls.put((call, future))
        try:
            return future.result(limit_s)
        except NotYet:
            if future.done():
                raise  # the call itself raised it
            self._calls = None
            raise NeverReturns(limit_s) from None


def _work(calls: SimpleQueue[_Call[_T]]) -> None:
    while True:
        call, future = calls.get()
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where the call was made
            future.set_exception(error)
        del call, future  # the tensors in them, until the next call comes
