"""All planted faults, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from harness.faults import (
    appearances,
    averages,
    backward,
    members,
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
    variables,
)
from harness.faults.fault import Case, Fault

_FAMILIES = (
    remainder,
    averages,
    rows,
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
)

_ALL: tuple[Fault[Case], ...] = tuple(fault for family in _FAMILIES for fault in family.FAULTS)

#: Every planted fault by its name, in the order of the families.
FAULTS: Mapping[str, Fault[Case]] = MappingProxyType({fault.name: fault for fault in _ALL})
