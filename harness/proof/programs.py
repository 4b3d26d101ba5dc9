"""Traces a program into a graph with the results that are compared: outputs and gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness._tensorflow import as_autograph
from harness.lazy import tf

#: Ends the name of a gradient that does not exist.
NO_GRADIENT = " (none)"
#: Begins the names of the placeholders of upstream gradients.
_UPSTREAM = "upstream"


@dataclass(frozen=True, slots=True)
class Traced:
    """The graph of a program.

    ``placeholders`` says which result each upstream gradient belongs to: the names of ops, to the number of the result
    and the name of its tensor. ``results`` are the tensors that ``names`` names, and ``None`` for a gradient that does
    not exist; without them, they are the graph's outputs.
    """

    graph: Any
    names: tuple[str, ...]
    placeholders: dict[str, tuple[int, str]]
    results: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of a program, in TensorFlow's order."""

    structure: dict[str, Any]
    leaves: tuple[Any, ...]

    @classmethod
    def of(cls, inputs: Mapping[str, Any]) -> Given:
        """Arrays become tensors; other values are passed on unchanged."""

        def tensor(leaf: Any) -> Any:
            plain = isinstance(leaf, (np.ndarray, np.generic, float)) and np.asarray(leaf).dtype != object
            return tf.constant(leaf) if plain else leaf

        structure = {str(name): tf.nest.map_structure(tensor, value) for name, value in inputs.items()}
        return cls(structure, tuple(tf.nest.flatten(structure)))

    @property
    def places(self) -> list[int]:
        """The numbers of the leaves that are tensors."""
        return [at for at, leaf in enumerate(self.leaves) if tf.is_tensor(leaf)]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the tensors."""
        return [tuple(self.leaves[at].shape) for at in self.places]

    def names(self) -> list[str]:
        """Names of the tensors that gradients are taken for."""
        found = []
        for name, value in sorted(self.structure.items()):
            leaves = tf.nest.flatten(value)
            for index, leaf in enumerate(leaves):
                if tf.is_tensor(leaf) and leaf.dtype.is_floating:
                    found.append(f"input {name}" if len(leaves) == 1 else f"input {name}[{index}]")
        return found


def traced(
    fn: Callable[..., Any],
    given: Given,
    variables: Sequence[Any],
    *,
    gradients: bool,
    any_rows: Sequence[int] = (),
) -> Traced:
    """The graph of a program. The tensors numbered ``any_rows`` have an unknown size along axis 0.

    With ``gradients``, there is one for each floating input and variable, for any upstream gradient. Raises what the
    program raises.
    """
    places = given.places
    names: list[str] = []
    placeholders: dict[str, tuple[int, str]] = {}

    def step(*tensors: Any) -> list[Any]:
        names.clear()
        own = list(given.leaves)
        for at, tensor in zip(places, tensors, strict=True):
            own[at] = tensor
        return flat(own)

    def flat(own: list[Any]) -> list[Any]:
        sources = [leaf for leaf in own if tf.is_tensor(leaf) and leaf.dtype.is_floating] if gradients else []
        with tf.GradientTape() as tape:
            for source in sources:
                tape.watch(source)
            outputs = as_autograph(fn)(**tf.nest.pack_sequence_as(given.structure, own))
        named = [pair for pair in zip(names_of(outputs), tf.nest.flatten(outputs), strict=True) if pair[1] is not None]
        names.extend(name for name, _ in named)
        tensors = [tf.identity(tf.convert_to_tensor(leaf)) for _, leaf in named]
        targets = {at: leaf for at, (_, leaf) in enumerate(named) if tf.is_tensor(leaf) and leaf.dtype.is_floating}
        if gradients and targets:
            seeds = []
            for at, target in targets.items():
                # An argument that nobody gives stands for any upstream gradient.
                seeds.append(tf.raw_ops.Placeholder(dtype=target.dtype, shape=target.shape, name=f"{_UPSTREAM}_{at}"))
                placeholders[seeds[-1].op.name] = at, target.name
            found = tape.gradient([*targets.values()], [*sources, *variables], output_gradients=seeds)
            kinds = [*given.names(), *(f"variable {each.name}" for each in variables)]
            for kind, gradient in zip(kinds, found, strict=True):
                names.append(f"gradient for {kind}" + (NO_GRADIENT if gradient is None else ""))
                tensors.append(tf.constant(0.0) if gradient is None else tf.convert_to_tensor(gradient))
        return [tf.identity(tensor) for tensor in tensors]

    specs = []
    for number, at in enumerate(places):
        leaf = given.leaves[at]
        shape = [None, *leaf.shape[1:]] if number in any_rows else leaf.shape
        specs.append(tf.TensorSpec(shape, leaf.dtype))
    step.autograph_info__ = None  # type: ignore[attr-defined]
    concrete = tf.function(step).get_concrete_function(*specs)
    return Traced(concrete.graph, tuple(names), placeholders)


def names_of(structure: Any, prefix: str = "output") -> list[str]:
    """Names for the leaves of a nest in TensorFlow's order: ``output`` alone, ``output[1]``, ``output['mean']``."""
    if isinstance(structure, Mapping):
        return [name for key in sorted(structure) for name in names_of(structure[key], f"{prefix}[{key!r}]")]
    if isinstance(structure, (list, tuple)):
        fields = getattr(structure, "_fields", None)
        places = [f".{field}" for field in fields] if fields else [f"[{index}]" for index in range(len(structure))]
        pairs = zip(places, structure, strict=True)
        return [name for place, part in pairs for name in names_of(part, f"{prefix}{place}")]
    return [prefix]
