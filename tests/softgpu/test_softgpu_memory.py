"""Memory over time on a software GPU: TensorFlow's allocator, and what its bytes are. One process for all."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from softgpu_programs import start

from harness.softgpu.compiler import NAMES

_WITHOUT = not any(shutil.which(name) for name in NAMES)
pytestmark = pytest.mark.skipif(_WITHOUT, reason="needs a C++ compiler, to make software GPUs")


def profile_both() -> None:
    """A model whose activations are large, and one whose slots are, with what the allocator says of the peak."""
    tf = start("softgpu:2")
    import harness
    from harness.speed.memory.origins import Origins
    from harness.speed.timeline.profiling import profile_calls

    devices = harness.configure("softgpu:2")
    found = {}
    for name, rows, units in (("activations", 2048, 64), ("slots", 4, 512)):
        origins = Origins()
        with origins.noted(), tf.device("GPU:1"):
            step = _training(tf, rows, units)
        with tempfile.TemporaryDirectory() as folder:
            profile = profile_calls(step, devices=devices, calls=2, folder=Path(folder), origins=origins).profile
        [course] = [each for each in profile.memory if each.device.endswith("GPU:1")]
        tf.config.experimental.reset_memory_stats("GPU:1")
        step()
        found[name] = {
            "peak": course.peak_bytes,
            "allocator": tf.config.experimental.get_memory_info("GPU:1")["peak"],
            "kinds": course.bytes_by_kind(),
            "with line": course.share_with_line(),
            "lines": sorted({Path(each.line.partition(":")[0]).name for each in course.alive}),
            "layers": sorted({each.layer for each in course.alive if each.kind == "slots"}),
            "without": [(each.kind, each.layer, each.size_bytes) for each in course.alive if not each.line],
        }
    print(json.dumps(found))


def _training(tf: Any, rows: int, units: int) -> Any:
    layers = [tf.keras.layers.Dense(units, activation="tanh", name=f"layer_{number}") for number in range(3)]
    model = tf.keras.Sequential(layers)
    optimizer = tf.keras.optimizers.Adam()
    given = tf.random.normal((rows, units))

    @tf.function  # type: ignore[untyped-decorator]
    def step() -> Any:
        with tf.device("GPU:1"):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(given) ** 2)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

    return step


def test_the_peak_is_the_allocators_and_its_bytes_have_kinds_layers_and_lines(
    fresh_process: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    found = json.loads(fresh_process(profile_both).stdout.splitlines()[-1])
    for each in found.values():
        # Which ops run at once is the executor's choice.
        assert abs(each["peak"] / each["allocator"] - 1) < 0.15, each
        assert each["with line"] >= 0.95, each
        assert {"test_softgpu_memory.py"} <= set(each["lines"]) <= {"", "test_softgpu_memory.py"}
        assert [name for name in each["layers"] if name] == ["layer_0", "layer_1", "layer_2"]
    kinds = {name: each["kinds"] for name, each in found.items()}
    assert max(kinds["activations"], key=lambda kind: kinds["activations"][kind]) == "activations"
    assert kinds["activations"]["activations"] > 20 * kinds["activations"]["slots"]
    assert max(kinds["slots"], key=lambda kind: kinds["slots"][kind]) == "slots"
