"""``harness.distribute``: trainings under ``tf.distribute`` and DTensor, judged by the same training on one device."""

from __future__ import annotations

from harness.judgement.training.equivalence import CollectiveCount, Equivalence
from harness.parallel.distribute.strategies import STRATEGIES
from harness.parallel.distribute.training import Training
from harness.runner.equivalent import equivalent

__all__ = ["STRATEGIES", "CollectiveCount", "Equivalence", "Training", "equivalent"]
