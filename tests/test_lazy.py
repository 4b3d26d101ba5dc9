"""TensorFlow is imported when it is used, and not before."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from harness.lazy import tf


def import_and_use() -> None:
    import sys

    from harness.faults import catalogue
    from harness.lazy import tf

    before = "tensorflow" in sys.modules
    print(len(catalogue.FAULTS) > 0, before, tf.add(1, 1).numpy())


def test_a_module_that_uses_tensorflow_loads_without_it(
    fresh_process: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    assert fresh_process(import_and_use, new_python=True).stdout.split() == ["True", "False", "2"]


def test_names_that_are_replaced_in_tensorflow_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = ModuleType("tensorflow")
    monkeypatch.setitem(sys.modules, "tensorflow", fake)
    with pytest.raises(AttributeError, match="matmul"):
        _ = tf.matmul
    for product in ("first", "second"):
        monkeypatch.setattr(fake, "matmul", product, raising=False)
        assert tf.matmul == product
