"""Runs a callable the way a user would, eagerly or as a ``tf.function``, with or without gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from harness._tensorflow import as_autograph
from harness.errors import UsageError
from harness.judgement.drawing import SameNumbers
from harness.judgement.fields import in_fields
from harness.lazy import tf

Mode = Literal["eager", "graph", "dynamic"]
#: Name scope of the ops that verify itself adds to the program: they are not judged.
PROJECTION_SCOPE = "harness_projection"
#: How the layout of a ragged result begins; its row splits follow.
RAGGED = "ragged, rows end at "
#: What is sent back to results in a graph: names of ops, to the number and the name of the tensor among the results.
Upstreams = dict[str, tuple[int, str]]
MODES: tuple[Mode, ...] = ("eager", "graph", "dynamic")


@dataclass(frozen=True)
class Result:
    """What one run gave, as NumPy arrays. A gradient is ``None`` where TensorFlow gave none."""

    #: The nest of the outputs, with what a ragged or a sparse one says besides its values; ``None`` for others.
    structure: Any
    outputs: tuple[NDArray[Any] | None, ...]
    gradients: tuple[NDArray[Any] | None, ...] = ()
    #: Values of the watched variables after the run.
    state: tuple[NDArray[Any], ...] = ()


@dataclass
class Program:
    """A callable over ``**inputs`` with the sources that gradients are taken for.

    ``scope`` is the device that the whole run is put on, as far as the device has kernels, or ``None`` to leave
    placement to the callable. ``upstream`` gives, for a result and its number, what is sent back to it in the place of
    the :func:`projection`.
    """

    fn: Callable[..., Any]
    inputs: Mapping[str, Any]
    variables: Sequence[Any]
    gradients: bool
    seed: int
    scope: str | None = None
    upstream: Callable[[Any, int], Any] | None = None
    #: The numbers that each run draws, where they have to be the same.
    numbers: SameNumbers | None = None
    #: By the mode: the concrete function, and what is sent back in it.
    _graphs: dict[str, tuple[Any, Upstreams]] = field(default_factory=dict)

    def runner(self, mode: Mode) -> Callable[..., Any]:
        """The callable to run in this mode; it takes the leaves of the inputs and returns tensors."""

        def run(*tensors: Any) -> Any:
            function = self.step if mode == "eager" else self.function(mode)
            last = () if mode == "eager" else (tf.constant(1.0),)
            with self._drawn(), nullcontext() if self.scope is None else soft_placement():
                return function(*tensors, *last)

        return run

    def _drawn(self) -> AbstractContextManager[None]:
        return nullcontext() if self.numbers is None else self.numbers.drawn()

    def graph(self) -> Any:
        """The graph that is run in the mode "graph", a ``FuncGraph``. Raises what building it raises."""
        return self.function("graph").graph

    def upstreams(self, mode: Mode) -> Upstreams:
        """What is sent back to the results in the graph of this mode."""
        self.function(mode)
        return self._graphs[mode][1]

    def function(self, mode: Mode) -> Any:
        """The concrete function that is run in this mode; its last argument is the number 1. Raises what it raises."""
        if mode not in self._graphs:
            specs = [_without_rows(tensor) if mode == "dynamic" else tensor for tensor in self.arguments(mode)]
            specs.append(tf.TensorSpec([], tf.float32))
            # A concrete function: TensorFlow would count the graphs of many programs as retracing of one function.
            upstreams: Upstreams = {}
            with self._drawn():
                self._graphs[mode] = tf.function(self._graph_step(upstreams)).get_concrete_function(*specs), upstreams
        return self._graphs[mode][0]

    def forget_graphs(self) -> None:
        """Build the graphs anew when they are run next, as after a change of ``gradients``."""
        self._graphs.clear()

    def _graph_step(self, upstreams: Upstreams) -> Callable[..., Any]:
        static = self.leaves()
        places = [index for index, leaf in enumerate(static) if tf.is_tensor(leaf)]

        def step(*arguments: Any) -> Any:
            *tensors, one = arguments
            leaves = list(static)
            for place, tensor in zip(places, tensors, strict=True):
                leaves[place] = tensor
            upstreams.clear()  # TensorFlow may trace it twice
            return self.step(*leaves, one=one, upstreams=upstreams)

        # AutoGraph passes this function by and converts the user's callable inside, as it would in their own graph.
        step.autograph_info__ = None  # type: ignore[attr-defined]
        return step

    def arguments(self, mode: Mode, leaves: Sequence[Any] | None = None) -> list[Any]:
        """What to call the runner of this mode with."""
        given = self.leaves() if leaves is None else list(leaves)
        return given if mode == "eager" else [leaf for leaf in given if tf.is_tensor(leaf)]

    def leaves(self) -> list[Any]:
        """The leaves of the inputs, in order."""
        return list(tf.nest.flatten(dict(self.inputs)))

    def step(self, *leaves: Any, one: Any = None, upstreams: Upstreams | None = None) -> Any:
        """One forward and, if asked for, backward pass: (outputs, gradients)."""
        with nullcontext() if self.scope is None else tf.device(self.scope):
            return self._step(leaves, one, {} if upstreams is None else upstreams)

    def _step(self, leaves: Sequence[Any], one: Any, upstreams: Upstreams) -> Any:
        inputs = tf.nest.pack_sequence_as(dict(self.inputs), list(leaves))
        fn = as_autograph(self.fn)
        if not self.gradients:
            return in_fields(fn(**inputs)), []
        sources = [leaf for leaf in leaves if _source(leaf)]
        with tf.GradientTape() as tape:
            for source in sources:
                tape.watch(source)
            outputs = in_fields(fn(**inputs))
            flat = list(enumerate(tf.nest.flatten(outputs)))
            results = {number: leaf for number, leaf in flat if tf.is_tensor(leaf) and differentiable(leaf)}
            with tf.name_scope(PROJECTION_SCOPE):
                # A sparse tensor is no target, its values are, and two programs may give them in different orders.
                targets = [tf.sparse.reorder(leaf).values if _sparse(leaf) else leaf for leaf in results.values()]
        if not targets:
            return outputs, [None] * (len(sources) + len(self.variables))
        with tf.name_scope(PROJECTION_SCOPE):
            upstream = self.upstream or (lambda target, number: projection(target, self.seed + number, one))
            seeds = [upstream(target, number) for number, target in enumerate(targets)]
        if one is not None:
            for number, seed, target in zip(results, seeds, targets, strict=True):
                if tf.is_symbolic_tensor(target):
                    upstreams[seed.op.name] = number, target.name
        return outputs, tape.gradient(targets, [*sources, *self.variables], output_gradients=seeds)

    def source_names(self) -> list[str]:
        """Names of what gradients are taken for, in order."""
        names = []
        for name, value in sorted(self.inputs.items()):
            leaves = tf.nest.flatten(value)
            for index, leaf in enumerate(leaves):
                if _source(leaf):
                    names.append(f"input {name}" if len(leaves) == 1 else f"input {name}[{index}]")
        return names + variable_names(self.variables)


@contextmanager
def soft_placement() -> Iterator[None]:
    """TensorFlow's default: an op whose device is absent, or has no kernel for it, runs elsewhere. Restored after."""
    before = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(True)
    try:
        yield
    finally:
        tf.config.set_soft_device_placement(before)


def rows_of(parallel: Callable[..., Any], inputs: Mapping[str, Any]) -> int | None:
    """Size of the batch: what ``make_parallel`` splits, or the largest first dimension of the inputs."""
    return max((int(leaf.shape[axis]) for axis, leaf in _split(parallel, inputs)), default=None)


def rows_alike(parallel: Callable[..., Any], inputs: Mapping[str, Any]) -> bool:
    """Whether the batch has several rows, and all are equal in each input: then rows may change places unseen."""
    rows = rows_of(parallel, inputs) or 0
    batch = [(to_array(leaf), axis) for axis, leaf in _split(parallel, inputs) if leaf.shape[axis] == rows]
    return rows > 1 and all(
        array is not None and bool(np.all(array == np.take(array, [0], axis))) for array, axis in batch
    )


def axis_and_whole(parallel: Callable[..., Any]) -> tuple[int, tuple[str, ...]]:
    """The axis that ``make_parallel`` splits, and the names of the inputs that it gives whole to each shard."""
    axis, whole = getattr(parallel, "axis", 0), getattr(parallel, "broadcast", ())
    return (axis, whole) if isinstance(axis, int) and isinstance(whole, tuple) else (0, ())


def _split(parallel: Callable[..., Any], inputs: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    """The axis that is split, and each tensor of the inputs that has it and is not given whole to each shard."""
    axis, whole = axis_and_whole(parallel)
    for name, value in inputs.items():
        for leaf in tf.nest.flatten(value) if name not in whole else ():
            if tf.is_tensor(leaf) and leaf.shape.rank is not None and -leaf.shape.rank <= axis < leaf.shape.rank:
                yield axis, leaf


def projection(target: Any, seed: int, one: Any) -> Any:
    """Random weights of a target's shape for the projection that is differentiated: integers from -2 to 2, never 0.

    Small integers, so that exact arithmetic stays exact. In a graph they are multiplied by ``one``, the number 1 as
    an argument of the graph: from constants TensorFlow would compute parts of the backward pass in advance, and
    there would be nothing to see of them.
    """
    weights = np.array([-2.0, -1.0, 1.0, 2.0])
    if not target.shape.is_fully_defined():
        # The shape is known when the graph runs. It may be known before for the same output of the reference.
        with tf.device("/device:CPU:0"):
            chosen = tf.gather(tf.constant(weights), _scattered(tf.range(tf.size(target, tf.int64)), seed))
            return tf.reshape(tf.cast(chosen, target.dtype), tf.shape(target))
    shape = tuple(target.shape)
    index = np.arange(int(np.prod(shape)), dtype=np.int64)
    values = weights[_scattered(index, seed)].reshape(shape).astype(target.dtype.as_numpy_dtype)
    return tf.constant(values) if one is None else tf.constant(values) * tf.cast(one, target.dtype)


def projections(outputs: Any, seed: int) -> list[NDArray[Any]]:
    """What is sent back to these outputs."""
    targets = [leaf for leaf in tf.nest.flatten(outputs) if tf.is_tensor(leaf) and differentiable(leaf)]
    sent = (projection(leaf, seed + number, None) for number, leaf in enumerate(targets) if not _sparse(leaf))
    return [weights.numpy() for weights in sent]


def _scattered(index: Any, seed: int) -> Any:
    """Numbers from 0 to 3 that depend on ``index`` without a pattern: int64 array or tensor, to the same.

    Plain arithmetic, so that NumPy and TensorFlow agree on them. The products stay within int64: the largest is that
    of the square of 1e6 with 7919. 48271 modulo 2^31 - 1 is the generator of Park and Miller (1988, revised 1993).
    """
    small = index % 1_000_003
    mixed = (small * small * 7_919 + index * 104_729 + (seed + 1) * 15_485_863) % 2_147_483_647
    mixed = (mixed * 48_271) % 2_147_483_647
    return mixed // 65_536 % 4


def _sparse(leaf: Any) -> bool:
    return isinstance(leaf, tf.SparseTensor)


def _source(leaf: Any) -> bool:
    """Whether gradients are taken for an input. TensorFlow has none for a sparse one, nor for splitting it."""
    return tf.is_tensor(leaf) and differentiable(leaf) and not _sparse(leaf)


def differentiable(tensor: Any) -> bool:
    """Whether gradients can be taken with respect to a tensor or variable of this dtype; Keras names it in text."""
    dtype = tf.as_dtype(tensor.dtype)
    return bool(dtype.is_floating or dtype.is_complex)


def as_result(
    raw: Any, state: Sequence[Any] = (), starts: Mapping[int, NDArray[Any]] | None = None, *, copied: bool = False
) -> Result:
    """Bring what a run returned to NumPy, and take the gradients out of ``raw``, so that no two copies are held.

    Of a variable in ``state`` that still has the value that ``starts`` has by its id, that very array is taken.
    ``copied``: have gradients in NumPy's own memory; TensorFlow's allocator, with oneDNN, keeps what it once had.
    """
    structure = tf.nest.map_structure(_layout, raw[0])
    outputs, gradients, values = parts_of(raw, state, starts)
    if copied:
        gradients = (None if array is None else array.copy() for array in gradients)
    return Result(structure, tuple(outputs), tuple(gradients), tuple(values))


def parts_of(
    raw: Any, state: Sequence[Any] = (), starts: Mapping[int, NDArray[Any]] | None = None
) -> tuple[Iterable[Any], Iterable[Any], Iterable[Any]]:
    """The outputs, gradients and variables of :func:`as_result`, each array made when it is asked for."""
    outputs, gradients = raw

    def value(variable: Any) -> NDArray[Any]:
        now = value_of(variable)
        start = (starts or {}).get(id(variable))
        return start if start is not None and same_bits(now, start) else now

    return map(to_array, tf.nest.flatten(outputs)), map(to_array, _taken(gradients)), map(value, state)


def _taken(gradients: list[Any]) -> Iterator[Any]:
    gradients.reverse()
    while gradients:
        yield gradients.pop()


def differing(first: Result, raw: Any) -> dict[int, NDArray[Any]]:
    """The outputs and gradients of another run that are not the same to the last bit, by their index among both.

    The results in ``raw`` are brought to NumPy one by one. Those that one of the two runs lacks are left out.
    """
    outputs, gradients = raw
    pairs = zip((*first.outputs, *first.gradients), chain(tf.nest.flatten(outputs), _taken(gradients)), strict=False)
    found = {}
    for index, (one, leaf) in enumerate(pairs):
        other = to_array(leaf)
        if one is not None and other is not None and not same_bits(one, other):
            found[index] = other
    return found


def same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two arrays have one shape, dtype and content, to the last bit."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype == object:
        return bool(np.array_equal(one, other))
    return bool(np.array_equal(_as_bits(one), _as_bits(other)))


def _as_bits(array: NDArray[Any]) -> NDArray[Any]:
    width = next(size for size in (8, 4, 2, 1) if array.nbytes % size == 0)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).view(f"u{width}")


def value_of(variable: Any) -> NDArray[Any]:
    """The value of a variable, not to be written to; on the host it is a copy only once TensorFlow changes it."""
    # Others may be spread over devices by a strategy or a mesh.
    plain = type(variable).__name__ == "ResourceVariable"
    return np.asarray(variable.value() if plain else variable.numpy())


def to_array(leaf: Any) -> NDArray[Any] | None:
    """A leaf of a result as an array; IndexedSlices are added up into the dense tensor that they stand for.

    It raises UsageError for a handle, such as a list of tensors or a data set, which has no values.
    """
    if leaf is None:
        return None
    if tf.is_tensor(leaf) and leaf.dtype in (tf.variant, tf.resource):
        raise UsageError(
            f"an input or output is a handle (dtype {leaf.dtype.name}), such as that of a TensorList, a data set or a "
            "table, and has no values to compare; give and return tensors, such as TensorArray.stack() of a list"
        )
    if isinstance(leaf, tf.IndexedSlices):
        leaf = tf.convert_to_tensor(leaf)
    if isinstance(leaf, tf.RaggedTensor):
        leaf = leaf.to_tensor()
    if isinstance(leaf, tf.SparseTensor):
        leaf = tf.sparse.reorder(leaf).values
    if "/device:CUSTOM:" in str(getattr(leaf, "device", "")):
        leaf = _of_a_mesh(leaf)
    # A tensor on the host is not copied: TensorFlow never writes to one that somebody else holds.
    return np.asarray(leaf)


def _of_a_mesh(leaf: Any) -> Any:
    """The whole of a tensor that DTensor has spread over a mesh."""
    dtensor = tf.experimental.dtensor
    mesh = dtensor.fetch_layout(leaf).mesh
    return dtensor.unpack(dtensor.relayout(leaf, dtensor.Layout.replicated(mesh, rank=leaf.shape.rank)))[0]


def _layout(leaf: Any) -> object:
    """Where the values of a ragged or sparse tensor belong, which its values do not say."""
    if isinstance(leaf, tf.RaggedTensor):
        return f"{RAGGED}{[ends.numpy().tolist() for ends in leaf.nested_row_splits]}"
    if isinstance(leaf, tf.SparseTensor):
        places = tf.sparse.reorder(leaf).indices.numpy().tolist()
        return f"sparse of shape {leaf.dense_shape.numpy().tolist()}, values at {places}"
    return None


def variable_name(variable: Any) -> str:
    """A variable's name as people know it: Keras' path, or TensorFlow's name without its number."""
    return f"variable {getattr(variable, 'path', None) or str(variable.name).split(':', 1)[0]}"


def variable_names(named: Sequence[Any], others: Sequence[Any] = ()) -> list[str]:
    """The names of the variables of ``variables=``, then of others; those that share a name are numbered."""
    plain = [variable_name(variable) for variable in (*named, *others)]
    among_named, among_all, seen = Counter(plain[: len(named)]), Counter(plain), Counter[str]()
    names = []
    for index, name in enumerate(plain):
        seen[name] += 1
        if index < len(named):
            names.append(f"{name} (variables[{index}])" if among_named[name] > 1 else name)
        else:
            names.append(f"{name} (number {seen[name]} of this name)" if among_all[name] > 1 else name)
    return names


def _without_rows(leaf: Any) -> Any:
    shape = list(leaf.shape)
    rows = [None, *shape[1:]] if shape else []
    if _sparse(leaf):
        return tf.SparseTensorSpec(rows, leaf.dtype)
    if isinstance(leaf, tf.RaggedTensor):
        return tf.RaggedTensorSpec(rows, leaf.dtype, leaf.ragged_rank, leaf.row_splits.dtype)
    return tf.TensorSpec(rows, leaf.dtype)
