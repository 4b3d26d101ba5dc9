"""Programs cut into stages, for pipelines, and several models of one architecture, for ensembles."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from harness.errors import InvalidProgram, UsageError
from harness.lazy import tf
from harness.strategies.build import build, make_variables, unconverted
from harness.strategies.dtypes import FLOATS
from harness.strategies.generate import computes, programs
from harness.strategies.parts import leaf_at, pack
from harness.strategies.program import Program
from harness.strategies.steps.step import Compact

if TYPE_CHECKING:
    from harness.devices.device import Devices

#: Numbers of micro-batches, as often as they are drawn.
_MICROBATCHES = (1, 1, 2, 3, 4, 7)


@dataclass(frozen=True)
class BuiltStages:
    """A staged program that can run, as ``pipeline`` takes it, and unsplit with the same variables.

    ``variables`` are those of all stages, each on the device of its stage.
    """

    stages: tuple[Callable[..., Any], ...]
    unsplit: Callable[..., Any]
    variables: tuple[Any, ...]


@dataclass(frozen=True, repr=False)
class StagedProgram(Compact):
    """A program whose steps are cut into stages. Raise InvalidProgram if the cuts do not fit the program.

    Attributes:
        program: with the batch along axis 0.
        cuts: stage k begins with step ``cuts[k - 1]``. No variable is read on both sides of a cut.
        microbatches: the number of micro-batches of ``pipeline``.
    """

    program: Program
    cuts: tuple[int, ...]
    microbatches: int = 1

    def __post_init__(self) -> None:
        allowed = possible_cuts(self.program)
        if self.program.axis != 0:
            raise InvalidProgram("staged program", f"axis={self.program.axis}", "a program with the batch on axis 0")
        if list(self.cuts) != sorted(set(self.cuts)) or not set(self.cuts) <= set(allowed):
            accepted = (
                f"any of {allowed}, each once, in ascending order" if allowed else "(): this program cannot be cut"
            )
            raise InvalidProgram("staged program", f"cuts={self.cuts}", accepted)

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """First step of each stage, and the one after its last."""
        edges = [0, *self.cuts, len(self.program.steps)]
        return list(itertools.pairwise(edges))

    def build(self, devices: Devices) -> BuiltStages:
        """Build the variables, each on the device of the stage that reads it, and the stages.

        A stage returns a dict of all values that later ones read.
        """
        program = self.program
        place = {name: index for index, span in enumerate(self.bounds) for name in self._reads(*span)}
        variables = make_variables(program, lambda name: devices[place.get(name, 0)].name)
        stages = tuple(self._stage(*span, variables) for span in self.bounds)
        return BuiltStages(stages, build(program, "", variables).fn, tuple(variables.values()))

    def _reads(self, first: int, end: int) -> set[str]:
        return {name for step in self.program.steps[first:end] for name in step.reads}

    def _stage(self, first: int, end: int, variables: dict[str, Any]) -> Callable[..., Any]:
        program = self.program
        needed = self._reads(end, len(program.steps)) | {name for _, name in program.outputs}
        own = {name: variables[name] for name in self._reads(first, end) if name in variables}

        def run(values: dict[str, Any]) -> Any:
            values = {**values, **own}
            for index in range(first, end):
                values[f"v{index}"] = unconverted(program.steps[index].apply)(values)
            if end == len(program.steps):
                return unconverted(pack)((path, values[name]) for path, name in program.outputs)
            return {name: value for name, value in values.items() if name in needed and name not in variables}

        def run_first(**inputs: Any) -> Any:
            leaves = {argument.name: leaf_at(inputs, argument.name) for argument in program.arguments}
            return run({name: tf.convert_to_tensor(leaf) for name, leaf in leaves.items()})

        return run_first if first == 0 else run


def possible_cuts(program: Program) -> tuple[int, ...]:
    """Steps that a stage may begin with: no variable is read both before and after it."""
    names = {variable.name for variable in program.variables}
    reads = [set(step.reads) & names for step in program.steps]
    return tuple(
        cut for cut in range(1, len(program.steps)) if not set().union(*reads[:cut]) & set().union(*reads[cut:])
    )


def staged_programs(
    *, max_stages: int = 4, dtypes: Sequence[Any] = FLOATS, min_stages: int = 1, min_rows: int = 0, max_rows: int = 13
) -> SearchStrategy[StagedProgram]:
    """Generate programs of up to 10 steps, cut into stages that all compute, with 1 to 7 micro-batches.

    Raise UsageError if an argument is not accepted.

    Args:
        max_stages: the most stages: the number of devices.
        dtypes: the types of the programs' numbers, as for :func:`programs`; int32 proves nothing about places.
        min_stages: the fewest stages.
        min_rows: the fewest rows.
        max_rows: the most rows.
    """
    if not 1 <= min_stages <= max_stages:
        raise UsageError(f"min_stages={min_stages}, max_stages={max_stages}; accepted: 1 <= min_stages <= max_stages")
    source = programs(
        dtypes=dtypes,
        axes=(0,),
        min_steps=min(max(min_stages, 2), 8),
        max_steps=max(10, max_stages + 2),
        min_rows=min_rows,
        max_rows=max_rows,
    )

    @st.composite
    def drawn(draw: DrawFn) -> StagedProgram:
        program = draw(source.filter(lambda program: len(_good_cuts(program)) + 1 >= min_stages))
        cuts = _good_cuts(program)
        count = draw(st.sampled_from(range(min_stages, min(max_stages, len(cuts) + 1) + 1)))
        microbatches = st.sampled_from([each for each in _MICROBATCHES if each <= max(program.rows, 1)])
        chosen = draw(st.permutations(cuts))[: count - 1] if count > 1 else []
        return StagedProgram(program, tuple(sorted(chosen)), draw(microbatches))

    return drawn()


def _good_cuts(program: Program) -> tuple[int, ...]:
    """Cuts of which any may be combined: the steps between two of them compute something traceable."""
    good: list[int] = []
    start = 0
    for cut in possible_cuts(program):
        if _works(program, start, cut) and _works(program, cut, len(program.steps)):
            good.append(cut)
            start = cut
    return tuple(good)


def _works(program: Program, first: int, end: int) -> bool:
    return any(
        computes(step) and program.types[f"v{first + index}"].dtype == program.dtype
        for index, step in enumerate(program.steps[first:end])
    )


@dataclass(frozen=True)
class BuiltModels:
    """Models that can run, as ``ensemble`` takes them.

    ``one_by_one`` calls them in turn, with the ensemble's arguments; ``variables`` are those of all models, each on its
    model's device.
    """

    models: tuple[Callable[..., Any], ...]
    one_by_one: Callable[..., Any]
    variables: tuple[Any, ...]


@dataclass(frozen=True, repr=False)
class Models(Compact):
    """Models that differ in the values of their variables. Raise InvalidProgram if there is no model.

    Attributes:
        program: the program of each model.
        seeds: one for each model, for its variables and its own inputs.
        own_inputs: whether each model gets its own inputs.
    """

    program: Program
    seeds: tuple[int, ...]
    own_inputs: bool = False

    def __post_init__(self) -> None:
        if not self.seeds:
            raise InvalidProgram("models", "seeds=()", "a seed for each model")

    @property
    def each(self) -> tuple[str, ...]:
        """The arguments of which each model gets its own, as ``ensemble(each=...)`` takes them."""
        return tuple(self.program.inputs()) if self.own_inputs else ()

    def inputs(self) -> dict[str, Any]:
        """NumPy arrays for the arguments; lists of them for those in :attr:`each`."""
        if not self.own_inputs:
            return self.program.inputs()
        each = [self.program.inputs(seed=seed) for seed in self.seeds]
        return {name: [inputs[name] for inputs in each] for name in each[0]}

    def build(self, devices: Devices) -> BuiltModels:
        """Make the models, each with its variables on its own device."""
        built = [
            build(replace(self.program, seed=seed), device.name)
            for seed, device in zip(self.seeds, devices, strict=False)
        ]

        def one_by_one(**inputs: Any) -> list[Any]:
            return [
                model.fn(**{name: value[index] if self.own_inputs else value for name, value in inputs.items()})
                for index, model in enumerate(built)
            ]

        variables = tuple(variable for model in built for variable in model.variables)
        return BuiltModels(tuple(model.fn for model in built), one_by_one, variables)


def models(
    *, max_models: int = 4, min_models: int = 1, dtypes: Sequence[Any] = FLOATS, max_rows: int = 13
) -> SearchStrategy[Models]:
    """Generate programs, each as several models with their own variables.

    Raise UsageError if an argument is not accepted.

    Args:
        max_models: the most models: the number of devices.
        min_models: the fewest models.
        dtypes: the types of the programs' numbers, as for :func:`programs`.
        max_rows: the most rows of a batch.
    """
    if not 1 <= min_models <= max_models:
        raise UsageError(f"min_models={min_models}, max_models={max_models}; accepted: 1 <= min_models <= max_models")
    source = programs(dtypes=dtypes, max_rows=max_rows, min_steps=2)

    @st.composite
    def drawn(draw: DrawFn) -> Models:
        count = draw(st.sampled_from(range(min_models, max_models + 1)))
        seeds = draw(st.lists(st.integers(0, 2**16 - 1), min_size=count, max_size=count, unique=True))
        return Models(draw(source), tuple(seeds), draw(st.booleans()))

    return drawn()
