"""Monte Carlo arithmetic: the reference again, with the result of each op moved by a random rounding error.

Moving the inputs shows how far errors grow on their way. It does not show the errors that a sum of terms which cancel
makes itself: they are as large as its terms. Here each floating result is moved by up to one unit in its last place,
and a sum or a product of matrices by as much of the sum of its terms' absolute values, which bounds the error of any
order of summation (Higham 2002, section 4.2; Parker, Monte Carlo arithmetic, 1997). A cast to a coarser dtype rounds
too. So half precision moves what is computed from its results, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from harness._tensorflow import as_autograph, interface, op_callback
from harness.evidence.arithmetic import MOVEMENT
from harness.judgement.runs import Program
from harness.judgement.tolerance import epsilon_of_name
from harness.lazy import tf

#: Ops that are sums of products or of elements: they are linear in the absolute values of their inputs.
_SUMS = frozenset(
    {"AddN", "AvgPool", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "BiasAddGrad", "Conv2D", "Conv3D", "Cumsum"}
    | {"Conv2DBackpropFilter", "Conv2DBackpropInput", "Conv3DBackpropFilterV2", "Conv3DBackpropInputV2", "Einsum"}
    | {"DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropFilter", "DepthwiseConv2dNativeBackpropInput"}
    | {"MatMul", "Mean", "SegmentSum", "Sum", "UnsortedSegmentSum"}
)
#: Ops whose result is one of the numbers that go in, or a whole number.
_CHOICES = frozenset(
    {"Abs", "ArgMax", "ArgMin", "Ceil", "Const", "Floor", "GatherNd", "GatherV2", "Max", "MaxPool", "Maximum", "Min"}
    | {"Minimum", "Neg", "OneHot", "ReadVariableOp", "Relu", "ReluGrad", "ResourceGather", "Rint", "Round", "Select"}
    | {"SelectV2", "Sign", "Tile", "Transpose", "ScatterNd", "TopKV2", "StridedSliceGrad", "ReverseV2", "Relu6"}
    | {"BatchToSpaceND", "DepthToSpace", "DynamicPartition", "DynamicStitch", "MatrixBandPart", "MatrixDiagPartV3"}
    | {"MatrixDiagV3", "MatrixSetDiagV3", "MirrorPad", "PadV2", "ReverseSequence", "Roll", "SpaceToBatchND"}
    | {"SpaceToDepth", "TensorScatterUpdate", "UnsortedSegmentMax", "UnsortedSegmentMin"}
)
#: Ops without a rounding error where only whole numbers go in, such as the zeros and ones of a mask, and come out.
_EXACT = frozenset({"Add", "AddN", "AddV2", "Cumsum", "MatMul", "Mul", "Prod", "Square", "Sub", "Sum"})
#: Whole numbers up to this share of the largest one that the dtype holds exactly have sums that are exact.
_GUARD = 0.125
_SKIPPED = MOVEMENT | _CHOICES
#: Name under which the seed and the size of the errors go in, among the inputs.
_NOISE = "harness_noise"


class _Noise:
    def __init__(self) -> None:
        #: [seed, size] int32: the size in units in the last place. ``None`` until the program itself begins.
        self.control: Any = None
        self.moved = 0
        self.busy = False

    def on_op(self, kind: str, inputs: Any, _: Any, outputs: Any, graph: Any) -> Any:
        rounds = kind == "Cast" and _to_coarser(inputs[0], outputs[0])
        if self.busy or graph is None or self.control is None or (kind in _SKIPPED and not rounds) or "Random" in kind:
            return None
        if not any(epsilon_of_name(tensor.dtype.name) for tensor in outputs) or not self._is_of(graph):
            return None
        self.busy = True
        try:
            size = _absolute(kind, inputs, outputs[0]) if kind in _SUMS else None
            exact = _are_whole([*inputs, *outputs]) if kind in _EXACT or rounds else None
            return [self._moved(tensor, size, exact) for tensor in outputs]
        finally:
            self.busy = False

    def _is_of(self, graph: Any) -> bool:
        """Whether an op's graph is that of the replay, or of a branch or a loop in it.

        The graph of a ``tf.function`` and that of its gradient are kept, and other runs of the program call them.
        """
        while graph is not self.control.graph:
            if graph is None or type(graph) is interface().func_graph.FuncGraph:
                return False
            graph = getattr(graph, "outer_graph", None)
        return True

    def _moved(self, tensor: Any, size: Any, exact: Any) -> Any:
        epsilon = epsilon_of_name(tensor.dtype.name)
        if not epsilon:
            return tensor
        self.moved += 1
        plain = tensor.dtype.real_dtype
        drawn = plain if plain in (tf.float32, tf.float64) else tf.float32
        seed = tf.stack([self.control[0], self.moved])
        share = tf.random.stateless_uniform(tf.shape(tensor), seed, -1.0, 1.0, drawn)
        share *= tf.cast(self.control[1], drawn) * tf.cast(epsilon, drawn)
        if exact is not None:
            share = tf.where(exact, tf.zeros_like(share), share)
        size = tf.abs(tensor if size is None else size)
        moved = tensor + tf.stop_gradient(tf.cast(tf.cast(share, plain) * size, tensor.dtype))
        moved.set_shape(tensor.shape)
        return moved


def _to_coarser(given: Any, made: Any) -> bool:
    """Whether a cast rounds floating numbers."""
    return 0.0 < epsilon_of_name(given.dtype.name) < epsilon_of_name(made.dtype.name)


def _are_whole(tensors: Any) -> Any:
    """Whether all floating ones of these tensors are whole numbers, and so small that their sums are exact too."""
    if any(tensor.dtype.is_complex for tensor in tensors):
        return None
    reals = [tensor for tensor in tensors if tensor.dtype.is_floating]
    most = [tf.cast(_GUARD / epsilon_of_name(tensor.dtype.name), tensor.dtype) for tensor in reals]
    whole = [
        tf.reduce_all((tensor == tf.floor(tensor)) & (tf.abs(tensor) <= limit))
        for tensor, limit in zip(reals, most, strict=True)
    ]
    return tf.reduce_all(tf.stack(whole))


def _absolute(kind: str, inputs: Any, output: Any) -> Any:
    op = output.op
    values = [tf.abs(each) if each.dtype.is_floating or each.dtype.is_complex else each for each in inputs]
    attributes = {name: value for name, value in op.node_def.attr.items() if not name.startswith("_")}
    return op.graph.create_op(kind, values, [each.dtype for each in op.outputs], attrs=attributes).outputs[0]


@contextmanager
def _functions_inlined() -> Iterator[None]:
    """In the body, the ops of a ``tf.function`` that a graph calls become ops of that graph; nothing of it is kept."""
    kind = type(tf.function(len))
    before = kind.__call__

    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly():
            return before(function, *args, **kwargs)
        body = function.python_function
        return (as_autograph(body) if getattr(function, "_autograph", True) else body)(*args, **kwargs)

    kind.__call__ = call
    try:
        yield
    finally:
        kind.__call__ = before


def rounded(program: Program) -> Callable[[int, int], Any]:
    """``program`` as a function of a seed and of the size of the errors, in units in the last place.

    Raises what building the graph raises: a program that cannot be built as a graph cannot be replayed so.
    """
    noise = _Noise()
    fn = program.fn

    def noisy(**inputs: Any) -> Any:
        noise.control = inputs[_NOISE]
        return fn(**{name: value for name, value in inputs.items() if name != _NOISE})

    control = tf.constant([0, 1], tf.int32)
    own = replace(program, fn=noisy, inputs={**program.inputs, _NOISE: control}, _graphs={})
    runner, arguments = own.runner("graph"), own.arguments("graph")
    with op_callback(noise.on_op), _functions_inlined():
        runner(*arguments)  # traces it

    def run(seed: int, size: int) -> Any:
        chosen = tf.constant([seed, size], tf.int32)
        return runner(*(chosen if each is control else each for each in arguments))

    return run
