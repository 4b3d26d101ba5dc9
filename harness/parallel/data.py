"""Data parallel: split a batch, run a function on each device, concatenate."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from harness._tensorflow import as_autograph
from harness.devices.device import Device, Devices
from harness.errors import ShardingError
from harness.lazy import tf
from harness.parallel.given import given_names, split_and_whole
from harness.parallel.gradients import pinned_to
from harness.parallel.making import variables_on
from harness.parallel.notes import add_note
from harness.parallel.region import inlined
from harness.parallel.shards import Batch, check_result, gather_batch, split_rows
from harness.parallel.shares import given_shares, measured_shares, without_tape


def make_parallel(
    fn: Callable[..., Any],
    devices: Sequence[Device],
    *,
    axis: int = 0,
    broadcast: Sequence[str] = (),
    colocate_gradients: bool = True,
    shares: Sequence[float] | Literal["auto"] | None = None,
) -> DataParallel:
    """A callable that runs ``fn`` on each of ``devices``, each on its share of the rows, and joins the results.

    Give the callable the arguments of ``fn``, by position or by name: tensors, arrays, or nests of them. Each is split
    along ``axis`` on the host device, except those named in ``broadcast``, which every device gets whole. The results
    (any nest of tensors with one entry per row along ``axis``) are concatenated on the host device. Shards differ by
    at most one row; with fewer rows than devices the last devices stay idle, and a batch of 0 rows runs on the first.
    Variables are shared; those that ``fn`` makes on its first call are made on the host device. It works in eager code
    and in ``tf.function``, the batch size known or not.

    Args:
        fn: row-wise: row i of its results depends on row i of its arguments alone.
        devices: what ``harness.configure`` returned, or a slice of it.
        axis: the batch axis; a negative one counts from the last axis of each tensor.
        broadcast: names of arguments that are no batch, as in the signature of ``fn``. Positional arguments that have
            no name there are called ``args[0]``, ``args[1]`` and so on.
        colocate_gradients: run each shard's backward ops on the shard's device. Without it TensorFlow runs them
            all where ``tape.gradient`` is called: the gradients are right, the speedup is gone.
        shares: how to share out the rows where devices differ: a positive number for each device, such as ``[3, 1]``
            for three rows on the first to one on the second. With ``"auto"`` the first call with a row, which must be
            eager, runs ``fn`` four times on each device with the same rows, and takes the shares from the times. So
            ``fn`` must have no other effect than its results. ``shares`` of the callable has what was measured.

    Examples:
        >>> parallel = harness.make_parallel(model, devices, shares=[3, 1])
        >>> y = parallel(x)  # of 8 rows, 6 on the first device and 2 on the second

    Raises:
        ShardingError: an argument is invalid; when called: an
            argument that cannot be split, or an output that is not a batch.
        Exception: what ``fn`` raises, with the shard and the device added to it.
    """
    return DataParallel(
        fn, devices, axis=axis, broadcast=broadcast, colocate_gradients=colocate_gradients, shares=shares
    )


class DataParallel:
    """What :func:`make_parallel` returns."""

    #: TensorFlow's AutoGraph leaves a callable with this attribute as it is; ``fn`` itself is converted below.
    autograph_info__: Any = None

    def __init__(
        self,
        fn: Callable[..., Any],
        devices: Sequence[Device],
        *,
        axis: int = 0,
        broadcast: Sequence[str] = (),
        colocate_gradients: bool = True,
        shares: Sequence[float] | Literal["auto"] | None = None,
    ) -> None:
        if not callable(fn):
            raise ShardingError(f"fn={fn!r} is not callable; give the function to run on each device")
        if not isinstance(axis, int) or isinstance(axis, bool):
            raise ShardingError(f"axis={axis!r}; accepted: an integer")
        self.fn = fn
        self.devices = Devices.given(devices, ShardingError)
        self.axis = axis
        self.broadcast = given_names("broadcast", broadcast, ShardingError)
        self.colocate_gradients = colocate_gradients
        #: The share of each device, as integers; ``None`` where all have the same, or where it is not measured yet.
        self.shares = None if shares is None or shares == "auto" else given_shares(shares, len(self.devices))
        self._measures = isinstance(shares, str)

    def __call__(self, /, *positional: Any, **arguments: Any) -> Any:
        """Run ``fn`` on every device. See :func:`make_parallel`."""
        names = self._names(len(positional))
        for name, value in zip(names, positional, strict=True):
            if name in arguments:
                raise TypeError(f"argument {name!r} is given twice: by position and by name")
            arguments[name] = value
        split, whole = split_and_whole(arguments, self.broadcast, ShardingError)
        with self.on(self.devices.host):
            batch = gather_batch(split, self.axis)
            call = _ShardCall(self, split, whole, batch, names)
            if self._measures and not (batch.rows_are_known and batch.rows == 0):
                self.shares, self._measures = measured_shares(call.rate, len(self.devices)), False
            places = list(range(len(self.devices)))
            if self.shares is None:
                rows, shards = batch.shards(len(self.devices))
            else:
                places, rows, shards = batch.uneven(self.shares)
            results = call.run(places, rows, shards)
            joined = [
                # One shard's result is brought to the host too, where the joined results are.
                tf.nest.map_structure(tf.identity, column[0], expand_composites=True)
                if len(column) == 1
                else _joined(column, self.axis)
                for column in zip(*results, strict=True)
            ]
            return call.pack(joined)

    def on(self, device: str) -> AbstractContextManager[None]:
        """Run the body on a device."""
        scope: AbstractContextManager[None] = pinned_to(device) if self.colocate_gradients else tf.device(device)
        return scope

    def _names(self, count: int) -> list[str]:
        """Name the first ``count`` positional arguments of ``fn``."""
        if not count:
            return []
        try:
            parameters = list(inspect.signature(self.fn).parameters.values())
        except (TypeError, ValueError):  # Some functions written in C have no signature.
            parameters = []
        named = [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        return [*named, *(f"args[{index}]" for index in range(count - len(named)))][:count]


def _joined(parts: Sequence[Any], axis: int) -> Any:
    """The results of the shards, one after the other along the batch axis.

    Raises:
        ShardingError: they differ in another axis, as far as their shapes are known.
    """
    shapes = [part.shape.as_list() for part in parts if tf.is_tensor(part) and part.shape.rank is not None]
    for other in shapes[1:] if len(shapes) == len(parts) else ():
        own = shapes[0]
        for at in range(min(len(own), len(other))):
            differ = own[at] is not None and other[at] is not None and own[at] != other[at]
            if differ and at != axis % len(own):
                raise ShardingError(
                    f"the results of two shards have the shapes {own} and {other}, and cannot be joined along axis "
                    f"{axis}; make axis {at} as long in every shard: to_tensor(), say, pads each shard to its own "
                    "longest row, and to_tensor(shape=...) pads all alike"
                )
    return tf.concat(parts, axis=axis)


@dataclass(eq=False)
class _ShardCall:
    """One call of a :class:`DataParallel`: its nests, and how a shard runs."""

    parallel: DataParallel
    split: dict[str, Any]
    whole: dict[str, Any]
    batch: Batch
    #: The names of the arguments that ``fn`` gets by position, in their order.
    positional: Sequence[str]
    #: What ``fn`` returned.
    outputs: Any = None

    def __post_init__(self) -> None:
        #: Ragged results cannot be replaced by zeros where a shard has no rows.
        self.ragged = any(isinstance(leaf, tf.RaggedTensor) for leaf in self.batch.leaves)
        self.fn = as_autograph(inlined(self.parallel.fn))

    def rate(self, index: int) -> Callable[[], Any]:
        """A run of as many rows on a device as an equal share has. It is on no tape of the caller's."""
        rows, shards = self.batch.shards(len(self.parallel.devices))

        def run() -> Any:
            with without_tape():
                return self.shard(index, shards[0], functools.partial(self.on_rows, rows=rows[0]))

        return run

    def run(self, places: Sequence[int], rows: list[Any], shards: list[list[Any]]) -> list[list[Any]]:
        results: list[list[Any]] = []
        for at, (index, leaves) in enumerate(zip(places, shards, strict=False)):
            body: Callable[..., list[Any]] = self.on_rows
            if results and not self.batch.rows_are_known:
                body = functools.partial(self.on_rows_or_a_spare_one, rows[0], shards[0])
                if not self.ragged:
                    body = functools.partial(self.on_rows_if_any, results[0])
            results.append(self.shard(index, leaves, functools.partial(body, rows=rows[at])))
        return results

    def on_rows_if_any(self, first: list[Any], own: Sequence[Any], rows: Any) -> list[Any]:
        """The number of rows is known when the graph runs: a device without a row is left out by a condition."""
        axes = [tf.range(tf.rank(like)) == self.parallel.axis % tf.rank(like) for like in first]
        shapes = [tf.where(axis, 0, tf.shape(like)) for axis, like in zip(axes, first, strict=True)]
        results = tf.cond(
            rows > 0,
            lambda: self.on_rows(_of_the_branch(own), rows, _of_the_branch(self.whole)),
            lambda: [tf.zeros(shape, like.dtype) for shape, like in zip(shapes, first, strict=True)],
        )
        leaves: list[Any] = tf.nest.flatten(results)  # tf.cond returns the one item of a list itself
        for leaf, like in zip(leaves, first, strict=True):
            if like.shape.rank is not None:
                axis = self.parallel.axis % like.shape.rank
                leaf.set_shape([None if at == axis else size for at, size in enumerate(like.shape)])
        return leaves

    def on_rows_or_a_spare_one(self, others: Any, spare: list[Any], own: Sequence[Any], rows: Any) -> list[Any]:
        """A device without a row computes on one of the first shard's, and what comes of it is cut off."""
        padded, added = self.batch.fill_if_empty(own, rows, spare, others)
        results = self.on_rows(padded, rows + added)
        return [split_rows(result, [rows, added], self.parallel.axis, 2)[0] for result in results]

    def shard(self, index: int, leaves: list[Any], body: Callable[..., list[Any]]) -> list[Any]:
        parallel = self.parallel
        device = parallel.devices[index].name
        try:
            with parallel.on(device), variables_on(parallel.devices.host):
                return body(leaves)
        except Exception as error:
            add_note(error, f"in shard {index} of {len(parallel.devices)}, on {device}")
            raise

    def on_rows(self, own: Sequence[Any], rows: Any, whole: dict[str, Any] | None = None) -> list[Any]:
        named = {**tf.nest.pack_sequence_as(self.split, list(own)), **(self.whole if whole is None else whole)}
        self.outputs = self.fn(*[named.pop(name) for name in self.positional], **named)
        kept = [leaf for leaf in tf.nest.flatten(self.outputs) if leaf is not None]
        if not kept:
            raise ShardingError("fn returned no tensor; return one value per row")
        parallel, host = self.parallel, self.parallel.devices.host
        return [
            check_result(leaf, "the output" if len(kept) == 1 else f"output [{at}]", rows, parallel.axis, host)
            for at, leaf in enumerate(kept)
        ]

    def pack(self, joined: list[Any]) -> Any:
        leaves = iter(joined)
        return tf.nest.map_structure(lambda leaf: None if leaf is None else next(leaves), self.outputs)


def _of_the_branch(arguments: Any) -> Any:
    """``arguments`` with each tensor as the result of an op of the branch of ``tf.cond`` that is being traced.

    Where ``tf.custom_gradient`` (as ``tf.nn.silu``) and another op use one tensor from outside of the branch, the
    gradient of ``tf.cond`` in TensorFlow 2.21 gives it to one of them, and the other stops: "You must feed a value for
    placeholder tensor".
    """
    return tf.nest.map_structure(
        lambda leaf: tf.identity(leaf) if tf.is_tensor(leaf) and not isinstance(leaf, tf.Variable) else leaf, arguments
    )
