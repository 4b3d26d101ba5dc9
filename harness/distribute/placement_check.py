"""A Keras callback that watches a training: where its steps run, and whether the replicas stay equal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from harness.devices.device import Device, Devices
from harness.devices.name import DeviceName
from harness.distribute.history import DifferentCopy, History
from harness.distribute.rules import judge_sync, judge_variable_devices
from harness.distribute.session import named_variables
from harness.errors import HarnessError, TrainingError, VerificationError
from harness.evidence.tracing import Tracing
from harness.judgement.placement import judge_placement
from harness.judgement.verification import describe
from harness.lazy import tf
from harness.plural import plural
from harness.records import Finding, Verdict

#: What findings name as the loop.
_LOOP = "fit"


class PlacementCheck:
    """A callback for ``Model.fit`` that finds misplaced work and replicas that drift apart while a model trains.

    The first step is traced: its ops must run on all replicas' devices, backward ops on those of their forward ops.
    After it, after every ``every`` steps and at the end, the variables must be on the devices of the replicas, and all
    copies of a weight, and of the optimizer's variables, must be the same, bit for bit. What layers keep of the rows
    of their replica, such as the moving statistics of batch normalization, may differ. Between checks, steps run as
    without the callback, which keeps nothing waiting for a step's results.

    ``devices``: the devices that the model's own ``train_step`` uses, where that is no strategy; their steps are
    traced, and there are no copies to compare. ``raises=False`` records findings in :attr:`findings` and goes on.

    Examples:
        >>> import harness
        >>> check = harness.distribute.PlacementCheck(every=100)
        >>> check
        <PlacementCheck UNKNOWN: no step was checked>

    Raises:
        TrainingError: ``every`` is not an integer from 1, or ``devices`` are no devices.
        VerificationError: during ``fit``, with ``raises=True``, the finding in one line.
    """

    #: Set by Keras.
    model: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> PlacementCheck:  # noqa: ARG004 - they are __init__'s
        """Make it one of Keras's callbacks."""
        return super().__new__(_callback(cls))

    def __init__(self, every: int = 100, *, raises: bool = True, devices: Sequence[Device] | None = None) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise TrainingError(f"PlacementCheck: every={every!r}; accepted: a number of steps, an integer from 1")
        super().__init__()
        self.every = every
        self.raises = raises
        self.findings: tuple[Finding, ...] = ()
        #: How often replicas were compared, or a step was traced.
        self.checks = 0
        #: Why something was not checked; empty if everything was.
        self.unknown = ""
        self._given = None if devices is None else Devices.given(devices, TrainingError)
        self._steps = 0
        self._compared_at = 0
        self._comparison: tuple[tuple[int, ...], Callable[[], Any]] | None = None

    @property
    def verdict(self) -> Verdict:
        """FAIL with findings that are errors, WARN with others, PASS without; UNKNOWN if nothing was checked."""
        if self.findings:
            failed = any(finding.severity is Verdict.FAIL for finding in self.findings)
            return Verdict.FAIL if failed else Verdict.WARN
        return Verdict.PASS if self.checks and not self.unknown else Verdict.UNKNOWN

    def __repr__(self) -> str:
        if self.findings:
            text = describe(self.findings[0])
        elif self.unknown:
            text = self.unknown
        else:
            text = f"{plural(self.checks, 'check')} without a finding" if self.checks else "no step was checked"
        return f"<PlacementCheck {self.verdict}: {text}>"

    # Only these hooks: with one of those for the end of a batch, Keras would wait for the results of each step.

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002 - Keras gives it
        """Have the next step traced."""
        self._steps = self._compared_at = 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002 - Keras gives them
        """Before the first step, prepare its trace; after every ``every`` steps, compare the replicas."""
        if self._steps == 0:
            self._trace_next_step()
        elif self._steps % self.every == 0:
            self._compare_replicas()
        self._steps += 1

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002 - Keras gives it
        """Compare the replicas once more."""
        if self._steps > self._compared_at:
            self._compare_replicas()

    def _devices(self) -> Devices | None:
        """The devices of this process's replicas; ``None`` of a single one."""
        if self._given is not None:
            return self._given
        strategy = self.model.distribute_strategy
        # The strategy of a single device names none.
        several = int(strategy.num_replicas_in_sync) > 1
        names = [str(name) for name in strategy.extended.worker_devices] if several else []
        if len(names) < 2:
            return None
        kinds = {name: DeviceName.parse(name).kind for name in names}
        return Devices([Device(name, "gpu" if kinds[name] == "GPU" else "logical-cpu", "") for name in names], spec="")

    def _trace_next_step(self) -> None:
        if self._devices() is None:
            self.unknown = "the model trains on one device of this process; train under a strategy, or give devices="
            return
        model, step = self.model, self.model.train_function

        def traced(iterator: Any) -> Any:
            model.train_function = step
            outputs = self._traced(lambda: step(iterator))
            self._compare_replicas()
            return outputs

        model.train_function = traced

    def _traced(self, step: Callable[[], Any]) -> Any:
        """Run a step and judge where it ran; a training goes on where it cannot be traced."""
        tracing = Tracing()
        try:
            tracing.__enter__()
        except HarnessError as error:
            self.unknown = f"the first step was not traced: {error}"
            return step()
        try:
            outputs = step()
        except BaseException:
            tracing.__exit__(*sys.exc_info())
            raise
        try:
            tracing.__exit__(None, None, None)
        except HarnessError as error:
            self.unknown = f"the first step was not traced: {error}"
            return outputs
        devices = self._devices()
        if devices is not None:
            self.checks += 1
            own = self._given is not None
            self._report(judge_placement(tracing.trace, devices, _LOOP, on_host=own))
        return outputs

    def _compare_replicas(self) -> None:
        """Find variables on other devices than those of the replicas, and copies that differ."""
        self._compared_at = self._steps
        devices = self._devices()
        if devices is None or self._given is not None:
            return
        strategy = self.model.distribute_strategy
        values = {name: _value(variable) for name, variable in named_variables(list(_shared(self.model))).items()}
        copies = {name: tuple(strategy.experimental_local_results(value)) for name, value in values.items()}
        if all(len(each) < 2 for each in copies.values()):
            self.unknown = "the strategy keeps one copy of each variable, so there is nothing to compare"
            return
        self.checks += 1
        different = self._different(copies)
        history = History(
            loop=_LOOP,
            replicas=len(devices),
            devices=tuple(devices.names),
            values={},
            iterations=(),
            rates=(),
            different_copies=tuple(different),
            variable_devices={name: tuple(str(copy.device) for copy in each) for name, each in copies.items()},
        )
        self._report([*judge_sync(history), *judge_variable_devices(history, devices.names)])

    def _different(self, copies: dict[str, tuple[Any, ...]]) -> Iterator[DifferentCopy]:
        pairs = [
            (name, first, other)
            for name, (first, *others) in copies.items()
            if getattr(first.dtype, "size", 0) and first.dtype != tf.string
            for other in others
        ]
        if not pairs:
            return
        key = tuple(id(copy) for _, *pair in pairs for copy in pair)
        if self._comparison is None or self._comparison[0] != key:
            self._comparison = key, tf.function(lambda: _equal([pair for _, *pair in pairs]))
        equal = self._comparison[1]().numpy()
        for (name, first, other), same in zip(pairs, equal, strict=True):
            if not same:
                one, two = (copy.read_value().numpy().astype(np.float64) for copy in (first, other))
                yield DifferentCopy(name, self._steps - 1, str(other.device), float(np.abs(two - one).max()))

    def _report(self, found: Sequence[Finding]) -> None:
        known = {(finding.kind, finding.device) for finding in self.findings}
        new = [finding for finding in found if (finding.kind, finding.device) not in known]
        self.findings += tuple(new)
        failed = [finding for finding in new if finding.severity is Verdict.FAIL]
        if failed and self.raises:
            raise VerificationError(describe(failed[0]), new)


def _callback(cls: type[PlacementCheck]) -> type[PlacementCheck]:
    """The class as one of Keras's callbacks, which is imported now."""
    base = tf.keras.callbacks.Callback
    if issubclass(cls, base):
        return cls
    return type(cls.__name__, (cls, base), {"__module__": cls.__module__, "__doc__": cls.__doc__})


def _shared(model: Any) -> Iterator[Any]:
    """The variables that all replicas share: weights, also frozen ones, and what the optimizer keeps.

    The other variables of layers hold what these have seen of their replica's rows.
    """
    own: dict[int, Any] = {id(each): each for each in model.trainable_variables}
    for layer in model._flatten_layers(include_self=True, recursive=True):
        own.update((id(each), each) for each in getattr(layer, "_trainable_variables", ()))
    optimizer = model.optimizer
    for each in [optimizer, *filter(None, [getattr(optimizer, "inner_optimizer", None)])]:
        own.update((id(variable), variable) for variable in each.variables)
    yield from own.values()


def _value(variable: Any) -> Any:
    """TensorFlow's variable; the older Keras has no other."""
    return variable if callable(variable.value) else variable.value


def _equal(pairs: Sequence[Sequence[Any]]) -> Any:
    """Whether the two variables of each pair hold the same bytes: one after the other, to save memory."""
    found: list[Any] = []
    for first, other in pairs:
        with tf.control_dependencies(found[-1:]), tf.device(other.device):
            found.append(tf.reduce_all(_bytes(first.read_value()) == _bytes(other.read_value())))
    with tf.device("CPU:0"):
        return tf.stack(found)


def _bytes(value: Any) -> Any:
    """A value bit by bit, so that NaN equals itself."""
    return tf.cast(value, tf.uint8) if value.dtype == tf.bool else tf.bitcast(value, tf.uint8)
