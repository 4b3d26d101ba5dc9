"""Tries the ways to run a program: each is verified against one device, and then timed against one device."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any, ClassVar

import numpy as np

from harness.advice.choice import judge, with_fit
from harness.advice.layers import cut_by_time
from harness.advice.program import STEPS, Example, coarsest_of, draws, turn_off_noise, without_noise
from harness.advice.record import BASELINE, CPU, Way
from harness.advice.running import Running, by_name, copied_by, peaks_of, start
from harness.advice.script import Facts, Script, lines_to_change, mirrored, on_one_device, pipeline
from harness.devices.device import Devices
from harness.distribute.one_process import examine
from harness.distribute.single_device import Experiment
from harness.distribute.training import Data, Training
from harness.errors import OutputsDiffer
from harness.judgement.state import distinct, plain
from harness.judgement.verification import Verification
from harness.judgement.verify import verify
from harness.lazy import tf
from harness.plural import plural
from harness.runner.users_error import message_lines, one_line
from harness.speed.estimate import paired_speedup
from harness.speed.label import kind_of, speed_label
from harness.speed.measure import measure_pairs
from harness.speed.record import DeviceMemory
from harness.speed.scaling.processes import time_calls

MIRRORED, PIPELINE = "MirroredStrategy", "pipeline"
#: The relative half-width of a speedup at which timing ends early, and the confidence of its interval.
_HALF_WIDTH, _CONFIDENCE = 0.02, 0.95
#: Seconds for timing a layer.
_LAYER_S = 0.05
#: The numbers of micro-batches of a pipeline: the first one is tried first.
_MICROBATCHES = (4, 2, 8)
#: Variants of a way are tried if the upper end of its speedup, times this, reaches the best way, and until so many
#: seconds have passed.
_REACH, _VARIANTS_S = 1.5, 110.0
#: A way that surely is not the best one after this share of its time is timed no longer.
_FIRST = 0.25
#: Steps under a strategy that are compared with one device.
_STEPS = 2
#: Accepted difference between the steps of all weights, relative to their size; more where layers compute coarsely.
_STEP_ERROR = 0.02
#: The same of rounding: some hundred units in the last place of float32.
_ROUNDING = 3e-5


@dataclass
class Trial:
    """The program on one device, with which each way is compared.

    ``build`` calls the user's function, each time with the same random seed. ``say`` shows the progress, ``budget_s``
    are the seconds for timing each way.
    """

    build: Callable[[], Example]
    facts: Facts
    devices: Devices
    budget_s: float
    say: Callable[[str], None]
    about_layers: ClassVar[str] = "timing the layers"
    #: The layers that draw random numbers in training, which are turned off to compare; and what else draws some.
    noisy: tuple[str, ...] = ()
    drawing: str = ""
    one: Running = field(init=False)
    _initial: list[tuple[Any, Any]] = field(init=False)
    #: The memory of a device, where the user gives it.
    memory_bytes: int | None = None
    #: Where a pipeline is cut, once it is known; when the trial began; and the surest speedup of a right way that fits.
    _cut: tuple[int, ...] = ()
    _began: float = field(default_factory=time.monotonic)
    _best: float = 1.0
    #: How far outputs may differ, relative to their size, when a way is timed.
    _tolerance: float = field(init=False)
    #: Whether one device is too small, so that only what surely fits counts.
    _too_large: bool = False

    @property
    def about(self) -> dict[str, Any]:
        """The fields of the record that are not of one way."""
        label = speed_label(self.devices)
        known = {"label": label.text, "gates": label.gates, "kind": kind_of(self.devices)}
        spec = f"{self.devices.spec}{self.facts.chosen}"
        return {"spec": spec, **known, "step": STEPS[self.facts.step], "rows": self.facts.rows}

    def start(self) -> Way:
        """Run and time the program on one device."""
        self.say(f"{BASELINE}: building and running")

        def build() -> tuple[Any, ...]:
            self.example = self.build()
            return self.example.parts

        def first_steps() -> Running:
            self.one = start(BASELINE, on_one_device(self.facts), self.devices, build)
            model = self.example.model
            self._weights = None if model is None else model.get_weights()
            self._initial = [(variable, variable.numpy()) for variable in self._variables()]
            return self.one.warmed_up()

        memory = peaks_of(first_steps, self.devices)
        with without_noise(self.example.model) as self.noisy:
            self.drawing = draws(self.one.step)
        self.reset()
        self._tolerance = float(np.sqrt(coarsest_of(self.one.names["step"], self._arguments())))
        where = (self.devices[0].parsed.short,)
        way = Way(BASELINE, where, "baseline", memory=memory, lines=0, code=self.one.script.text)
        way = self._alone(way)
        self.reset()
        self._too_large = with_fit(way, self.memory_bytes).fits is False
        if self._too_large:
            self._best = 0.0
        return way

    def _alone(self, way: Way) -> Way:
        """Time one device."""
        return replace(way, time_ns=float(median(time_calls(self.one.step, budget_s=self.budget_s / 4))))

    def reset(self) -> None:
        """Give the variables of the program on one device the values that they started with."""
        for variable, value in self._initial:
            variable.assign(value)

    def ways(self) -> Iterator[Way]:
        """Try the ways that apply, one after the other."""
        if self.devices[0].parsed.kind != "CPU":
            yield self._tried(CPU, lambda way: self._verified(way, on_one_device(self.facts, host=True)))
        if len(self.devices) == 1:
            return
        yield self._tried("make_parallel", lambda way: self._verified(way, on_one_device(self.facts, parallel=True)))
        if self.facts.step == "training":
            kinds = {MIRRORED: ""} | {f"{MIRRORED} with {each}": each for each in self._reductions()}
            yield from self._variants({name: partial(self._verified_mirrored, each) for name, each in kinds.items()})
        if self.facts.step != "function":
            rows = self.facts.rows or 1
            parts = dict.fromkeys(min(each, rows) for each in _MICROBATCHES)
            yield from self._variants(
                {
                    f"{PIPELINE} with {plural(each, 'micro-batch', 'micro-batches')}": partial(
                        self._verified_pipeline, each
                    )
                    for each in parts
                }
            )

    def _reductions(self) -> list[str]:
        """The cross-device ops of ``MirroredStrategy`` that differ from its own choice on these devices.

        Between CPUs, all that copy are ``ReductionToOneDevice``. NCCL is NVIDIA's library for its cards.
        """
        if self.devices[0].parsed.kind != "GPU":
            return ["ReductionToOneDevice"]
        nccl = ["NcclAllReduce"] if self.devices[0].kind == "gpu" else []
        return ["ReductionToOneDevice", "HierarchicalCopyAllReduce", *nccl]

    def _variants(self, ways: Mapping[str, Callable[[Way], tuple[Way, Script]]]) -> Iterator[Way]:
        """Try the first of several similar ways, and the others if it is right and not far from the best one."""
        (name, verified), *others = ways.items()
        first = self._tried(name, verified)
        if not others or not first.is_right or first.speedup is None:
            yield first
            return
        if first.speedup.upper * _REACH < self._best:
            left = ", ".join(other.partition(" with ")[2] for other, _ in others)
            yield replace(first, reason=f"{first.reason}; far from the best way, so these were not tried: {left}")
            return
        yield first
        for other, verified in others:
            if time.monotonic() - self._began > _VARIANTS_S:
                yield Way(other, first.devices, "not comparable", "not tried, as the trial has taken long")
            else:
                yield self._tried(other, verified)

    def _tried(self, name: str, verified: Callable[[Way], tuple[Way, Script]]) -> Way:
        """Verify a way, and time it if it is right. What it raises is its result."""
        where = ("CPU:0",) if name == CPU else tuple(each.parsed.short for each in self.devices)
        way = Way(name, where, "not comparable")
        if self.drawing:
            return replace(way, reason=f"the program draws other random numbers in each run: {self.drawing}")
        parts = 1 if name == CPU else 2 if name.startswith(PIPELINE) else len(self.devices)
        if self.facts.rows is not None and self.facts.rows < parts:
            return replace(
                way, reason=f"a batch of {plural(self.facts.rows, 'row')} cannot be split into {plural(parts, 'part')}"
            )
        try:
            self.say(f"{name}: verifying against one device")
            way, script = verified(way)
            if way.judgement == "wrong" and self.facts.step == "training":
                return self._weighed(way, script)
            if not way.is_right:
                return way
            return self._noted(self._timed(way, script))
        except OutputsDiffer as error:
            # The way is right; what is timed is built anew, perhaps with other random numbers.
            return replace(way, judgement="not comparable", reason=f"{way.reason}; but when it was timed: {error}")
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything
            return replace(way, judgement="not comparable", reason=f"raises {one_line(error)}")
        finally:
            self.reset()
            gc.collect()

    def _verified(
        self, way: Way, script: Script, shared: Script | None = None, devices: Devices | None = None
    ) -> tuple[Way, Script]:
        """Compare a script with the one for one device, for the same weights: by a proof, and on the example.

        ``shared`` is the script to compare, where that with weights of its own is another one.
        """
        way = replace(way, lines=lines_to_change(script, self.one.script), code=script.text)
        devices = self.devices if devices is None else devices
        with without_noise(self.example.model):
            one, other = (
                start(name, each, self.devices, lambda: self.example.parts)
                for name, each in ((BASELINE, self.one.script), (way.name, shared or script))
            )
            verification = verify(
                by_name(other.names["step"]),
                by_name(one.names["step"]),
                {f"input_{index}": each for index, each in enumerate(self._arguments())},
                devices=devices[:1] if way.name == CPU else devices,
                variables=[variable for variable, _ in self._initial],
                modes=("graph",),
                prove=True,
            )
        self.reset()
        return self._judged(way, verification), script

    def _judged(self, way: Way, verification: Verification) -> Way:
        judgement, reason = judge(verification)
        off = f", with {', '.join(self.noisy)} turned off" if self.noisy else ""
        return replace(way, judgement=judgement, reason=f"{reason}{off if judgement in ('proved', 'verified') else ''}")

    def _verified_mirrored(self, reduction: str, way: Way) -> tuple[Way, Script]:
        script = mirrored(self.facts, reduction)
        way = replace(way, lines=lines_to_change(script, self.one.script), code=script.text)

        def training() -> Training:
            model = self._fresh(noise=False)[0]
            optimizer = model.optimizer
            return Training(model, model.loss, type(optimizer).from_config(optimizer.get_config()))

        if not all(each.parsed.in_this_process for each in self.devices):
            return replace(way, reason="MirroredStrategy needs devices of one process"), script
        x, y = self._arguments()
        if len(tf.nest.flatten((x, y))) > 2:
            return replace(way, reason="the model has several inputs or outputs"), script
        if not self.example.model.trainable_variables:
            return replace(way, reason="the model has no variables to train"), script
        experiment = Experiment(training, "build", Data.of((x, y), len(x)), _STEPS, ("custom",))
        return self._judged(way, examine("mirrored", self.devices, experiment, reduction)), script

    def _verified_pipeline(self, parts: int, way: Way) -> tuple[Way, Script]:
        try:
            cut = self._cut = self._cut or self._cut_by_time()
        except ValueError as error:
            return replace(way, reason=message_lines(error)[0]), self.one.script
        finally:
            self.reset()
        devices = self.devices[: len(cut) - 1]
        way = replace(way, devices=tuple(each.parsed.short for each in devices))
        script, shared = (pipeline(self.facts, cut, parts, shared=each) for each in (False, True))
        return self._verified(way, script, shared, devices)

    def _cut_by_time(self) -> tuple[int, ...]:
        self.say(f"{PIPELINE}: {self.about_layers} to find where to cut")
        training = self.facts.step == "training"
        value = self._arguments()[0]
        device = self.devices[0].name
        return cut_by_time(self.example.model, value, len(self.devices), device, self._layer_s, training=training)

    def _layer_s(self, run: Callable[[], Any]) -> float:
        """The seconds of some layers."""
        return float(median(time_calls(run, budget_s=_LAYER_S))) / 1e9

    def _timed(self, way: Way, script: Script) -> Way:
        """Time a right way against one device, in turn."""
        self.say(f"{way.name}: {way.judgement}; timing against one device")
        if differs := self._differs(way, script):
            return replace(way, judgement="wrong", reason=differs)
        memory: tuple[DeviceMemory, ...] = ()
        if way.name != CPU and self.devices[0].parsed.kind == "GPU":
            memory = peaks_of(lambda: start(way.name, script, self.devices, self._fresh).warmed_up(), self.devices)
        other = start(way.name, script, self.devices, self._fresh)
        single_ns: tuple[int, ...] = ()
        parallel_ns: tuple[int, ...] = ()
        for share in (_FIRST, 1 - _FIRST):
            samples = measure_pairs(
                self.one.step,
                other.step,
                devices=self.devices,
                budget_s=self.budget_s * share,
                half_width=_HALF_WIDTH,
                confidence=_CONFIDENCE,
                compared=True,
                tolerance=self._tolerance,
            ).samples
            single_ns, parallel_ns = single_ns + samples.single_ns, parallel_ns + samples.parallel_ns
            speedup = paired_speedup(single_ns, parallel_ns, _CONFIDENCE)
            if samples.stopped != "budget" or speedup.upper < self._best:
                break
        return replace(
            way,
            time_ns=float(median(parallel_ns)),
            single_ns=float(median(single_ns)),
            speedup=speedup,
            memory=memory,
            copied_bytes=copied_by(other.step),
        )

    def _noted(self, way: Way) -> Way:
        fits = with_fit(way, self.memory_bytes).fits
        if way.speedup is not None and (fits if self._too_large else fits is not False):
            self._best = max(self._best, way.speedup.lower)
        return way

    def _weighed(self, way: Way, script: Script) -> Way:
        """Accuse no way of what may be rounding: a sum of many gradients can exceed its tolerance."""
        error = self._step_error(way, script)
        if not error <= _ROUNDING:
            return way
        reason = (
            f"differs by more than the tolerance, but a step of all weights by {error:.0e} of its size: {way.reason}"
        )
        return replace(way, judgement="not comparable", reason=reason)

    def _differs(self, way: Way, script: Script) -> str:
        """Say how the effect of a step differs from that on one device; empty where it does not.

        What was verified of these two ways is another script, with the weights of the model on one device.
        """
        if self.facts.step == "function" or not way.name.startswith((MIRRORED, PIPELINE)):
            return ""
        error = self._step_error(way, script)
        if error <= max(_STEP_ERROR, self._tolerance) or np.isnan(error):
            return ""
        what = "the step of the weights differs" if self.facts.step == "training" else "the result differs"
        return f"{what} from that on one device by {error:.1%} of its size"

    def _step_error(self, way: Way, script: Script) -> float:
        """How far a step moves the weights otherwise than on one device, relative to the step; or so of the results.

        The steps of all weights are compared together: the optimizer may make large steps of gradients that are nothing
        but rounding.
        """
        training = self.facts.step == "training"
        self.reset()
        with without_noise(self.example.model):
            one = start(BASELINE, self.one.script, self.devices, lambda: self.example.parts)
            effect = one.effect_of_a_step(training=training)
        self.reset()
        other = start(way.name, script, self.devices, lambda: self._fresh(noise=False))
        found = other.effect_of_a_step(training=training)
        size = float(np.sqrt(sum(np.sum(each**2) for each in effect)))
        error = float(np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(effect, found, strict=True))))
        return error / size if size else error

    def _fresh(self, *, noise: bool = True) -> tuple[Any, ...]:
        """The program once more, with variables of its own and the same values; without ``noise`` on the same batch."""
        made, values = self.build(), {id(plain(variable)): value for variable, value in self._initial}
        if made.rows != self.example.rows:
            raise ValueError(f"build returned {made.rows} rows now, and {self.example.rows} before")
        if made.model is not None:
            made.model.set_weights(self._weights)
        else:
            for variable, old in zip(made.variables, self.example.variables, strict=True):
                variable.assign(values[id(plain(old))])
        if noise:
            return made.parts
        turn_off_noise(made.model)
        return (made.model, *self.example.arrays)

    def _arguments(self) -> tuple[Any, ...]:
        """The arguments of a step on one device."""
        names = self.one.names
        if self.facts.step == "function":
            return tuple(names["inputs"])
        return (names["x"], names["y"]) if self.facts.step == "training" else (names["x"],)

    def _variables(self) -> list[Any]:
        """The variables of the program on one device."""
        model = self.example.model
        if model is not None:
            optimizer = model.optimizer.variables if self.facts.step == "training" else []
            return distinct([*model.variables, *optimizer])
        traced = self.one.names["step"].get_concrete_function(*self._arguments())
        return distinct([*self.example.variables, *traced.graph.variables])
