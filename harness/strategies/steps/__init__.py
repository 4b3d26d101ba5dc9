"""The steps that a program can be made of, by kind."""

from __future__ import annotations

from harness.strategies.steps.affine import Bias, Dense, Gain
from harness.strategies.steps.contraction import Einsum
from harness.strategies.steps.control import Branch, Loop
from harness.strategies.steps.convolution import Conv1d, Conv2d, Pool
from harness.strategies.steps.features import Normalise, Reduce, Reshape, Transpose
from harness.strategies.steps.lookup import Argmax, Embed, Gather, Pick, Remap, Slice
from harness.strategies.steps.pointwise import Activation, Combine, Select
from harness.strategies.steps.step import Step

STEPS: dict[str, type[Step]] = {
    step.KIND: step
    for step in (
        Activation,
        Bias,
        Gain,
        Dense,
        Combine,
        Reduce,
        Reshape,
        Transpose,
        Slice,
        Gather,
        Normalise,
        Einsum,
        Conv1d,
        Conv2d,
        Pool,
        Select,
        Pick,
        Embed,
        Remap,
        Argmax,
        Branch,
        Loop,
    )
}
#: Names of the kinds of steps.
KINDS = tuple(STEPS)

__all__ = [
    "KINDS",
    "STEPS",
    "Activation",
    "Argmax",
    "Bias",
    "Branch",
    "Combine",
    "Conv1d",
    "Conv2d",
    "Dense",
    "Einsum",
    "Embed",
    "Gain",
    "Gather",
    "Loop",
    "Normalise",
    "Pick",
    "Pool",
    "Reduce",
    "Remap",
    "Reshape",
    "Select",
    "Slice",
    "Step",
    "Transpose",
]
