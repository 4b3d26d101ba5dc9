"""Writes the script of each way. The worker process verifies and times what is printed."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent


@dataclass(frozen=True)
class Source:
    """Where ``build`` is: the name of the function in ``module``, or in a file ``script`` whose name is no module's.

    Both are empty for a function that no other file can import, such as one of a notebook.
    """

    function: str
    module: str = ""
    script: str = ""

    @classmethod
    def of_file(cls, path: Path, function: str) -> Source:
        """The function of a file."""
        return cls(function, path.stem) if path.stem.isidentifier() else cls(function, script=path.name)

    @property
    def name(self) -> str:
        """Its name in tables and errors."""
        place = self.script or (f"{self.module.replace('.', '/')}.py" if self.module else "")
        return f"{place}:{self.function}" if place else self.function

    def imported(self) -> tuple[str, str]:
        """The line that imports it, and the line that makes it ``build``; each may be empty."""
        first, _, rest = self.function.partition(".")
        if self.script:
            member = f".{rest}" if rest else ""
            return "import runpy\n", f'build = runpy.run_path("{self.script}")["{first}"]{member}\n'
        own = "" if self.function == "build" else f"build = {self.function}\n"
        if self.module:
            return f"from {self.module} import {first}", own
        if not all(part.isidentifier() for part in self.function.split(".")):
            own = "# build is the function that was given.\n"
        return "", own


@dataclass(frozen=True)
class Facts:
    """What a script says about the user's program.

    ``step``: ``training`` of a compiled Keras model, its ``forward`` pass, or a ``function`` of the user's. ``loss`` is
    the expression for the loss of each row, ``total`` that for the loss of the batch, ``added`` whether layers add
    losses of their own, ``scaled`` whether the optimizer scales the loss, ``joint`` whether it looks at all gradients
    before it changes a weight. ``with_variables``: ``build`` of a function returns its variables too. ``unbuilt``: the
    model makes its variables when it is first called. ``batch``: the rows that the user asks for, instead of those of
    the example.
    """

    source: Source
    spec: str
    step: str
    rows: int | None = None
    loss: str = ""
    total: str = "tf.reduce_mean"
    added: bool = False
    scaled: bool = False
    joint: bool = False
    with_variables: bool = False
    unbuilt: bool = False
    batch: int | None = None
    #: The devices of the spec that are used, such as ``[:2]``; empty for all of them.
    chosen: str = ""


@dataclass(frozen=True)
class Script:
    """A script in parts: imports, the devices, what is run in the worker process too, and the call of one step."""

    imports: str
    configure: str
    body: str
    call: str
    #: The cross-device ops of its strategy; empty without a strategy, or for TensorFlow's choice.
    reduction: str = ""

    @property
    def text(self) -> str:
        """The whole script."""
        return f"{self.head}{self.body}\n\n\nfor _ in range(3):\n    result = {self.call}\nprint(result)\n"

    @property
    def head(self) -> str:
        """What stands before the body."""
        return f"{self.imports}\n\n{self.configure}\n"


def lines_to_change(script: Script, baseline: Script) -> int:
    """How many lines are added, removed or changed between two scripts."""
    one, other = ([line for line in each.text.splitlines() if line.strip()] for each in (baseline, script))
    found = difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for kind, a, b, c, d in found if kind != "equal")


def on_one_device(facts: Facts, *, host: bool = False, parallel: bool = False) -> Script:
    """The script for one device: the first one, or the ``host``. ``parallel``: with ``make_parallel`` over all."""
    device = "devices.host" if host else "devices[0].name"
    split = "{name} = harness.make_parallel({name}, devices)" if parallel else ""
    if facts.step == "function":
        body = [_built(facts, "device", device), split.format(name="fn"), _FUNCTION_STEP]
        return _script(facts, body, "step(*inputs)")
    if facts.step == "forward":
        body = [_built(facts, "device", device), _FORWARD, split.format(name="forward"), _FORWARD_STEP]
        return _script(facts, body, "step(x)")
    losses = _LOSSES.format(loss=facts.loss)
    step = _training_step(facts, f"{facts.total}(losses(x, y))", "device", "model.trainable_variables")
    return _script(facts, [_built(facts, "device", device), losses, split.format(name="losses"), step], "step(x, y)")


def mirrored(facts: Facts, reduction: str = "") -> Script:
    """The script of a custom loop under ``MirroredStrategy``. ``reduction``: the class of its cross-device ops."""
    share = "tf.reduce_sum(losses(x, y))"
    if facts.total == "tf.reduce_mean":
        share = f"tf.reduce_mean(losses(x, y)) * len(x) / {facts.rows}"
    added = "loss += tf.add_n(model.losses) / strategy.num_replicas_in_sync" if facts.added else ""
    parts = [
        f"strategy = {strategy_of(reduction)}",
        _built(facts, "strategy", ""),
        f"dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch({facts.rows}){REPEATED}",
        "batches = iter(strategy.experimental_distribute_dataset(dataset))",
    ]
    replica = _gradients(facts, share, "model.trainable_variables", added)
    return _script(
        facts,
        [
            "\n".join(parts),
            _LOSSES.format(loss=facts.loss),
            f"\n\ndef replica_step(x, y):\n{indent(replica, '    ')}\n    return loss",
            _MIRRORED_STEP,
        ],
        "step(next(batches))",
        reduction,
    )


#: How a script makes its data; the worker process has it without TensorFlow's tuning, for which a deleted iterator may
#: wait a minute.
REPEATED = ".repeat()"


def strategy_of(reduction: str) -> str:
    """How a script makes its strategy: a process has one, so the worker process puts its own in this place."""
    ops = f", cross_device_ops=tf.distribute.{reduction}()" if reduction else ""
    return f"tf.distribute.MirroredStrategy(devices.names{ops})"


def pipeline(facts: Facts, cut: Sequence[int], microbatches: int, *, shared: bool = False) -> Script:
    """The script of a pipeline. ``shared``: its stages use the model's own weights, so that both can be compared.

    Each stage has an optimizer on its device, unless one has to look at all gradients.
    """
    training = facts.step == "training"
    staged = not shared and not facts.joint
    copies = "stages = parts" if shared else _COPIES
    variables = "variables = [each for stage in stages for each in stage.trainable_variables]"
    if staged:
        variables = _OPTIMIZERS
    elif not shared:
        variables += "\nmodel.optimizer.build(variables)"
    parts = [
        _built(facts, "host", "devices.host", build_optimizer=False),
        _PARTS.format(cut=", ".join(map(str, cut))),
        copies,
        variables if training else "",
        _PIPELINE.format(training=training, microbatches=microbatches),
    ]
    if training:
        value = f"{facts.total}({facts.loss}(y, predicted))"
        losses = "[each for stage in stages for each in stage.losses]"
        step = _training_step(facts, value, "", "variables", "predicted = forward(x=x)", losses, staged=staged)
        return _script(facts, ["\n".join(filter(None, parts)), step], "step(x, y)")
    step = "\n\n@tf.function\ndef step(x):\n    return forward(x=x)"
    return _script(facts, ["\n".join(filter(None, parts)), step], "step(x)")


_FUNCTION_STEP = "\n\n@tf.function\ndef step(*inputs):\n    with tf.device(device):\n        return fn(*inputs)"
_FORWARD = "\n\ndef forward(x):\n    return model(x, training=False)\n\n"
_FORWARD_STEP = "\n\n@tf.function\ndef step(x):\n    with tf.device(device):\n        return forward(x)"
_LOSSES = "\n\ndef losses(x, y):\n    return {loss}(y, model(x, training=True))\n\n"
_MIRRORED_STEP = """

@tf.function
def step(batch):
    return strategy.reduce("SUM", strategy.run(replica_step, args=batch), axis=None)"""
_PARTS = """\
cut = [{cut}]
parts = [
    keras.Model(model.layers[first].input, model.layers[last - 1].output)
    for first, last in zip(cut, cut[1:])
]"""
_COPIES = """\
stages = []
for part, device in zip(parts, devices):
    with tf.device(device.name):
        stages.append(keras.models.clone_model(part))
    stages[-1].set_weights(part.get_weights())"""
_OPTIMIZERS = """\
variables = [stage.trainable_variables for stage in stages]
optimizers = []
for weights, device in zip(variables, devices):
    with tf.device(device.name):
        optimizers.append(model.optimizer.from_config(model.optimizer.get_config()))
        optimizers[-1].build(weights)"""
_UPDATES = """\
for optimizer, weights, slopes, device in zip(optimizers, variables, gradients, devices):
    with tf.device(device.name):
        optimizer.apply(slopes, weights)"""
_PIPELINE = """\
calls = [lambda x, stage=stage: stage(x, training={training}) for stage in stages]
forward = harness.pipeline(calls, devices, microbatches={microbatches})"""


def _training_step(
    facts: Facts,
    value: str,
    device: str,
    variables: str,
    forward: str = "",
    losses: str = "model.losses",
    *,
    staged: bool = False,
) -> str:
    added = f"loss += tf.add_n({losses})" if facts.added else ""
    body = _gradients(facts, value, variables, added, forward, staged=staged)
    if device:
        body = f"with tf.device({device}):\n{indent(body, '    ')}"
    return f"\n\n@tf.function\ndef step(x, y):\n{indent(body, '    ')}\n    return loss"


def _gradients(
    facts: Facts, value: str, variables: str, added: str = "", forward: str = "", *, staged: bool = False
) -> str:
    loss = f"loss = {value}"
    if forward:
        loss = f"with tf.device(forward.devices[-1].name):\n    {loss}"
    scaled = "scaled = model.optimizer.scale_loss(loss)" if facts.scaled else ""
    taped = indent("\n".join(filter(None, (forward, loss, added, scaled))), "    ")
    return (
        f"with tf.GradientTape() as tape:\n{taped}\n"
        f"gradients = tape.gradient({'scaled' if facts.scaled else 'loss'}, {variables})\n"
        f"{_UPDATES if staged else f'model.optimizer.apply(gradients, {variables})'}"
    )


def _built(facts: Facts, scope: str, device: str, *, build_optimizer: bool = True) -> str:
    """The lines that call ``build``, in the scope of a device or a strategy."""
    if facts.step == "function":
        names, arrays = ("fn, inputs, variables" if facts.with_variables else "fn, inputs"), "inputs"
    else:
        names, arrays = "model, x, y", "x, y" if facts.step == "training" else "x"
    lines = [f"{names} = build()"]
    if facts.batch is not None:
        resized = f"lambda each: np.resize(each, ({facts.batch}, *each.shape[1:]))"
        given = f"({arrays})" if ", " in arrays else arrays
        lines.append(f"{arrays} = tf.nest.map_structure({resized}, {given})")
    if facts.unbuilt:
        lines.append("model(x)")
    if facts.step == "training" and build_optimizer:
        lines.append("model.optimizer.build(model.trainable_variables)")
    head = {"strategy": "with strategy.scope():", "host": "with tf.device(devices.host):"}.get(
        scope, f"device = {device}\nwith tf.device(device):"
    )
    return f"{head}\n{indent(chr(10).join(lines), '    ')}"


def _script(facts: Facts, body: Sequence[str], call: str, reduction: str = "") -> Script:
    text = "\n".join(filter(None, body)).rstrip()
    while "\n\n\n\n" in text:
        text = text.replace("\n\n\n\n", "\n\n\n")
    libraries = ["import harness"]
    libraries += ["import keras"] if "keras." in text else []
    libraries += ["import numpy as np"] if "np." in text else []
    libraries += ["import tensorflow as tf"]
    imported, own = facts.source.imported()
    if facts.source.script:
        libraries.insert(0, imported)
    elif imported:
        libraries.append(imported)
    configure = f'devices = harness.configure("{facts.spec}"){facts.chosen}\n{own}'.rstrip()
    return Script("\n".join(libraries), configure, text, call, reduction)
