"""Element-wise operations and arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from harness.proof.evaluation import Elementwise, Entry, Evaluation, is_float, is_whole
from harness.proof.sizes import Unprovable
from harness.proof.terms import FLOATS, Form, Poly, broadcast_shape

#: Defined for all real arguments.
_TOTAL = """
    Relu Relu6 Elu Selu LeakyRelu Softplus Softsign Sigmoid Tanh Exp Expm1 Abs Sign Floor Ceil Round Rint Erf Erfc Sin
    Cos Atan Sinh Cosh Asinh LogicalNot LogicalAnd LogicalOr Less LessEqual Greater GreaterEqual
    IsNan IsInf IsFinite Invert BitwiseAnd BitwiseOr BitwiseXor PopulationCount BesselI0 BesselI1 Dawsn FresnelCos
    FresnelSin Real Imag Conj Complex ComplexAbs Angle Bucketize AsString StringLower StringUpper StringLength
    StringStrip StringJoin StaticRegexReplace StaticRegexFullMatch StringToHashBucketFast
""".split()
_PARTLY = """
    Log Log1p Erfinv Ndtri Tan Asin Acos Acosh Atanh Lgamma Digamma FloorDiv FloorMod Mod TruncateDiv TruncateMod Xdivy
    Xlogy Xlog1py Atan2 LeftShift RightShift ClipByValue Zeta Polygamma BesselI0e BesselI1e NextAfter Betainc
    Igamma Igammac IgammaGradA Expint Spence BesselJ0 BesselJ1 BesselK0 BesselK1 BesselK0e BesselK1e BesselY0 BesselY1
    StringToNumber Substr
""".split()
#: Gradients, linear in the first argument.
_GRADIENTS = "Relu6Grad LeakyReluGrad EluGrad SeluGrad SoftplusGrad SoftsignGrad MulNoNan".split()


def _add(ev: Evaluation, op: Any, *args: Poly) -> Poly:
    total, *others = args
    if total.dtype in ("string", "variant", "bool"):
        raise Unprovable(f"a sum of type {total.dtype}")
    for arg in others:
        total = ev.alg.add(total, arg)
    return total


def _sub(ev: Evaluation, op: Any, x: Poly, y: Poly) -> Poly:
    return ev.alg.add(x, y, -1)


def _neg(ev: Evaluation, op: Any, x: Poly) -> Poly:
    return ev.alg.scale(x, -1)


def _mul(ev: Evaluation, op: Any, x: Poly, y: Poly) -> Poly:
    return ev.alg.mul(x, y)


def _divide(ev: Evaluation, op: Any, x: Poly, y: Poly) -> Poly:
    if not is_float(x):
        return ev.by_elements(op, [x, y], Elementwise())
    return ev.alg.mul(x, ev.alg.inverse(y))


def _divide_no_nan(ev: Evaluation, op: Any, x: Poly, y: Poly) -> Poly:
    value = ev.alg.value(y)
    constant = bool(y.terms) and all(not mono for mono, _ in y.terms)
    if constant or (value is not None and value.size and np.all(value)):
        return _divide(ev, op, x, y)
    return ev.alg.elementwise("DivNoNan", (), [x, y], x.dtype, Form((), (0,), None, True))


def _reciprocal(ev: Evaluation, op: Any, x: Poly) -> Poly:
    return ev.alg.inverse(x) if is_float(x) else ev.by_elements(op, [x], Elementwise())


def _square(ev: Evaluation, op: Any, x: Poly) -> Poly:
    return ev.alg.mul(x, x)


def _squared_difference(ev: Evaluation, op: Any, x: Poly, y: Poly) -> Poly:
    return _square(ev, op, ev.alg.add(x, y, -1))


def root(ev: Evaluation, x: Poly) -> Poly:
    """The square root."""
    return ev.alg.elementwise("Sqrt", (), [x], x.dtype, Form())


def _sqrt(ev: Evaluation, op: Any, x: Poly) -> Poly:
    return root(ev, x)


def _rsqrt(ev: Evaluation, op: Any, x: Poly) -> Poly:
    return ev.alg.inverse(root(ev, x))


def _pow(ev: Evaluation, op: Any, x: Poly, y: Poly) -> Poly:
    value = ev.alg.value(y)
    power = float(value.flat[0]) if value is not None and value.size and np.all(value == value.flat[0]) else math.nan
    if power not in (0.5, 1, 2, 3, 4) or not is_float(x):
        return ev.by_elements(op, [x, y], Elementwise())
    made = root(ev, x) if power == 0.5 else x
    for _ in range(int(power) - 1):
        made = ev.alg.mul(made, x)
    return ev.alg.broadcast(made, broadcast_shape(x.shape, y.shape))


def _extreme_of_two(ev: Evaluation, op: Any, x: Poly, y: Poly) -> Poly:
    return ev.alg.maximum(op.type, [x, y], broadcast_shape(x.shape, y.shape))


def _relu_grad(ev: Evaluation, op: Any, g: Poly, x: Poly) -> Poly:
    return ev.alg.mul(g, ev.alg.elementwise("Positive", (), [x], g.dtype, Form(total=True)))


def _tanh_grad(ev: Evaluation, op: Any, y: Poly, g: Poly) -> Poly:
    return ev.alg.add(g, ev.alg.mul(g, ev.alg.mul(y, y)), -1)


def _sigmoid_grad(ev: Evaluation, op: Any, y: Poly, g: Poly) -> Poly:
    product = ev.alg.mul(g, y)
    return ev.alg.add(product, ev.alg.mul(product, y), -1)


def _sqrt_grad(ev: Evaluation, op: Any, y: Poly, g: Poly) -> Poly:
    return ev.alg.scale(ev.alg.mul(g, ev.alg.inverse(y)), Fraction(1, 2))


def _rsqrt_grad(ev: Evaluation, op: Any, y: Poly, g: Poly) -> Poly:
    return ev.alg.scale(ev.alg.mul(g, ev.alg.mul(y, ev.alg.mul(y, y))), Fraction(-1, 2))


def _reciprocal_grad(ev: Evaluation, op: Any, y: Poly, g: Poly) -> Poly:
    return ev.alg.scale(ev.alg.mul(g, ev.alg.mul(y, y)), -1)


def _compare(ev: Evaluation, op: Any, x: Poly, y: Poly) -> Poly:
    if x is not y or is_float(x):  # NaN differs from itself
        return ev.by_elements(op, [x, y], Elementwise(total=True))
    return ev.alg.broadcast(ev.alg.const(np.array(op.type == "Equal")), x.shape)


def _select(ev: Evaluation, op: Any, condition: Poly, x: Poly, y: Poly) -> Poly:
    value = ev.alg.value(condition)
    if value is None or not value.size or value.dtype != bool or value.any() != value.all():
        return ev.by_elements(op, [condition, x, y], Elementwise(total=True))
    shape = broadcast_shape(condition.shape, broadcast_shape(x.shape, y.shape))
    return ev.alg.broadcast(x if value.all() else y, shape)


def _select_rows(ev: Evaluation, op: Any, condition: Poly, x: Poly, y: Poly) -> Poly:
    """The older choice: by element, or for each row, where the condition has one axis."""
    if 0 < len(condition.shape) < len(x.shape):
        condition = ev.alg.reshape(condition, (*condition.shape, *[1] * (len(x.shape) - 1)))
    return _select(ev, op, condition, x, y)


def _cast(ev: Evaluation, op: Any, x: Poly) -> Poly:
    to = op.outputs[0].dtype.base_dtype.name
    if to == x.dtype:
        return x
    value = ev.alg.value(x)
    if value is not None and is_whole(x) and value.dtype == object:
        return _cast_sizes(ev, value, to)
    if value is not None and (is_whole(x) or x.dtype == "bool"):
        return ev.alg.const(value.astype(op.outputs[0].dtype.base_dtype.as_numpy_dtype))
    single = ev.alg.single(x)
    if single and single.op == "Cast" and single.args[0].dtype == to == "float32" and x.dtype == "float64":
        return ev.alg.scale(single.args[0], x.terms[0][1])  # there and back, without a loss
    if not x.terms and is_float(x) and to in FLOATS:
        return ev.alg.zeros(x.shape, to)
    attrs = (x.dtype, to, bool(op.get_attr("Truncate")))
    return ev.alg.elementwise("Cast", attrs, [x], to, Form(total=True))


def _cast_sizes(ev: Evaluation, value: Any, to: str) -> Poly:
    if to in ("int32", "int64"):
        return ev.alg.numbers(value, to)
    if to not in ("float32", "float64"):
        raise Unprovable(f"a number of rows as {to}")
    if value.ndim == 0:
        return ev.alg.number(value[()], (), to)
    flat = [ev.alg.number(each, (1,), to) for each in value.reshape(-1)]
    return ev.alg.reshape(ev.alg.concat(flat, 0), value.shape)


RULES: dict[str, Entry] = {
    **dict.fromkeys(_TOTAL, Elementwise(total=True)),
    **dict.fromkeys(_PARTLY, Elementwise()),
    **dict.fromkeys(_GRADIENTS, Elementwise(parts=(0,), total=True)),
    "Add": _add,
    "AddV2": _add,
    "AddN": _add,
    "Sub": _sub,
    "Neg": _neg,
    "Mul": _mul,
    "Div": _divide,
    "RealDiv": _divide,
    "DivNoNan": _divide_no_nan,
    "Reciprocal": _reciprocal,
    "Inv": _reciprocal,
    "Square": _square,
    "SquaredDifference": _squared_difference,
    "Sqrt": _sqrt,
    "Rsqrt": _rsqrt,
    "Pow": _pow,
    "Maximum": _extreme_of_two,
    "Minimum": _extreme_of_two,
    "ReluGrad": _relu_grad,
    "TanhGrad": _tanh_grad,
    "SigmoidGrad": _sigmoid_grad,
    "SqrtGrad": _sqrt_grad,
    "RsqrtGrad": _rsqrt_grad,
    "ReciprocalGrad": _reciprocal_grad,
    "InvGrad": _reciprocal_grad,
    "Cast": _cast,
    "Equal": _compare,
    "NotEqual": _compare,
    "Select": _select_rows,
    "SelectV2": _select,
}
