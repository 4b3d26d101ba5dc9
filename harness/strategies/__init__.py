"""Hypothesis strategies: device sets, batches, arrays with exact arithmetic, and whole programs.

Only this package imports Hypothesis, and importing it does not import TensorFlow.
"""

import types as _types

from harness.errors import MissingExtra as _MissingExtra

try:
    import hypothesis as _hypothesis  # noqa: F401
except ModuleNotFoundError as error:
    raise _MissingExtra("hypothesis", "generate") from error

from harness.strategies.build import Built as Built
from harness.strategies.dtypes import (
    DTYPES as DTYPES,
    FLOATS as FLOATS,
    INTEGERS as INTEGERS,
    numpy_dtype as numpy_dtype,
)
from harness.strategies.explore import (
    Exploration as Exploration,
    Failure as Failure,
    explore as explore,
    sample as sample,
)
from harness.strategies.generate import programs as programs
from harness.strategies.inputs import (
    batches as batches,
    device_sets as device_sets,
    exact_arrays as exact_arrays,
    exact_magnitude as exact_magnitude,
)
from harness.strategies.parts import Argument as Argument, Variable as Variable
from harness.strategies.patterns import (
    BuiltModels as BuiltModels,
    BuiltStages as BuiltStages,
    Models as Models,
    StagedProgram as StagedProgram,
    models as models,
    staged_programs as staged_programs,
)
from harness.strategies.program import Program as Program
from harness.strategies.recipes import KINDS as KINDS
from harness.strategies.script import assert_program as assert_program, program_text as program_text
from harness.strategies.steps.control import Branch as Branch, Loop as Loop
from harness.strategies.steps.features import (
    Activation as Activation,
    Combine as Combine,
    Normalise as Normalise,
    Reduce as Reduce,
    Reshape as Reshape,
    Select as Select,
    Transpose as Transpose,
)
from harness.strategies.steps.lookup import (
    Argmax as Argmax,
    Embed as Embed,
    Gather as Gather,
    Pick as Pick,
    Remap as Remap,
    Slice as Slice,
)
from harness.strategies.steps.products import (
    Bias as Bias,
    Conv1d as Conv1d,
    Conv2d as Conv2d,
    Dense as Dense,
    Einsum as Einsum,
    Gain as Gain,
    Pool as Pool,
)
from harness.strategies.steps.step import Step as Step
from harness.strategies.training import TrainingSetup as TrainingSetup, training_setups as training_setups


def __dir__() -> list[str]:
    public = {name: value for name, value in globals().items() if not name.startswith("_")}
    return sorted(name for name, value in public.items() if not isinstance(value, _types.ModuleType))
