"""Builds a TensorFlow function, and its variables, from a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.lazy import tf
from harness.strategies.definition import Definition
from harness.strategies.parts import leaf_at, pack


@dataclass(frozen=True)
class Built:
    """A program that can run.

    ``fn(**inputs)`` takes arrays or tensors and returns tensors, in the program's nests; ``variables`` are its
    ``tf.Variable`` objects in the program's order; ``signature`` maps each argument to its ``tf.TensorSpec`` (or nest
    of them), with an unknown batch size.
    """

    program: Definition
    fn: Callable[..., Any]
    variables: tuple[Any, ...]
    signature: dict[str, Any]


def make_variables(program: Definition, device_of: Callable[[str], str]) -> dict[str, Any]:
    """Make the variables by name, each on the device that ``device_of`` returns for its name."""
    made = {}
    for variable in program.variables:
        with tf.device(device_of(variable.name)):
            made[variable.name] = tf.Variable(
                variable.array(program.seed, program.dtype, exact=program.exact),
                name=variable.name,
                trainable=program.differentiable,
            )
    return made


def build(program: Definition, host: str, variables: dict[str, Any] | None = None) -> Built:
    """Build the function, and the variables on the device ``host`` unless they are given."""
    variables = make_variables(program, lambda _: host) if variables is None else variables

    def fn(**inputs: Any) -> Any:
        values: dict[str, Any] = dict(variables)
        for argument in program.arguments:
            tensor = tf.convert_to_tensor(leaf_at(inputs, argument.name))
            values[argument.name] = tensor if argument.broadcast else _move_axis(tensor, program.axis, 0)
        for index, step in enumerate(program.steps):
            values[f"v{index}"] = unconverted(step.apply)(values)
        return unconverted(pack)((path, _move_axis(values[name], 0, program.axis)) for path, name in program.outputs)

    signature = _signature(program)
    run = _traced(fn, signature) if program.traced else fn
    return Built(program, run, tuple(variables.values()), signature)


def unconverted(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` as it is in a graph.

    AutoGraph converts the program, as it does a user's function. To convert each kind of step too takes seconds.
    """
    kept: Callable[..., Any] = tf.autograph.experimental.do_not_convert(function)
    return kept


def _traced(fn: Callable[..., Any], signature: dict[str, Any]) -> Callable[..., Any]:
    # One signature, so that one graph serves every batch size.
    graph = tf.function(lambda inputs: fn(**inputs), input_signature=[signature], autograph=False)

    def traced(**inputs: Any) -> Any:
        return graph(inputs)

    return traced


def _move_axis(tensor: Any, source: int, target: int) -> Any:
    order = list(range(len(tensor.shape)))
    order.insert(target % len(order), order.pop(source))
    return tensor if source == target else tf.transpose(tensor, order)


def _signature(program: Definition) -> dict[str, Any]:
    specs = {}
    for argument in program.arguments:
        shape: list[int | None] = list(argument.shape)
        if not argument.broadcast:
            shape.insert(program.axis % (len(shape) + 1), None)
        specs[argument.name] = tf.TensorSpec(shape, tf.as_dtype(argument.dtype or program.dtype), name=argument.name)
    return program.pack_arguments(specs)
