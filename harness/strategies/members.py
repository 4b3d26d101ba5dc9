"""Several models of one architecture, for ensembles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from harness.errors import InvalidProgram, UsageError
from harness.strategies.build import build
from harness.strategies.dtypes import FLOATS
from harness.strategies.generate import programs
from harness.strategies.program import Program
from harness.strategies.steps.step import Compact

if TYPE_CHECKING:
    from harness.devices.device import Devices


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
    """Models that differ in the values of their variables.

    Attributes:
        program: the program of each model.
        seeds: one for each model, for its variables and its own inputs.
        own_inputs: whether each model gets its own inputs.

    Raises:
        InvalidProgram: there is no model.
    """

    program: Program
    seeds: tuple[int, ...]
    own_inputs: bool = False

    def __post_init__(self) -> None:
        if not self.seeds:
            raise InvalidProgram("models", "no model", "a seed for each model")

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

    Args:
        max_models: the most models: the number of devices.
        min_models: the fewest models.
        dtypes: the types of the programs' numbers, as for :func:`programs`.
        max_rows: the most rows of a batch.

    Raises:
        UsageError: an argument is not accepted.
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
