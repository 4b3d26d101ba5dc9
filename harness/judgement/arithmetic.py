"""What placement is judged by: the ops that compute, as evidence tells them from those that only move tensors."""

from __future__ import annotations

from harness.evidence.arithmetic import (
    CALLS as CALLS,
    JOINS as JOINS,
    MOVEMENT as MOVEMENT,
    PYTHON as PYTHON,
    SPLITS as SPLITS,
    TABLES as TABLES,
    computes as computes,
    floats as floats,
    gradients_elsewhere as gradients_elsewhere,
    moved as moved,
    on_device as on_device,
    proven as proven,
    sources_of as sources_of,
)
from harness.evidence.roles import LOOKUPS as LOOKUPS
