"""Each step of the table has a kernel and a gradient on a GPU, for each float type, or is left out for want of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from harness.softgpu.compiler import NAMES


def run_each_step_on_a_gpu() -> None:
    """Run each step alone on a software GPU, in eager code and in a graph, with soft placement off."""
    import tensorflow as tf
    from test_support_table import ARGUMENTS, VARIABLES, steps_for

    import harness
    from harness.strategies import FLOATS, Activation, Program, Step, recipes

    harness.configure("softgpu:1")
    tf.config.set_soft_device_placement(False)

    def runs(step: Step, dtype: str, graph: bool) -> bool:
        program = Program(ARGUMENTS, VARIABLES, (step,), (("o0", "v0"),), dtype=dtype, rows=6, exact=False)

        def forward_and_backward() -> object:
            with tf.device("GPU:0"), tf.GradientTape(persistent=True) as tape:
                inputs = tf.nest.map_structure(tf.constant, program.inputs())
                sources = [inputs["x"], inputs["z"], *built.variables]
                tape.watch(sources[:2])
                results = built.fn(**inputs)
            with tf.device("GPU:0"):
                return [tape.gradient(result, sources) for result in results.values() if result.dtype.is_floating]

        built = program.build()
        try:
            (tf.function(forward_and_backward, autograph=False) if graph else forward_and_backward)()
        except tf.errors.InvalidArgumentError as error:
            if "device specification" not in str(error):
                raise
            return False
        return True

    for graph in (False, True):
        for dtype in FLOATS:
            missing = [step for step in steps_for(dtype, exact=False) if not runs(step, dtype, graph)]
            assert missing == [], (dtype, graph, missing)
        for fn in recipes.NO_BFLOAT16_ON_GPUS:
            assert not runs(Activation("x", fn), "bfloat16", graph)


@pytest.mark.long
@pytest.mark.skipif(not any(shutil.which(name) for name in NAMES), reason="needs a C++ compiler, to make software GPUs")
def test_each_step_runs_on_a_gpu_or_is_left_out(fresh_process: Callable[..., object]) -> None:
    fresh_process(run_each_step_on_a_gpu)
