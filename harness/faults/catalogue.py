"""All planted faults, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from harness.faults import (
    appearances,
    averages,
    backward,
    batches,
    causes,
    causes_of_updates,
    draws,
    gradients,
    layers,
    members,
    optimizers,
    orders,
    placement,
    remainder,
    rounding,
    rows,
    scopes,
    stages,
    state,
    strategy,
    threads,
    towers,
    training,
    trainings,
    updates,
    variables,
    wiring,
)
from harness.faults.fault import Case, Fault, Planted

_FAMILIES = (
    remainder,
    averages,
    rows,
    orders,
    batches,
    gradients,
    updates,
    draws,
    state,
    rounding,
    backward,
    appearances,
    placement,
    variables,
    scopes,
    threads,
    towers,
    training,
    stages,
    members,
    strategy,
    causes,
    causes_of_updates,
)

_PROGRAMS: tuple[Fault[Case], ...] = tuple(fault for family in _FAMILIES for fault in family.FAULTS)

#: Faults of programs that ``harness.verify`` judges, by name, in the order of the families.
FAULTS: Mapping[str, Fault[Case]] = MappingProxyType({fault.name: fault for fault in _PROGRAMS})
#: Every planted fault by name, with siblings that ``harness selftest`` alone runs.
CATALOGUE: Mapping[str, Fault[Planted]] = MappingProxyType(
    {**FAULTS, **{fault.name: fault for family in (layers, wiring, optimizers, trainings) for fault in family.FAULTS}}
)
