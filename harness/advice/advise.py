"""Tries the ways to run a program, in this process: for notebooks and scripts."""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.advice.built import ACCEPTED, Built, built_by, load
from harness.advice.cards import Cards
from harness.advice.choice import with_choice
from harness.advice.prediction import PredictedTrial, software_gpus
from harness.advice.program import Example, example_of, facts_of
from harness.advice.record import Advice
from harness.advice.script import Source
from harness.advice.trial import Trial
from harness.devices.device import Devices
from harness.devices.runtime import configure, current
from harness.errors import InvalidTarget, UsageError
from harness.extras import require
from harness.lazy import tf
from harness.runner.target import Target
from harness.speed.memory.sizes import parse_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.devices.device import Device

#: Seconds for timing each way.
BUDGET_S = 8.0


def trial_of(
    build: Callable[[], Built],
    source: Source,
    devices: Devices,
    batch: int | None,
    budget_s: float,
    say: Callable[[str], None],
    cards: Cards | None = None,
) -> Trial:
    """Build the program once, to try it. What ``build`` raises passes through."""

    def seeded() -> Example:
        tf.keras.utils.set_random_seed(0)
        return example_of(build())

    spec = devices.spec if cards is None else f"gpu:{len(devices)}"
    facts = facts_of(seeded(), source, spec, batch)
    if cards is not None:
        return PredictedTrial(seeded, facts, devices, budget_s, say, cards=cards)
    return Trial(seeded, replace(facts, chosen=_chosen(devices)), devices, budget_s, say)


def advise(
    build: Callable[[], object] | str,
    *,
    devices: Sequence[Device] | str | None = None,
    cards: str | None = None,
    memory_per_device: int | str | None = None,
    batch: int | None = None,
    budget_s: float = BUDGET_S,
    progress: Callable[[str], object] | None = None,
) -> Advice:
    """Try the ways to run a program on several devices, and recommend one; ``harness advise`` as a function.

    Each way is proved or verified against one device before it is timed; a wrong one is reported and left out. The
    right ones are timed against one device in turn. A way is recommended only if the whole interval of its speedup is
    above 1.

    Args:
        build: a function without arguments, or its name as ``"FILE.py:FUNCTION"``. It returns ``(model, x, y)``: a
            Keras model and one batch; or ``(fn, inputs)`` or ``(fn, inputs, variables)``: a function, and a tuple of
            arrays, whose first axis is the batch. A step of a compiled model is a training step, of another one a
            forward pass. It is called again for each way, so it must make its model and its variables itself.
        devices: what ``harness.configure`` returned, a slice of it, or a spec such as ``"gpu:2"``. ``None``: those that
            are configured, or else those of ``"auto"``.
        cards: such as ``"h100-sxm:8"``: cards that need not be there. The ways are verified on as many software GPUs
            (which are configured instead of ``devices``), or on fewer where this machine cannot hold as many, and the
            times are predicted from the profile of the card, with wide intervals.
        memory_per_device: the memory of a device, such as ``"80GB"`` or bytes: no way is recommended whose peak on a
            GPU or software GPU may exceed it. Of other devices the peaks are not known.
        batch: repeat or cut the example batch to so many rows.
        budget_s: the seconds for timing each way.
        progress: is called with a line whenever something begins or ends, such as ``print``.

    Returns:
        The record: the ways, each with its judgement, time, speedup and script; the recommendation; ``.script`` is that
        of the recommended way. A notebook shows it as a table. An interrupt (^C) ends the trial: the ways that are
        known by then are returned, with ``complete=False``.

    The random seeds of Python, NumPy and TensorFlow are set to 0 before each call of ``build``, and those of Python and
    NumPy restored at the end; the names of Keras layers begin anew. A process has one ``MirroredStrategy``: advise in a
    process in which no strategy of your own has run a step.

    Raises:
        InvalidTarget: ``build`` is no such function, or returned something else. What it raises itself passes through.
        UsageError: another argument is invalid, such as an unknown card.
        DevicesUnavailable, DevicesAlreadyConfigured: see ``harness.configure``.

    Examples:
        >>> def build():
        ...     model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(4)])
        ...     model.compile(optimizer="sgd", loss="mse")
        ...     return model, np.ones((64, 16), "float32"), np.ones((64, 4), "float32")
        >>> advice = harness.advise(build, devices="cpu:2")
        >>> print(advice.recommendation)
        >>> print(advice.script)
    """
    require("scipy")
    if batch is not None and (not isinstance(batch, int) or batch < 1):
        raise UsageError(f"batch={batch!r}; accepted: None, or a whole number of 1 or more")
    if not budget_s > 0 or budget_s == float("inf"):
        raise UsageError(f"budget_s={budget_s!r}; accepted: a number of seconds above 0")
    source, made = _source_of(build)
    most = None if memory_per_device is None else parse_size(memory_per_device)
    named = None if cards is None else Cards.parse(cards, "cards=")
    if named is not None and devices is not None:
        raise UsageError(f"devices={devices!r} cannot be combined with cards={cards!r}; give one of them")
    known = _devices_of(devices) if named is None else software_gpus(named)
    began = time.monotonic()

    def say(text: str) -> None:
        if progress is not None:
            progress(f"[{time.monotonic() - began:.0f} s] {text}")

    with _random_state():
        trial = trial_of(made, source, known, batch, budget_s, say, named)
        trial.memory_bytes = most
        advice = Advice(source.name, **trial.about, ways=(), memory_bytes=most, complete=False)
        try:
            advice = replace(advice, ways=(trial.start(),), **trial.about)
            for way in trial.ways():
                advice = replace(advice, ways=(*advice.ways, way))
                say(way.sentence)
            advice = replace(advice, complete=True)
        except KeyboardInterrupt:
            if not advice.ways:
                raise
    return with_choice(replace(advice, elapsed_s=time.monotonic() - began))


def _source_of(build: Callable[[], object] | str) -> tuple[Source, Callable[[], Built]]:
    """Where the function is, and the function that calls it."""
    if isinstance(build, str):
        target = Target.parse(build, ACCEPTED)
        return Source.of_file(target.path, target.function), lambda: load(target)
    if not callable(build):
        raise InvalidTarget(repr(build), f"is of type {type(build).__name__}", ACCEPTED)
    function = str(getattr(build, "__qualname__", f"<{type(build).__name__}>"))
    module = str(getattr(build, "__module__", ""))
    source = Source(function.rpartition(".")[2] if "<" in function else function)
    if "<" not in function and module != "__main__":
        source = Source(function, module)
    elif "<" not in function and (path := Path(_file_of(build))).is_file():  # that of a notebook's cell does not exist
        source = Source.of_file(path, function)
    return source, lambda: built_by(build, source.name)


def _file_of(build: Any) -> str:
    try:
        return inspect.getfile(build)
    except (OSError, TypeError):
        return ""


def _devices_of(devices: Sequence[Device] | str | None) -> Devices:
    if isinstance(devices, str):
        return configure(devices)
    if devices is None:
        return current() or configure("auto")
    return Devices.given(devices, UsageError)


def _chosen(devices: Devices) -> str:
    """The slice of the configured devices, as the script writes it; empty for all of them."""
    every = current()
    if every is None or devices == every:
        return ""
    places = [every.names.index(name) for name in devices.names if name in every.names]
    if len(places) != len(devices) or places != list(range(places[0], places[0] + len(places))):
        raise UsageError(f"devices={devices!r}; accepted: what harness.configure returned, or a slice of it")
    end = places[-1] + 1
    return f"[{places[0] or ''}:{'' if end == len(every) else end}]"


@contextmanager
def _random_state() -> Iterator[None]:
    """Give Python's and NumPy's generators back the state that they had."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the state that users' code has
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
