"""``pipeline``: generated programs cut into stages, and a training step of a Keras model whose layers are stages."""

from __future__ import annotations

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
    from harness.strategies import StagedProgram

#: How many staged programs are generated.
EXAMPLES = {Level.QUICK: 2, Level.STANDARD: 12, Level.DEEP: 48}
#: Units of a layer and rows of the batch: the rows are no multiple of the micro-batches.
UNITS, ROWS, MICROBATCHES = 12, 14, 4
LEARNING_RATE, MOMENTUM = 0.1, 0.9


def run(context: CheckContext) -> CheckResult:
    """Verify generated staged programs, and a training step with an optimizer that has slots."""
    from harness.strategies import staged_programs

    devices = context.devices
    search: Search[StagedProgram] = Search(
        lambda staged: verify_staged(staged, devices), lambda staged: not staged.program.rows
    )
    strategy = staged_programs(max_stages=len(devices), min_rows=1)
    if search.run(strategy, EXAMPLES[context.level], context.seed):
        _train(devices, context.seed, search.tally)
        search.tally.require_devices(devices)
    proven = (
        f"{search.proven} generated programs in stages, and a training step of {len(devices)} Keras layers in "
        f"{MICROBATCHES} micro-batches, match the single-device run; activations moved only between neighbours"
    )
    return search.tally.result(
        search.summary(proven), "read the findings: each names what differs, or what moved from where to where"
    )


def verify_staged(staged: StagedProgram, devices: Devices) -> Verification:
    """``staged`` as a pipeline on as many of ``devices`` as it has stages, against the same program unsplit."""
    from harness.judgement.verify import verify
    from harness.parallel.model import pipeline

    own = devices[: len(staged.bounds)]
    built = staged.build(own)
    program = staged.program
    return verify(
        pipeline(built.stages, own, microbatches=staged.microbatches, broadcast=program.broadcast),
        built.unsplit,
        program.inputs(),
        devices=own,
        variables=built.variables,
        gradients=program.differentiable,
    )


def _train(devices: Devices, seed: int, tally: Tally) -> None:
    """One step of SGD with momentum: values, where its ops ran, and where weights and slots are."""
    from harness.judgement.verify import verify
    from harness.parallel.model import pipeline

    random = np.random.default_rng(seed)
    layers = [tf.keras.layers.Dense(UNITS, activation="tanh") for _ in devices]
    pipe = pipeline(layers, devices, microbatches=MICROBATCHES)
    x = random.standard_normal((ROWS, UNITS)).astype(np.float32)
    wanted = random.standard_normal((ROWS, UNITS)).astype(np.float32)
    pipe(inputs=x)  # makes the weights, each layer's on its device
    weights = [[variable.value for variable in layer.trainable_variables] for layer in layers]
    variables = [variable for own in weights for variable in own]
    for variable in variables:
        drawn = random.standard_normal(variable.shape) / np.sqrt(UNITS)
        variable.assign(drawn.astype(np.float32))
    # An optimizer's arithmetic runs where it is applied, and its learning rate is a variable too: one for each stage.
    optimizers = []
    for device, own in zip(devices, weights, strict=True):
        with tf.device(device.name):
            optimizers.append(tf.keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM))
            optimizers[-1].build(own)

    def step(forward: Any, last: str, x: Any, wanted: Any) -> Any:
        with tf.GradientTape() as tape:
            made = forward(inputs=x)
            with tf.device(last):
                loss = tf.reduce_sum(tf.square(made - wanted)) / ROWS
        with tf.device(last):
            gradients = tape.gradient(loss, weights)
        for device, optimizer, own, theirs in zip(devices, optimizers, weights, gradients, strict=True):
            with tf.device(device.name):
                optimizer.apply_gradients(zip(theirs, own, strict=True))
        return loss

    def unsplit(inputs: Any) -> Any:
        for layer in layers:
            inputs = layer(inputs)
        return inputs

    verification = verify(
        lambda x, wanted: step(pipe, devices[-1].name, x, wanted),
        lambda x, wanted: step(unsplit, devices[0].name, x, wanted),
        {"x": x, "wanted": wanted},
        devices=devices,
        variables=variables,
        pattern="stages",
    )
    tally.add(verification, "a training step")
    for mode, trace in verification.traces.items():
        sizes = [transfer.size_bytes for transfer in trace.transfers]
        tally.measured[f"transfers_of_a_training_step_{mode}"] = len(sizes)
        if None not in sizes:
            tally.measured[f"transferred_bytes_of_a_training_step_{mode}"] = sum(filter(None, sizes))


CHECK = Check(
    id="pipeline",
    title="a model in stages, each on a device of its own",
    proves="random programs cut into stages, with micro-batches, and a training step of a Keras model "
    "match the single-device run; a stage's weights, slots and ops are on its device, and activations move only "
    "between neighbours",
    minimum_devices=2,
    typical_s=4,
    run=run,
)
