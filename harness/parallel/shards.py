"""Splits a batch over devices and joins the results, in eager code and in graphs with an unknown batch size."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import ShardingError
from harness.lazy import tf
from harness.plural import plural


@dataclass(frozen=True)
class Batch:
    """The leaves of the arguments that are split, and their common number of rows (an int, or a scalar tensor)."""

    leaves: tuple[Any, ...]
    rows: Any
    axis: int

    @property
    def rows_are_known(self) -> bool:
        """Whether the number of rows is a Python int."""
        return isinstance(self.rows, int)

    def shards(self, count: int) -> tuple[list[Any], list[list[Any]]]:
        """Split over ``count`` devices: (rows of each shard, leaves of each shard).

        The first ``rows % count`` shards hold one row more than the others, so that no two differ by more than one.
        Where the rows are known, shards without a row are left out; a batch without rows is one shard without rows.
        """
        if isinstance(self.rows, int):
            used = max(1, min(count, self.rows))
            sizes: Any = [self.rows // used + (index < self.rows % used) for index in range(used)]
            if used == 1:
                return sizes, [list(self.leaves)]
        else:
            used = count
            sizes = self.rows // count + tf.cast(tf.range(count) < self.rows % count, tf.int32)
        return self._cut(sizes, used)

    def uneven(self, shares: Sequence[int]) -> tuple[list[int], list[Any], list[list[Any]]]:
        """Split by ``shares``, one for each device: (indices of the devices, rows of each shard, leaves of each shard).

        Each shard has its share of the rows, by less than one row more or less, and all rows are in one. If there is a
        row, the first device has one. Where the rows are known, devices without a row are left out, but for the first.
        """
        ends = list(itertools.accumulate(shares))
        if isinstance(self.rows, int):
            until = [-(-self.rows * end // ends[-1]) for end in ends]
            known = [end - begin for begin, end in itertools.pairwise([0, *until])]
            places = [index for index, size in enumerate(known) if size] or [0]
            if len(places) == 1:
                return places, [self.rows], [list(self.leaves)]
            return places, *self._cut([known[index] for index in places], len(places))
        whole = tf.cast(self.rows, tf.int64) * tf.constant(ends, tf.int64)
        above = tf.cast(-(-whole // ends[-1]), tf.int32)
        sizes = above - tf.concat([[0], above[:-1]], 0)
        return list(range(len(shares))), *self._cut(sizes, len(shares))

    def _cut(self, sizes: Any, count: int) -> tuple[list[Any], list[list[Any]]]:
        pieces = [split_rows(leaf, sizes, self.axis, count) for leaf in self.leaves]
        if not isinstance(self.rows, int):
            sizes = tf.unstack(sizes, num=count)
        return list(sizes), [list(shard) for shard in zip(*pieces, strict=True)]

    def fill_if_empty(
        self, own: Sequence[Any], rows: Any, first: Sequence[Any], first_rows: Any
    ) -> tuple[list[Any], Any]:
        """``own``, the leaves of a shard, with a row of the first shard where the shard has none: (leaves, rows added).

        In a graph whose batch size is unknown, a shard may turn out to be empty, and TensorFlow has ops that fail on
        0 rows or abort the process. No gradient flows to the added row. An empty batch stays empty.
        """
        added = tf.minimum(first_rows, tf.cast(rows < 1, tf.int32))
        still = tf.nest.map_structure(tf.stop_gradient, list(first), expand_composites=True)
        spare = [split_rows(leaf, [added, first_rows - added], self.axis, 2)[0] for leaf in still]
        return [tf.concat(pair, axis=self.axis) for pair in zip(own, spare, strict=True)], added


def split_rows(leaf: Any, sizes: Any, axis: int, count: int) -> list[Any]:
    """Split a dense or ragged tensor along ``axis`` into ``count`` parts of these sizes.

    In a graph each part goes through an op of its own. From the maximum of a monotonic function, as ``relu``, of any
    output of ``tf.split``, the graph optimizer of TensorFlow 2.21 makes that of the first output.
    """
    if not isinstance(leaf, tf.RaggedTensor):
        parts = list(tf.split(leaf, sizes, axis=axis, num=count))
        return parts if tf.executing_eagerly() else [tf.ensure_shape(part, part.shape) for part in parts]
    ends = tf.cumsum(sizes)
    return [leaf[ends[index] - sizes[index] : ends[index]] for index in range(count)]


def row_count(tensor: Any, axis: int) -> Any:
    """Return the size of a dense or ragged tensor along ``axis``, as a scalar int32 tensor."""
    return tensor.nrows(tf.int32) if isinstance(tensor, tf.RaggedTensor) else tf.shape(tensor)[axis]


def has_axis(rank: int, axis: int) -> bool:
    """Whether a tensor of this rank has this axis; a negative one counts from the last."""
    return -rank <= axis < rank


def gather_batch(arguments: Mapping[str, Any], axis: int) -> Batch:
    """Check the arguments that are to be split, and turn their leaves into tensors.

    Raises:
        ShardingError: a leaf has no axis ``axis``, or its size along it differs from the others'.
    """
    names: list[str] = []
    leaves: list[Any] = []
    sizes: dict[str, int] = {}
    # In the order in which TensorFlow flattens a dict: by name.
    for name, value in sorted(arguments.items()):
        for path, leaf in _named_leaves(name, value):
            tensor = _tensor(path, leaf, axis)
            rank = tensor.shape.rank
            if rank is not None and not has_axis(rank, axis):
                raise ShardingError(
                    f"argument {path} has shape {tuple(tensor.shape)}, which has no axis {axis} to split along; "
                    f"name it in broadcast=({name!r},) if every device gets it whole"
                )
            names.append(path)
            leaves.append(tensor)
            if rank is not None and tensor.shape[axis] is not None:
                sizes[path] = tensor.shape[axis]
    if not leaves:
        raise ShardingError("no argument to split; give at least one argument that is not in broadcast=(...)")
    if len(set(sizes.values())) > 1:
        given = ", ".join(f"{path}: {size}" for path, size in sizes.items())
        raise ShardingError(
            f"arguments differ in size along axis {axis} ({given}); accepted: the same size for all; "
            "in broadcast=(...), list the arguments that every device gets whole"
        )
    if sizes:
        rows: Any = int(next(iter(sizes.values())))
        unknown = [index for index, name in enumerate(names) if name not in sizes]
    else:
        rows = row_count(leaves[0], axis)
        unknown = list(range(1, len(leaves)))
    for index in unknown:
        same = tf.debugging.assert_equal(
            row_count(leaves[index], axis),
            rows,
            message=f"arguments {names[0]} and {names[index]} differ in size along axis {axis}",
        )
        with tf.control_dependencies([] if same is None else [same]):
            leaves[index] = tf.nest.map_structure(tf.identity, leaves[index], expand_composites=True)
    return Batch(tuple(leaves), rows, axis)


def check_result(leaf: Any, path: str, rows: Any, axis: int, host: str) -> Any:
    """One output of one shard as a tensor. What is known only when the graph runs is checked on ``host``.

    Raises:
        ShardingError: it is not a batch of the shard's rows along ``axis``.
    """
    advice = (
        "return one value per row and reduce after the call: a mean of means is not the mean of the batch "
        "when shards differ in size"
    )
    try:
        tensor = leaf if isinstance(leaf, tf.RaggedTensor) and axis == 0 else tf.convert_to_tensor(leaf)
    except (TypeError, ValueError) as error:
        nest = "return tensors, or a list, tuple or dict of them"
        raise ShardingError(f"{path} is {_described(leaf)}, not a tensor; {nest}") from error
    rank = tensor.shape.rank
    if rank is not None and not has_axis(rank, axis):
        what = "a scalar per shard"
        if rank:
            what = f"of shape {tuple(tensor.shape)} in each shard, without axis {axis}"
        raise ShardingError(f"{path} is {what}, so the results are no longer a batch; {advice}")
    size = tensor.shape[axis] if rank is not None else None
    if isinstance(rows, int) and size is not None:
        if size != rows:
            raise ShardingError(
                f"{path} has {plural(size, 'row')} along axis {axis} where the shard has {rows}, so the results are no "
                f"longer a batch; {advice}"
            )
    else:
        found = row_count(tensor, axis)
        with tf.device(host):  # a GPU has no kernel for the text of an error
            tf.debugging.assert_equal(found, rows, message=f"{path} has more or fewer rows than its shard; {advice}")
    return tensor


def _tensor(path: str, leaf: Any, axis: int) -> Any:
    if isinstance(leaf, tf.RaggedTensor) and axis == 0:
        return leaf
    if isinstance(leaf, (tf.RaggedTensor, tf.SparseTensor)):
        raise ShardingError(
            f"argument {path} is of type {type(leaf).__name__}; accepted: dense tensors and arrays, and ragged tensors "
            "along axis 0; convert it to a dense tensor"
        )
    try:
        return tf.convert_to_tensor(leaf)
    except (TypeError, ValueError) as error:
        raise ShardingError(
            f"argument {path} is {_described(leaf)}, not a tensor; accepted: tensors, arrays, and nests of them; "
            "name it in broadcast if every device gets it as it is"
        ) from error


def _described(leaf: Any) -> str:
    """A short value as it is written, of others their type."""
    written = repr(leaf)
    return written if len(written) <= 40 else f"of type {type(leaf).__name__}"


def _named_leaves(name: str, value: Any) -> list[tuple[str, Any]]:
    leaves = tf.nest.flatten(value)
    return [(name if len(leaves) == 1 else f"{name}[{index}]", leaf) for index, leaf in enumerate(leaves)]
