"""``harness.distribute``: trainings under ``tf.distribute`` and DTensor, compared with the single-device run."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.distribute.equivalence import CollectiveCount, Equivalence
    from harness.distribute.placement_check import PlacementCheck
    from harness.distribute.run import equivalent
    from harness.distribute.strategies import STRATEGIES
    from harness.distribute.training import Training

_HOME = {
    "STRATEGIES": "harness.distribute.strategies",
    "CollectiveCount": "harness.distribute.equivalence",
    "Equivalence": "harness.distribute.equivalence",
    "PlacementCheck": "harness.distribute.placement_check",
    "Training": "harness.distribute.training",
    "equivalent": "harness.distribute.run",
}

__all__ = ["STRATEGIES", "CollectiveCount", "Equivalence", "PlacementCheck", "Training", "equivalent"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; public names: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
