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


def _positive(*shape: int, seed: int = 0) -> Any:
    return array(*shape, seed=seed, low=0.1)


def _integers(*shape: int, seed: int = 0, below: int = 6) -> Any:
    return np.random.default_rng(seed).integers(1, below, shape).astype("int32")


SAMPLES: dict[str, Sample] = {}


def _add(op_type: str, fn: Callable[..., Any], *arrays: Any) -> None:
    SAMPLES[op_type] = Sample(fn, arrays)


def _raw(op_type: str, *arrays: Any, names: str = "x y z", **attributes: Any) -> None:
    raw = getattr(tf.raw_ops, op_type)

    def fn(*tensors: Any) -> Any:
        return raw(**dict(zip(names.split(), tensors, strict=False)), **attributes)

    _add(op_type, fn, *arrays)


for _name in [
    "Elu",
    "Erf",
    "Erfc",
    "Exp",
    "Expm1",
    "Tanh",
    "Sigmoid",
    "Softplus",
    "Softsign",
    "Selu",
    "Relu",
    "Relu6",
    "LeakyRelu",
]:
    _raw(
        _name,
        array(4, 3),
        names="features" if _name in ("Elu", "Selu", "Softplus", "Softsign", "Relu", "Relu6", "LeakyRelu") else "x",
    )
for _name in [
    "Abs",
    "Sign",
    "Floor",
    "Ceil",
    "Round",
    "Rint",
    "Sin",
    "Cos",
    "Tan",
    "Atan",
    "Sinh",
    "Cosh",
    "Asinh",
    "Asin",
    "Acos",
    "Atanh",
    "Erfinv",
    "Ndtri",
    "Neg",
    "Square",
    "Lgamma",
    "Digamma",
    "IsNan",
    "IsInf",
    "IsFinite",
    "OnesLike",
    "ZerosLike",
    "BesselI0e",
    "BesselI1e",
    "BesselI0",
    "BesselI1",
    "Dawsn",
    "FresnelCos",
    "FresnelSin",
]:
    _raw(_name, array(4, 3, low=-0.9) * 0.9, names="x")
_PARTLY = "Expint Spence BesselJ0 BesselJ1 BesselK0 BesselK1 BesselK0e BesselK1e BesselY0 BesselY1"
for _name in _PARTLY.split():
    _raw(_name, _positive(4, 3), names="x")
for _name in ["Igamma", "Igammac", "IgammaGradA"]:
    _raw(_name, _positive(4, 3), _positive(4, 3, seed=1), names="a x")
for _name in ["Log", "Log1p", "Sqrt", "Rsqrt", "Reciprocal", "Inv", "Acosh"]:
    _raw(_name, _positive(4, 3) + (1.0 if _name == "Acosh" else 0.0), names="x")
for _name in [
    "Add",
    "AddV2",
    "Sub",
    "Mul",
    "Div",
    "RealDiv",
    "Maximum",
    "Minimum",
    "SquaredDifference",
    "Atan2",
    "DivNoNan",
    "MulNoNan",
    "Xdivy",
    "Xlogy",
    "Xlog1py",
    "FloorDiv",
    "FloorMod",
]:
    _raw(_name, _positive(4, 3), _positive(1, 3, seed=1), names="y x" if _name == "Atan2" else "x y")
for _name in ["Mod", "TruncateDiv", "TruncateMod", "LeftShift", "RightShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor"]:
    _raw(_name, _integers(4, 3), _integers(4, 3, seed=1))
for _name in ["Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"]:
    _raw(_name, np.round(array(4, 3)), np.round(array(4, 3, seed=1)))
for _name in ["LogicalAnd", "LogicalOr"]:
    _raw(_name, array(4, 3) > 0, array(4, 3, seed=1) > 0)
_raw("LogicalNot", array(4, 3) > 0, names="x")
_raw("Invert", _integers(4, 3), names="x")
_raw("PopulationCount", _integers(4, 3), names="x")
_raw("Bucketize", array(4, 3), names="input", boundaries=[-0.5, 0.0, 0.5])


def _of_complex(op_type: str, *shape: int, **attributes: Any) -> None:
    raw, real = getattr(tf.raw_ops, op_type), array(*shape)
    name = "x" if op_type == "ComplexAbs" else "input"
    _add(op_type, lambda x, y: raw(**{name: tf.complex(x, y)}, **attributes), real, array(*shape, seed=1))


for _name in ["Real", "Imag", "Conj", "Angle", "ComplexAbs"]:
    _of_complex(_name, 4, 3)
_raw("Complex", array(4, 3), array(4, 3, seed=1), names="real imag")

_words = np.array([[b" One", b"22", b"three "], [b"4", b"FIVE", b""], [b"6", b"7", b"eight"], [b"9", b"ten", b"11"]])
for _name in ["StringLower", "StringUpper", "StringLength", "StringStrip"]:
    _raw(_name, _words, names="input")
_raw("StaticRegexReplace", _words, names="input", pattern="e+", rewrite="-")
_raw("StaticRegexFullMatch", _words, names="input", pattern=r"\d+")
_raw("StringToHashBucketFast", _words, names="input", num_buckets=7)
_raw("AsString", _integers(4, 3), names="input")
_add("StringJoin", lambda x, y: tf.strings.join([x, y], "-"), _words, _words[::-1])
_add("StringToNumber", lambda x: tf.strings.to_number(tf.strings.as_string(x)), _integers(4, 3))
_raw("Substr", _words, np.int32(0), np.int32(1), names="input pos len")
_raw("NextAfter", _positive(4, 3), _positive(4, 3, seed=1), names="x1 x2")
_raw("Zeta", 1.5 + _positive(4, 3), _positive(4, 3, seed=1), names="x q")
_raw("Polygamma", np.ones((4, 3), "float32"), _positive(4, 3, seed=1), names="a x")
_raw("Betainc", _positive(4, 3), _positive(4, 3, seed=1), _positive(4, 3, seed=2) / 2, names="a b x")
_raw("Pow", _positive(4, 3), array(4, 3), names="x y")
_raw("SelectV2", array(4, 3) > 0, array(4, 3, seed=1), array(4, 3, seed=2), names="condition t e")
_raw("ClipByValue", array(4, 3), np.float32(-0.2), np.float32(0.3), names="t clip_value_min clip_value_max")
_raw("Cast", array(4, 3) * 3, names="x", DstT=tf.int32)
for _name in ["Relu6Grad", "LeakyReluGrad", "SoftplusGrad", "SoftsignGrad", "ReluGrad"]:
    _raw(_name, array(4, 3), array(4, 3, seed=1), names="gradients features")
for _name in ["EluGrad", "SeluGrad"]:
    _raw(_name, array(4, 3), array(4, 3, seed=1), names="gradients outputs")
for _name in ["TanhGrad", "SigmoidGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad"]:
    _raw(_name, _positive(4, 3), array(4, 3, seed=1), names="y dy")
_add("AddN", lambda x, y, z: tf.add_n([x, y, z]), array(4, 3), array(4, 3, seed=1), array(4, 3, seed=2))

_raw("MatMul", array(4, 3), array(3, 5), names="a b")
_raw("BatchMatMul", array(2, 4, 3), array(2, 3, 5), names="x y")
_raw("BatchMatMulV2", array(2, 4, 3), array(3, 5), names="x y")
_raw("BatchMatMulV3", array(2, 4, 3), array(2, 3, 5), names="x y", Tout=tf.float32)
_add("Einsum", lambda x, y: tf.raw_ops.Einsum(inputs=[x, y], equation="abc,cd->adb"), array(2, 4, 3), array(3, 5))

for _name in ["Sum", "Mean", "Max", "Min", "Prod"]:
    _raw(_name, array(4, 3, 2), names="input", axis=[0, 2])
_raw("EuclideanNorm", array(4, 3, 2), names="input", axis=[2])
for _name in ["All", "Any"]:
    _raw(_name, array(4, 3) > -0.5, names="input", axis=[1], keep_dims=True)
_raw("L2Loss", array(4, 3), names="t")
for _name in ["ArgMax", "ArgMin"]:
    _raw(_name, array(4, 3), names="input", dimension=1)
for _name in ["Cumsum", "Cumprod", "CumulativeLogsumexp"]:
    _raw(_name, array(4, 3), names="x", axis=1, exclusive=True)
for _name in ["Softmax", "LogSoftmax"]:
    _raw(_name, array(4, 3), names="logits")
_add(
    "SoftmaxCrossEntropyWithLogits",
    lambda x, y: tf.raw_ops.SoftmaxCrossEntropyWithLogits(features=x, labels=y)[0],
    array(4, 3),
    _positive(4, 3),
)
_add(
    "SparseSoftmaxCrossEntropyWithLogits",
    lambda x, y: tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=y)[0],
    array(4, 6),
    _integers(4),
)

_raw("Conv2D", array(4, 5, 5, 2), array(3, 3, 2, 3), names="input filter", strides=[1, 2, 2, 1], padding="SAME")
_raw(
    "Conv3D", array(4, 3, 3, 3, 2), array(2, 2, 2, 2, 3), names="input filter", strides=[1, 1, 1, 1, 1], padding="VALID"
)
_raw(
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

    _add(op_type, fn, *arrays)


_to_input("Conv2DBackpropInput", [4, 4, 4, 2], array(2, 2, 2, 3), array(4, 3, 3, 3))
_to_input("Conv3DBackpropInputV2", [4, 3, 3, 3, 2], array(2, 2, 2, 2, 3), array(4, 2, 2, 2, 3), rank=5)
_to_input("DepthwiseConv2dNativeBackpropInput", [4, 4, 4, 2], array(2, 2, 2, 3), array(4, 3, 3, 6))
for _name, _shape in (("Conv2DBackpropFilter", [2, 2, 2, 3]), ("DepthwiseConv2dNativeBackpropFilter", [2, 2, 2, 3])):
    _raw(
        _name,
        array(4, 4, 4, 2),
        array(4, 3, 3, 3 if _name[0] == "C" else 6),
        names="input out_backprop",
        filter_sizes=_shape,
        strides=[1, 1, 1, 1],
        padding="VALID",
    )
_raw(
    "Conv3DBackpropFilterV2",
    array(4, 3, 3, 3, 2),
    array(4, 2, 2, 2, 3),
    names="input out_backprop",
    filter_sizes=[2, 2, 2, 2, 3],
    strides=[1] * 5,
    padding="VALID",
)
_pool = {"ksize": [1, 2, 2, 1], "strides": [1, 1, 1, 1], "padding": "SAME"}
_raw("MaxPool", array(4, 4, 4, 2), names="input", **_pool)
_raw("AvgPool", array(4, 4, 4, 2), names="value", **_pool)
_add(
    "MaxPoolGrad",
    lambda x, g: tf.raw_ops.MaxPoolGrad(orig_input=x, orig_output=tf.nn.max_pool2d(x, 2, 1, "SAME"), grad=g, **_pool),
    array(4, 4, 4, 2),
    array(4, 4, 4, 2, seed=1),
)
_add("AvgPoolGrad", lambda g: tf.raw_ops.AvgPoolGrad(orig_input_shape=tf.shape(g), grad=g, **_pool), array(4, 4, 4, 2))
_norm = [array(3, seed=seed, low=0.1) for seed in range(4)]
_add(
    "FusedBatchNormV3",
    lambda x: tf.raw_ops.FusedBatchNormV3(
        x=x, scale=_norm[0], offset=_norm[1], mean=_norm[2], variance=_norm[3], is_training=False
    )[0],
    array(4, 2, 2, 3),
)
_add(
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
_raw("ResizeBilinear", array(4, 3, 3, 2), names="images", size=[5, 5])
_raw("ResizeNearestNeighbor", array(4, 3, 3, 2), names="images", size=[5, 5])
_raw("ResizeNearestNeighborGrad", array(4, 5, 5, 2), names="grads", size=[3, 3])
_raw("BiasAdd", array(4, 3, 2), array(2), names="value bias")
_raw("BiasAddGrad", array(4, 3, 2), names="out_backprop")

_add("GatherV2", lambda x, i: tf.raw_ops.GatherV2(params=x, indices=i, axis=1), array(3, 6), _integers(4))


@cache
def _table() -> Any:
    """A variable, made when the devices are configured."""
    with tf.init_scope():
        return tf.Variable(array(6, 3))


_add(
    "ResourceGather",
    lambda i: tf.raw_ops.ResourceGather(resource=_table().handle, indices=i, dtype=tf.float32),
    _integers(4),
)
_add("OneHot", lambda i: tf.one_hot(i, 6, axis=0), _integers(4))
_add("DenseBincount", lambda i: tf.raw_ops.DenseBincount(input=i, size=7, weights=tf.zeros([0])), _integers(8))
_add(
    "UnsortedSegmentSum",
    lambda x, i: tf.raw_ops.UnsortedSegmentSum(data=x, segment_ids=i, num_segments=7),
    array(8, 3),
    _integers(8),
)
_add("ScatterNd", lambda i, x: tf.raw_ops.ScatterNd(indices=i, updates=x, shape=[7, 3]), _integers(8, 1), array(8, 3))
_add("TopKV2", lambda x: tf.raw_ops.TopKV2(input=x, k=2)[0], array(4, 5))
_raw("MatrixBandPart", array(4, 3, 3), names="input", num_lower=1, num_upper=0)


def _definite(*shape: int, seed: int = 0) -> Any:
    x = array(*shape, seed=seed)
    return x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1], dtype="float32")


for _name in ["Cholesky", "MatrixInverse", "MatrixDeterminant", "MatrixSquareRoot"]:
    _raw(_name, _definite(4, 3, 3), names="input")
for _name in ["LogMatrixDeterminant", "Qr", "Svd", "SelfAdjointEigV2"]:
    _raw(_name, _definite(4, 3, 3), names="input")
for _name in ["MatrixSolve", "MatrixTriangularSolve"]:
    _raw(_name, np.tril(_definite(4, 3, 3)), array(4, 3, 2), names="matrix rhs")
_raw("CholeskyGrad", np.linalg.cholesky(_definite(4, 3, 3)), array(4, 3, 3), names="l grad")
_raw("Cross", array(4, 3), array(4, 3, seed=1), names="a b")
for _name, _rank in (("FFT", 1), ("FFT2D", 2), ("FFT3D", 3)):
    _sizes = [2] * _rank
    for _way in (_name, f"I{_name}"):
        _of_complex(_way, 5, *_sizes)
    _of_complex(f"IR{_name}", 5, *_sizes, fft_length=_sizes)
    _raw(f"R{_name}", array(5, *_sizes), names="input", fft_length=_sizes)
for _name in ["AdjustContrastv2", "AdjustHue", "AdjustSaturation"]:
    _other = {"AdjustContrastv2": "contrast_factor", "AdjustHue": "delta", "AdjustSaturation": "scale"}[_name]
    _raw(_name, _positive(4, 2, 2, 3), np.float32(0.3), names=f"images {_other}")
for _name in ["RGBToHSV", "HSVToRGB"]:
    _raw(_name, _positive(4, 3) / 2, names="images")
_raw("ResizeBicubic", array(4, 3, 3, 2), names="images", size=[5, 5])


def _to_image(op_type: str) -> None:
    raw = getattr(tf.raw_ops, op_type)
    _add(op_type, lambda g: raw(grads=g, original_image=tf.zeros([tf.shape(g)[0], 3, 3, 2])), array(4, 5, 5, 2))


_to_image("ResizeBilinearGrad")
_to_image("ResizeBicubicGrad")
_patches = {"ksizes": [1, 2, 2, 1], "strides": [1] * 4, "rates": [1] * 4, "padding": "SAME"}
_raw("ExtractImagePatches", array(4, 3, 3, 2), names="images", **_patches)
_raw("SpaceToDepth", array(4, 2, 2, 3), names="input", block_size=2)
_raw("DepthToSpace", array(5, 2, 2, 4), names="input", block_size=2)
_raw("LRN", array(4, 2, 2, 3), names="input", depth_radius=1)
_cube = {"ksize": [1, 2, 2, 2, 1], "strides": [1] * 5, "padding": "SAME"}
for _name in ["MaxPool3D", "AvgPool3D"]:
    _raw(_name, array(4, 3, 3, 3, 2), names="input", **_cube)
_raw("MirrorPad", array(4, 3), names="input", paddings=[[0, 0], [1, 2]], mode="REFLECT")
_add(
    "CropAndResize",
    lambda x, boxes, i: tf.raw_ops.CropAndResize(image=x, boxes=boxes, box_ind=i, crop_size=[2, 2]),
    array(6, 4, 4, 2),
    np.tile(np.array([0.0, 0.1, 0.8, 1.0], "float32"), (5, 1)) * _positive(5, 1),
    _integers(5),
)
_raw("GatherNd", array(6, 6), _integers(4, 2), names="params indices")
_raw("ReverseSequence", array(4, 5, 2), _integers(4), names="input seq_lengths", seq_dim=1, batch_dim=0)
_raw("InTopKV2", array(4, 6), _integers(4), names="predictions targets", k=2)
for _name in ["LowerBound", "UpperBound"]:
    _raw(_name, np.sort(array(4, 5)), array(4, 3, seed=1), names="sorted_inputs values")
_raw("MatrixDiagPartV3", array(4, 3, 3), names="input", k=0, padding_value=0.0)

_add("Reshape", lambda x: tf.reshape(x, [-1, 2, 3]), array(4, 6))
_raw("ExpandDims", array(4, 3), names="input", axis=1)
_raw("Squeeze", array(4, 1, 3), names="input", axis=[1])
_raw("Transpose", array(4, 3, 2), names="x", perm=[2, 0, 1])
_add("Pack", lambda x, y: tf.stack([x, y], 1), array(4, 3), array(4, 3, seed=1))
_add("Unpack", lambda x: tf.unstack(x, axis=1)[-1], array(4, 3))
_add("ConcatV2", lambda x, y: tf.concat([x, y], 1), array(4, 3), array(4, 2))
_add("Split", lambda x: tf.split(x, 2, 1)[1], array(4, 6))
_add("SplitV", lambda x: tf.split(x, [1, 3, 2], 1)[1], array(4, 6))
_add("Slice", lambda x: tf.slice(x, [0, 1], [-1, 2]), array(4, 6))
_add("StridedSlice", lambda x: (x[:, 4:1:-2, None], x[3:0:-2]), array(4, 6))
_add(
    "StridedSliceGrad",
    lambda g: tf.raw_ops.StridedSliceGrad(
        shape=tf.stack([tf.shape(g)[0], 6]), begin=[0, 1], end=[0, 3], strides=[1, 1], dy=g, begin_mask=1, end_mask=1
    ),
    array(4, 2),
)
_add("Pad", lambda x: tf.pad(x, [[0, 0], [1, 2]]), array(4, 3))
_add("Tile", lambda x: tf.tile(x, [1, 2]), array(4, 3))
_add("ReverseV2", lambda x: tf.reverse(x, [1]), array(4, 3))
_add("Roll", lambda x: tf.roll(x, 1, 1), array(4, 3))

_PASSED_ON = "Identity StopGradient PreventGradient Snapshot EnsureShape CheckNumerics CheckNumericsV2"
for _name in _PASSED_ON.split():
    _options: dict[str, Any] = {
        "EnsureShape": {"shape": [None, 3]},
        "CheckNumerics": {"message": ""},
        "CheckNumericsV2": {"message": ""},
    }.get(_name, {})
    _raw(_name, array(4, 3), names="tensor" if "Check" in _name else "input", **_options)
_add("IdentityN", lambda x, y: tf.identity_n([x, y])[1], array(4, 3), array(4, 3, seed=1))
_add("Shape", lambda x: x * tf.cast(tf.raw_ops.Shape(input=x)[1], tf.float32), array(4, 3))
_add("ShapeN", lambda x, y: x * tf.cast(tf.shape_n([x, y])[1][1], tf.float32), array(4, 3), array(4, 2))
_add("Size", lambda x: x[:, :2] * tf.cast(tf.raw_ops.Size(input=x[0]), tf.float32), array(4, 3))
_add("Rank", lambda x: x * tf.cast(tf.raw_ops.Rank(input=x), tf.float32), array(4, 3))
_add("Fill", lambda x: x + tf.raw_ops.Fill(dims=tf.shape(x), value=2.0), array(4, 3))
_add("BroadcastTo", lambda x: tf.raw_ops.BroadcastTo(input=x, shape=tf.stack([2, tf.shape(x)[0], 3])), array(4, 3))
_add(
    "BroadcastGradientArgs",
    lambda x: x * tf.cast(tf.raw_ops.BroadcastGradientArgs(s0=tf.shape(x), s1=[3])[1][0] + 1, tf.float32),
    array(4, 3),
)
_add(
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
    _add(_name, _listed, array(4, 3))
for _name in ("EmptyTensorList", "TensorListPushBack", "TensorListPopBack", "TensorListElementShape"):
    _add(_name, _pushed, array(4, 3))
for _name in ("TensorListFromTensor", "TensorListLength"):
    _add(_name, _turned_over, array(4, 3))
for _name in ("OptionalFromValue", "OptionalGetValue", "OptionalNone"):
    _add(_name, _optional, array(4, 3))


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
    _add(_name, _updated, array(4, 3))
