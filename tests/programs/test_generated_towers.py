"""Generated towers by hand: ``verify`` passes within ``colocate_gradients``, and no value changes.

HYPOTHESIS_PROFILE=ci runs 15, =long 500.
"""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import tensorflow as tf
from generated_towers import GeneratedTowers
from tower_programs import elsewhere

from harness import Devices, Verdict, colocate_gradients, trace, verify

EXAMPLES = {"dev": 2, "ci": 15, "long": 500}[os.environ.get("HYPOTHESIS_PROFILE", "dev")]
#: Other examples for each number.
SEED = 1000 * int(os.environ.get("HARNESS_PROGRAMS_SEED", "0")) + 100


def test_generated_towers_have_their_backward_ops_in_place_and_the_same_gradients(devices: Devices) -> None:
    drawn: Counter[str] = Counter()
    to_mend = 0
    for seed in range(SEED, SEED + EXAMPLES):
        towers = GeneratedTowers(devices, seed)
        to_mend += bool(elsewhere(trace(towers.gradients)))
        expected = [value.numpy() for value in towers.gradients()]
        graph = tf.function(towers.gradients, autograph=False)
        with colocate_gradients():
            assert elsewhere(trace(towers.gradients)) == [], (seed, towers.drawn)
            assert elsewhere(trace(graph)) == [], (seed, towers.drawn)
            found = [value.numpy() for value in towers.gradients()]
            of_graph = [value.numpy() for value in graph()]
        # Where ops of a graph are put decides how Grappler adds up, so a function may round otherwise; and so may what
        # arrives at a gradient of tensors on two devices, which is copied: see docs/guides/colocate-gradients.md.
        rounds = {"second_order", "penalty"}.intersection(towers.drawn) or any(
            "tf.function" in each for each in towers.drawn
        )
        ulps = 64 if rounds else 0
        # Among all gradients: that of a bias before a normalisation is 0, and nothing but rounding error.
        largest = max(np.abs(wanted).max(initial=0.0) for wanted in expected)
        for value, from_graph, wanted in zip(found, of_graph, expected, strict=True):
            scale = np.finfo(wanted.dtype).eps * largest
            np.testing.assert_allclose(value, wanted, rtol=0, atol=ulps * scale, err_msg=f"{seed}: {towers.drawn}")
            np.testing.assert_allclose(from_graph, wanted, rtol=1e-3, atol=1e-5, err_msg=f"{seed}: {towers.drawn}")
        drawn.update(towers.drawn)
        tf.keras.backend.clear_session()
    assert to_mend == (EXAMPLES if len(devices) > 1 else 0)
    assert len(drawn) > min(15, 2 * EXAMPLES), drawn


def test_verify_passes_generated_towers_within_the_context(devices: Devices) -> None:
    drawn: Counter[str] = Counter()
    for seed in range(SEED, SEED + EXAMPLES):
        towers = GeneratedTowers(devices, seed)
        inputs = {"x": towers.x}
        pairs = [(towers.forward, towers.forward_alone, True), (towers.step, towers.step_alone, False)]
        with colocate_gradients():
            for program, alone, gradients in pairs:
                found = verify(program, alone, inputs, devices=devices, variables=towers.variables, gradients=gradients)
                assert found.verdict is Verdict.PASS, (seed, program.__name__, towers.drawn, str(found))
                assert found.exercised.gradient_ops > 0, (seed, towers.drawn)
        drawn.update(towers.drawn)
        tf.keras.backend.clear_session()
    assert len(drawn) > min(15, 2 * EXAMPLES), drawn
