"""Judges where an optimizer keeps its slots (momenta and the like): they belong beside their variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.devices.name import DeviceName
from harness.judgement.strays import named, stray
from harness.parallel.closure import carried, keras_classes
from harness.records import Finding


def judge_slots(program: Callable[..., Any], mode: str) -> list[Finding]:
    """A finding of the kind ``variable-placement`` for the slots of the Keras optimizers that ``program`` carries.

    Slots created lazily, in ``fit`` or in a first traced ``apply``, are all on the default device (FAULTS P10).
    """
    kinds = keras_classes("optimizers.Optimizer")
    away = [
        (f"slot {slot.path} of {optimizer.name}", home, place)
        for optimizer in carried(program, lambda item: isinstance(item, kinds))
        for variable, slot in slots_of(optimizer)
        if (home := device_of(variable)) is not None and (place := device_of(slot)) is not None and home != place
    ]
    if not away:
        return []
    return [
        stray(
            "variable-placement",
            "TensorFlow creates slots on the default device in the first step; call optimizer.build(variables) in "
            "eager code before that step",
            away[0][0] + (f" and {len(away) - 1} more" if len(away) > 1 else ""),
            mode,
            devices=[place for _, _, place in away],
            expected=f"{named(home for _, home, _ in away)}, where their variables are",
            found=named(place for _, _, place in away),
        )
    ]


def slots_of(optimizer: Any) -> list[tuple[Any, Any]]:
    """Pairs of a variable and a slot that a built Keras 3 optimizer keeps for it; empty where it is not built.

    Keras names a slot after its variable: ``optimizer/PATH_WITH_UNDERSCORES_SLOT``.
    """
    if not getattr(optimizer, "built", False):
        return []
    trained = list(getattr(optimizer, "_trainable_variables", ()))
    pairs = []
    for slot in optimizer.variables:
        name = str(slot.path).split("/", 1)[-1]
        owners = [
            variable
            for variable in trained
            if name.startswith(f"{_name_of(variable)}_") and tuple(variable.shape) == tuple(slot.shape)
        ]
        # The longest name, where one is the beginning of another: dense and dense_1. Where several variables have one
        # name, it is not known whose slot it is.
        longest = max((len(_name_of(variable)) for variable in owners), default=0)
        owners = [variable for variable in owners if len(_name_of(variable)) == longest]
        if len(owners) == 1:
            pairs.append((owners[0], slot))
    return pairs


def _name_of(variable: Any) -> str:
    """As Keras writes it in the names of slots: the path of its own variables, the name of TensorFlow's."""
    return str(getattr(variable, "path", variable.name)).replace("/", "_").replace(":", "_")


def device_of(variable: Any) -> DeviceName | None:
    """The device that holds a TensorFlow or Keras variable; ``None`` where there is no single one."""
    # The value of a Keras variable is a TensorFlow one, which has a method of that name.
    held = variable if callable(getattr(variable, "value", None)) else getattr(variable, "value", variable)
    device = getattr(held, "device", "")
    return DeviceName.parse(device) if isinstance(device, str) and device else None
