"""``ensemble``: generated models, and the training steps of several models, each on a device of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.checking.check import Check, CheckContext, Level
from harness.checks.search import Search
from harness.lazy import tf
from harness.records import CheckResult

if TYPE_CHECKING:
    from harness.checking.tally import Tally
    from harness.devices.device import Devices
    from harness.judgement.verification import Verification
    from harness.strategies import Models

#: How many sets of models are generated.
EXAMPLES = {Level.QUICK: 2, Level.STANDARD: 12, Level.DEEP: 48}
FEATURES, OUTPUTS, ROWS = 5, 3, 7
LEARNING_RATE = 0.05


def run(context: CheckContext) -> CheckResult:
    """Verify generated models, and a training step of each of as many models as there are devices."""
    from harness.strategies import models

    devices = context.devices
    search: Search[Models] = Search(
        lambda members: verify_models(members, devices), lambda members: not members.program.rows
    )
    strategy = models(max_models=len(devices))
    if search.run(strategy, EXAMPLES[context.level], context.seed):
        _train(devices, context.seed, search.tally)
        search.tally.require_devices(devices)
    proven = (
        f"{search.proven} generated sets of models and one training step of {len(devices):,} models match the "
        "single-device run; only arguments and results moved between devices"
    )
    return search.tally.result(
        search.summary(proven), "read the findings: each names the model, and what differs or moved"
    )


def verify_models(members: Models, devices: Devices) -> Verification:
    """``members`` as an ensemble on as many of ``devices`` as there are models, against one after the other."""
    from harness.judgement.verify import verify
    from harness.parallel.ensemble import ensemble

    own = devices[: len(members.seeds)]
    built = members.build(own)
    return verify(
        ensemble(built.models, own, each=members.each),
        built.one_by_one,
        members.inputs(),
        devices=own,
        variables=built.variables,
        gradients=members.program.differentiable,
    )


def _train(devices: Devices, seed: int, tally: Tally) -> None:
    from harness.judgement.verify import verify
    from harness.parallel.ensemble import ensemble

    random = np.random.default_rng(seed)
    made = [training_step(device.name, random) for device in devices]
    steps = [step for step, _ in made]
    inputs = {
        "x": random.standard_normal((ROWS, FEATURES)).astype(np.float32),
        "wanted": random.standard_normal((ROWS, OUTPUTS)).astype(np.float32),
    }
    tally.add(
        verify(
            ensemble(steps, devices),
            lambda x, wanted: [step(x=x, wanted=wanted) for step in steps],
            inputs,
            devices=devices,
            variables=[variable for _, variables in made for variable in variables],
        ),
        "a training step of each model",
    )


def training_step(device: str, random: np.random.Generator) -> tuple[Callable[..., Any], list[Any]]:
    """A step of SGD with momentum for a dense model on ``device``, and all its variables, slots too."""
    with tf.device(device):
        weights = tf.Variable((random.standard_normal((FEATURES, OUTPUTS)) / 2).astype(np.float32), name="weights")
        optimizer = tf.keras.optimizers.SGD(LEARNING_RATE, momentum=0.9)
        optimizer.build([weights])

    def step(x: Any, wanted: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(tf.matmul(x, weights)) - wanted))
        optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
        return loss

    return step, [weights, *(variable.value for variable in optimizer.variables[2:])]


CHECK = Check(
    id="ensemble",
    title="several models, each on a device of its own",
    proves="random sets of models and one training step of several models match running the models "
    "one by one; each model's ops, variables and slots are on its device; only arguments and results move",
    minimum_devices=2,
    typical_s=3,
    run=run,
)
