"""A small program for each operation type that has a rule: what it computes is checked against the rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
from proof_pairs import array


@dataclass(frozen=True)
class Sample:
    """A function of tensors in which the operation occurs, and its arguments."""

    fn: Callable[..., Any]
    arrays: tuple[Any, ...]


def positive(*shape: int, seed: int = 0) -> Any:
    return array(*shape, seed=seed, low=0.1)


def integers(*shape: int, seed: int = 0, below: int = 6) -> Any:
    return np.random.default_rng(seed).integers(1, below, shape).astype("int32")


SAMPLES: dict[str, Sample] = {}


def add_sample(op_type: str, fn: Callable[..., Any], *arrays: Any) -> None:
    SAMPLES[op_type] = Sample(fn, arrays)


def raw_sample(op_type: str, *arrays: Any, names: str = "x y z", **attributes: Any) -> None:
    raw = getattr(tf.raw_ops, op_type)

    def fn(*tensors: Any) -> Any:
        return raw(**dict(zip(names.split(), tensors, strict=False)), **attributes)

    add_sample(op_type, fn, *arrays)


_FIRST = """
    Elu Erf Erfc Exp Expm1 Tanh Sigmoid Softplus Softsign Selu Relu Relu6 LeakyRelu
"""
for _name in _FIRST.split():
    raw_sample(
        _name,
        array(4, 3),
        names="features" if _name in ("Elu", "Selu", "Softplus", "Softsign", "Relu", "Relu6", "LeakyRelu") else "x",
    )
_OF_ONE = """
    Abs Sign Floor Ceil Round Rint Sin Cos Tan Atan Sinh Cosh Asinh Asin Acos Atanh Erfinv Ndtri Neg Square Lgamma
    Digamma IsNan IsInf IsFinite OnesLike ZerosLike BesselI0e BesselI1e BesselI0 BesselI1 Dawsn FresnelCos
    FresnelSin
"""
for _name in _OF_ONE.split():
    raw_sample(_name, array(4, 3, low=-0.9) * 0.9, names="x")
_PARTLY = "Expint Spence BesselJ0 BesselJ1 BesselK0 BesselK1 BesselK0e BesselK1e BesselY0 BesselY1"
for _name in _PARTLY.split():
    raw_sample(_name, positive(4, 3), names="x")
for _name in ["Igamma", "Igammac", "IgammaGradA"]:
    raw_sample(_name, positive(4, 3), positive(4, 3, seed=1), names="a x")
for _name in ["Log", "Log1p", "Sqrt", "Rsqrt", "Reciprocal", "Inv", "Acosh"]:
    raw_sample(_name, positive(4, 3) + (1.0 if _name == "Acosh" else 0.0), names="x")
_OF_TWO = """
    Add AddV2 Sub Mul Div RealDiv Maximum Minimum SquaredDifference Atan2 DivNoNan MulNoNan Xdivy Xlogy Xlog1py
    FloorDiv FloorMod
"""
for _name in _OF_TWO.split():
    raw_sample(_name, positive(4, 3), positive(1, 3, seed=1), names="y x" if _name == "Atan2" else "x y")
for _name in ["Mod", "TruncateDiv", "TruncateMod", "LeftShift", "RightShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor"]:
    raw_sample(_name, integers(4, 3), integers(4, 3, seed=1))
for _name in ["Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"]:
    raw_sample(_name, np.round(array(4, 3)), np.round(array(4, 3, seed=1)))
for _name in ["LogicalAnd", "LogicalOr"]:
    raw_sample(_name, array(4, 3) > 0, array(4, 3, seed=1) > 0)
raw_sample("LogicalNot", array(4, 3) > 0, names="x")
raw_sample("Invert", integers(4, 3), names="x")
raw_sample("PopulationCount", integers(4, 3), names="x")
raw_sample("Bucketize", array(4, 3), names="input", boundaries=[-0.5, 0.0, 0.5])


def of_complex(op_type: str, *shape: int, **attributes: Any) -> None:
    raw, real = getattr(tf.raw_ops, op_type), array(*shape)
    name = "x" if op_type == "ComplexAbs" else "input"
    add_sample(op_type, lambda x, y: raw(**{name: tf.complex(x, y)}, **attributes), real, array(*shape, seed=1))


for _name in ["Real", "Imag", "Conj", "Angle", "ComplexAbs"]:
    of_complex(_name, 4, 3)
raw_sample("Complex", array(4, 3), array(4, 3, seed=1), names="real imag")

_words = np.array([[b" One", b"22", b"three "], [b"4", b"FIVE", b""], [b"6", b"7", b"eight"], [b"9", b"ten", b"11"]])
for _name in ["StringLower", "StringUpper", "StringLength", "StringStrip"]:
    raw_sample(_name, _words, names="input")
raw_sample("StaticRegexReplace", _words, names="input", pattern="e+", rewrite="-")
raw_sample("StaticRegexFullMatch", _words, names="input", pattern=r"\d+")
raw_sample("StringToHashBucketFast", _words, names="input", num_buckets=7)
raw_sample("AsString", integers(4, 3), names="input")
add_sample("StringJoin", lambda x, y: tf.strings.join([x, y], "-"), _words, _words[::-1])
add_sample("StringToNumber", lambda x: tf.strings.to_number(tf.strings.as_string(x)), integers(4, 3))
raw_sample("Substr", _words, np.int32(0), np.int32(1), names="input pos len")
raw_sample("NextAfter", positive(4, 3), positive(4, 3, seed=1), names="x1 x2")
raw_sample("Zeta", 1.5 + positive(4, 3), positive(4, 3, seed=1), names="x q")
raw_sample("Polygamma", np.ones((4, 3), "float32"), positive(4, 3, seed=1), names="a x")
raw_sample("Betainc", positive(4, 3), positive(4, 3, seed=1), positive(4, 3, seed=2) / 2, names="a b x")
raw_sample("Pow", positive(4, 3), array(4, 3), names="x y")
raw_sample("Select", array(4) > 0, array(4, 3, seed=1), array(4, 3, seed=2), names="condition x y")
raw_sample("SelectV2", array(4, 3) > 0, array(4, 3, seed=1), array(4, 3, seed=2), names="condition t e")
raw_sample("ClipByValue", array(4, 3), np.float32(-0.2), np.float32(0.3), names="t clip_value_min clip_value_max")
raw_sample("Cast", array(4, 3) * 3, names="x", DstT=tf.int32)
for _name in ["Relu6Grad", "LeakyReluGrad", "SoftplusGrad", "SoftsignGrad", "ReluGrad"]:
    raw_sample(_name, array(4, 3), array(4, 3, seed=1), names="gradients features")
for _name in ["EluGrad", "SeluGrad"]:
    raw_sample(_name, array(4, 3), array(4, 3, seed=1), names="gradients outputs")
for _name in ["TanhGrad", "SigmoidGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad"]:
    raw_sample(_name, positive(4, 3), array(4, 3, seed=1), names="y dy")
add_sample("AddN", lambda x, y, z: tf.add_n([x, y, z]), array(4, 3), array(4, 3, seed=1), array(4, 3, seed=2))

raw_sample("MatMul", array(4, 3), array(3, 5), names="a b")
raw_sample("BatchMatMul", array(2, 4, 3), array(2, 3, 5), names="x y")
raw_sample("BatchMatMulV2", array(2, 4, 3), array(3, 5), names="x y")
raw_sample("BatchMatMulV3", array(2, 4, 3), array(2, 3, 5), names="x y", Tout=tf.float32)
add_sample("Einsum", lambda x, y: tf.raw_ops.Einsum(inputs=[x, y], equation="abc,cd->adb"), array(2, 4, 3), array(3, 5))

for _name in ["Sum", "Mean", "Max", "Min", "Prod"]:
    raw_sample(_name, array(4, 3, 2), names="input", axis=[0, 2])
raw_sample("EuclideanNorm", array(4, 3, 2), names="input", axis=[2])
for _name in ["All", "Any"]:
    raw_sample(_name, array(4, 3) > -0.5, names="input", axis=[1], keep_dims=True)
raw_sample("L2Loss", array(4, 3), names="t")
for _name in ["ArgMax", "ArgMin"]:
    raw_sample(_name, array(4, 3), names="input", dimension=1)
for _name in ["Cumsum", "Cumprod", "CumulativeLogsumexp"]:
    raw_sample(_name, array(4, 3), names="x", axis=1, exclusive=True)
for _name in ["Softmax", "LogSoftmax"]:
    raw_sample(_name, array(4, 3), names="logits")
add_sample(
    "SoftmaxCrossEntropyWithLogits",
    lambda x, y: tf.raw_ops.SoftmaxCrossEntropyWithLogits(features=x, labels=y)[0],
    array(4, 3),
    positive(4, 3),
)
add_sample(
    "SparseSoftmaxCrossEntropyWithLogits",
    lambda x, y: tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=y)[0],
    array(4, 6),
    integers(4),
)

raw_sample("Conv2D", array(4, 5, 5, 2), array(3, 3, 2, 3), names="input filter", strides=[1, 2, 2, 1], padding="SAME")
raw_sample(
    "Conv3D", array(4, 3, 3, 3, 2), array(2, 2, 2, 2, 3), names="input filter", strides=[1, 1, 1, 1, 1], padding="VALID"
)
raw_sample(
    "DepthwiseConv2dNative",
    array(4, 4, 4, 2),
    array(3, 3, 2, 2),
    names="input filter",
    strides=[1, 1, 1, 1],
    padding="SAME",
)


def _to_input(op_type: str, shape: list[int], *arrays: Any, sizes: str = "input_sizes", rank: int = 4) -> None:
    raw = getattr(tf.raw_ops, op_type)

    def fn(filters: Any, g: Any) -> Any:
        options = {sizes: tf.concat([[tf.shape(g)[0]], shape[1:]], 0), "filter": filters, "out_backprop": g}
        return raw(**options, strides=[1] * rank, padding="VALID")

    add_sample(op_type, fn, *arrays)


_to_input("Conv2DBackpropInput", [4, 4, 4, 2], array(2, 2, 2, 3), array(4, 3, 3, 3))
_to_input("Conv3DBackpropInputV2", [4, 3, 3, 3, 2], array(2, 2, 2, 2, 3), array(4, 2, 2, 2, 3), rank=5)
_to_input("DepthwiseConv2dNativeBackpropInput", [4, 4, 4, 2], array(2, 2, 2, 3), array(4, 3, 3, 6))
for _name, _shape in (("Conv2DBackpropFilter", [2, 2, 2, 3]), ("DepthwiseConv2dNativeBackpropFilter", [2, 2, 2, 3])):
    raw_sample(
        _name,
        array(4, 4, 4, 2),
        array(4, 3, 3, 3 if _name[0] == "C" else 6),
        names="input out_backprop",
        filter_sizes=_shape,
        strides=[1, 1, 1, 1],
        padding="VALID",
    )
raw_sample(
    "Conv3DBackpropFilterV2",
    array(4, 3, 3, 3, 2),
    array(4, 2, 2, 2, 3),
    names="input out_backprop",
    filter_sizes=[2, 2, 2, 2, 3],
    strides=[1] * 5,
    padding="VALID",
)
_pool = {"ksize": [1, 2, 2, 1], "strides": [1, 1, 1, 1], "padding": "SAME"}
raw_sample("MaxPool", array(4, 4, 4, 2), names="input", **_pool)
raw_sample("AvgPool", array(4, 4, 4, 2), names="value", **_pool)
add_sample(
    "MaxPoolGrad",
    lambda x, g: tf.raw_ops.MaxPoolGrad(orig_input=x, orig_output=tf.nn.max_pool2d(x, 2, 1, "SAME"), grad=g, **_pool),
    array(4, 4, 4, 2),
    array(4, 4, 4, 2, seed=1),
)
add_sample(
    "AvgPoolGrad", lambda g: tf.raw_ops.AvgPoolGrad(orig_input_shape=tf.shape(g), grad=g, **_pool), array(4, 4, 4, 2)
)
_norm = [array(3, seed=seed, low=0.1) for seed in range(4)]
add_sample(
    "FusedBatchNormV3",
    lambda x: tf.raw_ops.FusedBatchNormV3(
        x=x, scale=_norm[0], offset=_norm[1], mean=_norm[2], variance=_norm[3], is_training=False
    )[0],
    array(4, 2, 2, 3),
)
add_sample(
    "FusedBatchNormGradV3",
    lambda g, x: tf.raw_ops.FusedBatchNormGradV3(
        y_backprop=g,
        x=x,
        scale=_norm[0],
        reserve_space_1=_norm[2],
        reserve_space_2=_norm[3],
        reserve_space_3=_norm[0],
        is_training=False,
    )[0],
    array(4, 2, 2, 3),
    array(4, 2, 2, 3, seed=1),
)
raw_sample("ResizeBilinear", array(4, 3, 3, 2), names="images", size=[5, 5])
raw_sample("ResizeNearestNeighbor", array(4, 3, 3, 2), names="images", size=[5, 5])
raw_sample("ResizeNearestNeighborGrad", array(4, 5, 5, 2), names="grads", size=[3, 3])
raw_sample("BiasAdd", array(4, 3, 2), array(2), names="value bias")
raw_sample("BiasAddGrad", array(4, 3, 2), names="out_backprop")

add_sample("GatherV2", lambda x, i: tf.raw_ops.GatherV2(params=x, indices=i, axis=1), array(3, 6), integers(4))


@cache
def _table() -> Any:
    """A variable, made when the devices are configured."""
    with tf.init_scope():
        return tf.Variable(array(6, 3))


add_sample(
    "ResourceGather",
    lambda i: tf.raw_ops.ResourceGather(resource=_table().handle, indices=i, dtype=tf.float32),
    integers(4),
)
add_sample("OneHot", lambda i: tf.one_hot(i, 6, axis=0), integers(4))
add_sample("DenseBincount", lambda i: tf.raw_ops.DenseBincount(input=i, size=7, weights=tf.zeros([0])), integers(8))
add_sample(
    "UnsortedSegmentSum",
    lambda x, i: tf.raw_ops.UnsortedSegmentSum(data=x, segment_ids=i, num_segments=7),
    array(8, 3),
    integers(8),
)
add_sample(
    "ScatterNd", lambda i, x: tf.raw_ops.ScatterNd(indices=i, updates=x, shape=[7, 3]), integers(8, 1), array(8, 3)
)
add_sample("TopKV2", lambda x: tf.raw_ops.TopKV2(input=x, k=2)[0], array(4, 5))
raw_sample("MatrixBandPart", array(4, 3, 3), names="input", num_lower=1, num_upper=0)

add_sample("Reshape", lambda x: tf.reshape(x, [-1, 2, 3]), array(4, 6))
raw_sample("ExpandDims", array(4, 3), names="input", axis=1)
raw_sample("Squeeze", array(4, 1, 3), names="input", axis=[1])
raw_sample("Transpose", array(4, 3, 2), names="x", perm=[2, 0, 1])
add_sample("Pack", lambda x, y: tf.stack([x, y], 1), array(4, 3), array(4, 3, seed=1))
add_sample("Unpack", lambda x: tf.unstack(x, axis=1)[-1], array(4, 3))
add_sample("ConcatV2", lambda x, y: tf.concat([x, y], 1), array(4, 3), array(4, 2))
add_sample("Split", lambda x: tf.split(x, 2, 1)[1], array(4, 6))
add_sample("SplitV", lambda x: tf.split(x, [1, 3, 2], 1)[1], array(4, 6))
add_sample("Slice", lambda x: tf.slice(x, [0, 1], [-1, 2]), array(4, 6))
add_sample("StridedSlice", lambda x: (x[:, 4:1:-2, None], x[3:0:-2]), array(4, 6))
add_sample(
    "StridedSliceGrad",
    lambda g: tf.raw_ops.StridedSliceGrad(
        shape=tf.stack([tf.shape(g)[0], 6]), begin=[0, 1], end=[0, 3], strides=[1, 1], dy=g, begin_mask=1, end_mask=1
    ),
    array(4, 2),
)
add_sample("Pad", lambda x: tf.pad(x, [[0, 0], [1, 2]]), array(4, 3))
add_sample("Tile", lambda x: tf.tile(x, [1, 2]), array(4, 3))
add_sample("ReverseV2", lambda x: tf.reverse(x, [1]), array(4, 3))
add_sample("Roll", lambda x: tf.roll(x, 1, 1), array(4, 3))

_PASSED_ON = "Identity StopGradient PreventGradient Snapshot EnsureShape CheckNumerics CheckNumericsV2"
for _name in _PASSED_ON.split():
    _options: dict[str, Any] = {
        "EnsureShape": {"shape": [None, 3]},
        "CheckNumerics": {"message": ""},
        "CheckNumericsV2": {"message": ""},
    }.get(_name, {})
    raw_sample(_name, array(4, 3), names="tensor" if "Check" in _name else "input", **_options)
add_sample("PlaceholderWithDefault", lambda x: tf.compat.v1.placeholder_with_default(x, [None, None]), array(4, 3))
add_sample("IdentityN", lambda x, y: tf.identity_n([x, y])[1], array(4, 3), array(4, 3, seed=1))
add_sample("Shape", lambda x: x * tf.cast(tf.raw_ops.Shape(input=x)[1], tf.float32), array(4, 3))
add_sample("ShapeN", lambda x, y: x * tf.cast(tf.shape_n([x, y])[1][1], tf.float32), array(4, 3), array(4, 2))
add_sample("Size", lambda x: x[:, :2] * tf.cast(tf.raw_ops.Size(input=x[0]), tf.float32), array(4, 3))
add_sample("Rank", lambda x: x * tf.cast(tf.raw_ops.Rank(input=x), tf.float32), array(4, 3))
add_sample("Fill", lambda x: x + tf.raw_ops.Fill(dims=tf.shape(x), value=2.0), array(4, 3))
add_sample(
    "BroadcastTo", lambda x: tf.raw_ops.BroadcastTo(input=x, shape=tf.stack([2, tf.shape(x)[0], 3])), array(4, 3)
)
add_sample(
    "BroadcastGradientArgs",
    lambda x: x * tf.cast(tf.raw_ops.BroadcastGradientArgs(s0=tf.shape(x), s1=[3])[1][0] + 1, tf.float32),
    array(4, 3),
)
add_sample(
    "ConcatOffset",
    lambda x, y: x * tf.cast(tf.raw_ops.ConcatOffset(concat_dim=1, shape=[tf.shape(x), tf.shape(y)])[1][1], tf.float32),
    array(4, 3),
    array(4, 2),
)


def _listed(x: Any) -> Any:
    made = tf.TensorArray(tf.float32, 3, element_shape=[None])
    for at in range(3):
        made = made.write(at, x[:, at] * 2.0)
    return tf.transpose(made.stack()) + made.read(1)[:, None]


def _pushed(x: Any) -> Any:
    made = tf.raw_ops.EmptyTensorList(element_shape=[-1], max_num_elements=4, element_dtype=tf.float32)
    made = tf.raw_ops.TensorListPushBack(input_handle=made, tensor=x[:, 0])
    made = tf.raw_ops.TensorListPushBack(input_handle=made, tensor=x[:, 1])
    made, last = tf.raw_ops.TensorListPopBack(input_handle=made, element_shape=[-1], element_dtype=tf.float32)
    shape = tf.raw_ops.TensorListElementShape(input_handle=made, shape_type=tf.int32)
    return last + tf.raw_ops.TensorListPopBack(input_handle=made, element_shape=shape, element_dtype=tf.float32)[1]


def _turned_over(x: Any) -> Any:
    made = tf.raw_ops.TensorListFromTensor(tensor=tf.transpose(x), element_shape=[-1])
    return x * tf.cast(tf.raw_ops.TensorListLength(input_handle=made), tf.float32)


def _optional(x: Any) -> Any:
    some = tf.raw_ops.OptionalFromValue(components=[x])
    tf.raw_ops.OptionalNone()
    return tf.raw_ops.OptionalGetValue(optional=some, output_types=[tf.float32], output_shapes=[[None, 3]])[0] * 2.0


for _name in ("TensorListReserve", "TensorListSetItem", "TensorListGetItem", "TensorListStack"):
    add_sample(_name, _listed, array(4, 3))
for _name in ("EmptyTensorList", "TensorListPushBack", "TensorListPopBack", "TensorListElementShape"):
    add_sample(_name, _pushed, array(4, 3))
for _name in ("TensorListFromTensor", "TensorListLength"):
    add_sample(_name, _turned_over, array(4, 3))
for _name in ("OptionalFromValue", "OptionalGetValue", "OptionalNone"):
    add_sample(_name, _optional, array(4, 3))


@cache
def _state() -> Any:
    with tf.init_scope():
        return tf.Variable(array(3))


def _updated(x: Any) -> Any:
    state = _state()
    start = state.read_value()
    state.assign_add(tf.ones([3]))
    state.assign_sub(3 * tf.ones([3]))
    y = x * state * tf.cast(tf.raw_ops.VariableShape(input=state.handle)[0], tf.float32)
    state.assign(start)
    return y + tf.constant([1.0, 2.0, 3.0])


for _name in (
    "Const",
    "ReadVariableOp",
    "AssignVariableOp",
    "AssignAddVariableOp",
    "AssignSubVariableOp",
    "VariableShape",
):
    add_sample(_name, _updated, array(4, 3))
