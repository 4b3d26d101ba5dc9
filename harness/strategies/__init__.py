"""Hypothesis strategies: device sets, batches, arrays with exact arithmetic, and whole programs.

Only this package imports Hypothesis, and importing it does not import TensorFlow.
"""

from __future__ import annotations

from harness.errors import MissingExtra

try:
    import hypothesis  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra("hypothesis", "generate") from error

from harness.strategies.arrays import exact_arrays, exact_magnitude
from harness.strategies.assertion import assert_program
from harness.strategies.batches import batches
from harness.strategies.build import Built
from harness.strategies.device_sets import device_sets
from harness.strategies.dtypes import DTYPES, FLOATS, INTEGERS, numpy_dtype
from harness.strategies.explore import Exploration, Failure, explore, sample
from harness.strategies.generate import programs
from harness.strategies.members import BuiltModels, Models, models
from harness.strategies.parts import Argument, Variable
from harness.strategies.program import Program
from harness.strategies.script import program_text
from harness.strategies.staged import BuiltStages, StagedProgram, staged_programs
from harness.strategies.steps import (
    KINDS,
    Activation,
    Argmax,
    Bias,
    Branch,
    Combine,
    Conv1d,
    Conv2d,
    Dense,
    Einsum,
    Embed,
    Gain,
    Gather,
    Loop,
    Normalise,
    Pick,
    Pool,
    Reduce,
    Remap,
    Reshape,
    Select,
    Slice,
    Step,
    Transpose,
)
from harness.strategies.training import TrainingSetup, training_setups

__all__ = [
    "DTYPES",
    "FLOATS",
    "INTEGERS",
    "KINDS",
    "Activation",
    "Argmax",
    "Argument",
    "Bias",
    "Branch",
    "Built",
    "BuiltModels",
    "BuiltStages",
    "Combine",
    "Conv1d",
    "Conv2d",
    "Dense",
    "Einsum",
    "Embed",
    "Exploration",
    "Failure",
    "Gain",
    "Gather",
    "Loop",
    "Models",
    "Normalise",
    "Pick",
    "Pool",
    "Program",
    "Reduce",
    "Remap",
    "Reshape",
    "Select",
    "Slice",
    "StagedProgram",
    "Step",
    "TrainingSetup",
    "Transpose",
    "Variable",
    "assert_program",
    "batches",
    "device_sets",
    "exact_arrays",
    "exact_magnitude",
    "explore",
    "models",
    "numpy_dtype",
    "program_text",
    "programs",
    "sample",
    "staged_programs",
    "training_setups",
]
