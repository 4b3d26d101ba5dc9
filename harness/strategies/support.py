"""The steps, and variants of steps, that are generated for each dtype.

TensorFlow 2.21 has CPU kernels and gradients of every step here in all four float types. What is left out:

- integers: TensorFlow has no kernels for roots, exponentials and logarithms of integers (activations but relu and abs,
  normalisations, logsumexp), nor for int64 convolutions and mean pools; its integer mean is rounded. An int32
  convolution has a kernel on CPUs alone. On GPUs there is no MatMul of integers: give ``dtypes=FLOATS`` there.
- float16 and bfloat16: steps with a kink where generic values often meet (maxima of nearly equal numbers, relu near
  0). With 8 or 11 bits a neighbour is close, and a value that rounds the other way would turn a gradient on or off.
  Exact programs have no rounding, so there they are in.
- batches of 0 rows: maximum pools and convolutions (``Step.needs_rows``), whose oneDNN kernels abort or fail on them.
"""

from __future__ import annotations

from harness.strategies.dtypes import DTYPES, FLOATS, is_float
from harness.strategies.steps import KINDS, STEPS
from harness.strategies.steps.control import Loop
from harness.strategies.steps.convolution import Conv1d, Conv2d
from harness.strategies.steps.features import REDUCTIONS, Normalise
from harness.strategies.steps.lookup import Embed, Gather, Pick
from harness.strategies.steps.pointwise import COMBINATIONS, EXACT_ACTIVATIONS, SMOOTH_ACTIVATIONS

_WIDE = ("float32", "float64")

#: Types of the kinds of steps that are not generated in all types.
KIND_DTYPES = dict.fromkeys((Normalise.KIND, Conv1d.KIND, Conv2d.KIND), FLOATS)
#: Kinds whose inner arithmetic is not integer arithmetic.
INEXACT_KINDS = (Normalise.KIND, Conv1d.KIND, Conv2d.KIND)
#: Kinds that a program is not generated with when its function is a ``tf.function``. TensorFlow 2.21 cannot place two
#: copies of such a function on two devices of one graph ("Cannot colocate nodes"): constraints inside (on the shape in
#: the gradient of a gather, on a loop over a variable) name the same op in each copy.
UNPLACEABLE_WHEN_TRACED = (Gather.KIND, Pick.KIND, Embed.KIND, Loop.KIND)


def kinds(dtype: str, *, exact: bool) -> tuple[str, ...]:
    """The kinds of steps in programs of that type."""
    return tuple(
        kind for kind in KINDS if dtype in KIND_DTYPES.get(kind, DTYPES) and not (exact and kind in INEXACT_KINDS)
    )


def activations(dtype: str, *, exact: bool) -> tuple[str, ...]:
    """The activations of programs of that type."""
    if exact or not is_float(dtype):
        return EXACT_ACTIVATIONS
    return (*SMOOTH_ACTIVATIONS, *EXACT_ACTIVATIONS) if dtype in _WIDE else SMOOTH_ACTIVATIONS


def combinations(dtype: str, *, exact: bool) -> tuple[str, ...]:
    """The ways in which programs of that type combine two values."""
    kinks = exact or not is_float(dtype) or dtype in _WIDE
    return tuple(how for how in COMBINATIONS if kinks or how != "maximum")


def reductions(dtype: str, *, exact: bool) -> tuple[str, ...]:
    """The reductions of programs of that type."""
    if not is_float(dtype):
        return ("sum", "max")
    if exact:
        return ("sum",)
    return REDUCTIONS if dtype in _WIDE else ("sum", "mean", "logsumexp")


def pools(dtype: str, *, exact: bool) -> tuple[str, ...]:
    """The pools of programs of that type."""
    if exact or not is_float(dtype):
        return ("max",)
    return ("max", "avg") if dtype in _WIDE else ("avg",)


def unknown_kinds(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names in ``names`` that are not kinds of steps."""
    return tuple(kind for kind in names if kind not in STEPS)
