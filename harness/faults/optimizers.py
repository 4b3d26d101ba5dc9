"""Training steps of towers with an optimizer, or by hand: what is added, updated or averaged wrongly (T12 to T20)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, Program
from harness.faults.samples import add_up, on_each, sample
from harness.faults.slips import Towers, slip
from harness.lazy import tf

_RATE = 0.1


class _Trained(Towers):
    """Towers with an optimizer, if ``optimizer`` names one; else steps of gradient descent by hand."""

    def __init__(self, devices: Devices, optimizer: str = "", **options: Any) -> None:
        super().__init__(devices)
        #: A moving average of the weights, and a count of the steps.
        self.average = tf.Variable(sample(3, 5, seed=6), trainable=False, name="average")
        self.steps = tf.Variable(0, trainable=False, name="steps")
        self.optimizer = getattr(tf.keras.optimizers, optimizer)(_RATE, **options) if optimizer else None
        if self.optimizer is not None:
            self.optimizer.build([self.w, self.b])

    @property
    def state(self) -> list[Any]:
        own = [self.w, self.b, self.average, self.steps]
        return own if self.optimizer is None else [*own, *(each.value for each in self.optimizer.variables)]

    def gradients(self, x: Any, penalty: float = 0.0, rows: int = 0) -> list[Any]:
        """The loss of a batch of ``rows`` rows, by default those of ``x``, and its gradients."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(self.model(x))) / (rows or x.shape[0])
            if penalty:
                loss += penalty * tf.nn.l2_loss(self.w)
        return [loss, *tape.gradient(loss, [self.w, self.b])]

    def apply(self, gradients: Sequence[Any]) -> None:
        if self.optimizer is not None:
            self.optimizer.apply_gradients(zip(gradients, [self.w, self.b], strict=True))
            return
        for variable, gradient in zip([self.w, self.b], gradients, strict=True):
            variable.assign_sub(_RATE * gradient)

    def update(self, found: Sequence[Any]) -> Any:
        """Apply the gradients that follow a loss, and return the loss."""
        loss, *gradients = found
        self.apply(gradients)
        return loss

    def means(self, x: Any) -> list[Any]:
        """The loss and the gradients, averaged over towers with equal numbers of rows."""
        return _averaged(self.each(self.gradients, x))

    def move(self) -> None:
        self.average.assign(0.9 * self.average + 0.1 * self.w)

    def count_step(self) -> None:
        self.steps.assign_add(1)


def _averaged(towers: Sequence[Sequence[Any]]) -> list[Any]:
    return [each / len(towers) for each in add_up(towers)]


def _trained(reference: Program, faulty: Program, right: Program, **options: Any) -> Callable[[Devices], Case]:
    return slip(reference, faulty, right, make=partial(_Trained, **options), variables=lambda t: t.state)


def _alone(t: _Trained, x: Any, penalty: float = 0.0) -> Any:
    return t.update(t.gradients(x, penalty))


def _together(t: _Trained, x: Any) -> Any:
    return t.update(t.means(x))


def _penalised(t: _Trained, x: Any, *, each: bool) -> Any:
    """Each tower has its share of the loss of the batch; the penalty of the weights is counted in each, or in one."""
    penalties = [0.3 if each or not index else 0.0 for index in range(t.count)]
    towers = on_each(
        t.names, lambda part, penalty: t.gradients(part, penalty, x.shape[0]), tf.split(x, t.count), penalties
    )
    return t.update(add_up(towers))


def _all_but_the_last(t: _Trained, x: Any) -> Any:
    """``towers[:-1]``: the mean of the gradients of the others."""
    towers = t.each(t.gradients, x)
    loss = tf.add_n([loss for loss, *_ in towers]) / t.count
    return t.update([loss, *_averaged([gradients for _, *gradients in towers[:-1]])])


def _then_averaged(t: _Trained, x: Any, step: Program, *, before: bool = False) -> Any:
    """A step, and the moving average of the weights after it, or before it."""
    if before:
        t.move()
    loss = step(t, x)
    if not before:
        t.move()
    return loss


def _two_steps(t: _Trained, x: Any, gradients: Callable[[Any], Sequence[Any]], *, stale: bool = False) -> Any:
    """Two steps; with ``stale``, the second from gradients of the weights before the first."""
    first, second = tf.split(x, 2)
    loss, *one = gradients(first)
    if stale:
        _, *two = gradients(second)
    t.apply(one)
    if not stale:
        _, *two = gradients(second)
    t.apply(two)
    return loss


def _two_together(t: _Trained, x: Any, *, stale: bool) -> Any:
    return _two_steps(t, x, t.means, stale=stale)


def _applied(t: _Trained, x: Any, times: int) -> Any:
    loss, *gradients = t.means(x)
    for _ in range(times):
        t.apply(gradients)
    return loss


def _without_the_bias(t: _Trained, x: Any) -> Any:
    loss, gradient, bias = t.means(x)
    return t.update([loss, gradient, tf.zeros_like(bias)])


def _clipped(gradients: Sequence[Any]) -> list[Any]:
    loss, *others = gradients
    return [loss, *tf.clip_by_global_norm(others, 0.05)[0]]


def _clipped_alone(t: _Trained, x: Any) -> Any:
    return t.update(_clipped(t.gradients(x)))


def _clipped_towers(t: _Trained, x: Any, *, each: bool) -> Any:
    towers = t.each(lambda part: _clipped(t.gradients(part)) if each else t.gradients(part), x)
    return t.update(_averaged(towers) if each else _clipped(_averaged(towers)))


def _counted(t: _Trained, x: Any, step: Program, times: int) -> Any:
    for _ in range(times):
        t.count_step()
    return step(t, x)


def _scaled(t: _Trained, x: Any, factor: float) -> Any:
    """The gradients are multiplied by ``factor``, and what is applied is, too."""
    loss, *gradients = t.means(x)
    return t.update([loss, *(factor * each for each in gradients)])


_MOMENTUM = {"optimizer": "SGD", "momentum": 0.9}
_ADAM = {"optimizer": "Adam"}


def _penalty(**options: Any) -> Callable[[Devices], Case]:
    return _trained(
        partial(_alone, penalty=0.3), partial(_penalised, each=True), partial(_penalised, each=False), **options
    )


def _of_three(**options: Any) -> Callable[[Devices], Case]:
    return _trained(_alone, _all_but_the_last, _together, **options)


def _average(**options: Any) -> Callable[[Devices], Case]:
    return _trained(
        partial(_then_averaged, step=_alone),
        partial(_then_averaged, step=_together, before=True),
        partial(_then_averaged, step=_together),
        **options,
    )


def _stale(**options: Any) -> Callable[[Devices], Case]:
    return _trained(
        lambda t, x: _two_steps(t, x, t.gradients),
        partial(_two_together, stale=True),
        partial(_two_together, stale=False),
        **options,
    )


_PER_TOWER = "a term that depends on variables alone, such as a regulariser, is counted <n> times"
_LAST = r"shard 3 .*missing"

FAULTS = (
    Fault(
        "T12-penalty-per-tower",
        "an L2 penalty in the loss of each tower",
        "tensorflow/models 342",
        _penalty(),
        _PER_TOWER,
    ),
    Fault(
        "T12-penalty-per-tower-with-momentum",
        "an L2 penalty in the loss of each tower, and an optimizer with momentum",
        "tensorflow/models 342",
        _penalty(**_MOMENTUM),
        _PER_TOWER,
    ),
    Fault(
        "T12-penalty-per-tower-with-adam",
        "an L2 penalty in the loss of each tower, and Adam",
        "tensorflow/models 342",
        _penalty(**_ADAM),
        _PER_TOWER,
    ),
    Fault(
        "T13-mean-of-the-others",
        "the gradients averaged over all towers but the last",
        "made up for this list",
        _of_three(),
        _LAST,
    ),
    Fault(
        "T13-mean-of-the-others-with-momentum",
        "the gradients averaged over all towers but the last, and an optimizer with momentum",
        "made up for this list",
        _of_three(**_MOMENTUM),
        _LAST,
    ),
    Fault(
        "T14-average-before-the-step",
        "a moving average of the weights taken before their update",
        "public code",
        _average(),
        "average.*weights.* (has|have) before .* (is|are) updated",
    ),
    Fault(
        "T14-average-before-the-optimizer",
        "a moving average of the weights taken before the optimizer's update",
        "public code",
        _average(**_MOMENTUM),
        "average.*weights.* (has|have) before .* (is|are) updated",
    ),
    Fault(
        "T14-average-after-the-step",
        "a moving average of the weights taken after their update, not before",
        "made up for this list",
        _trained(
            partial(_then_averaged, step=_alone, before=True),
            partial(_then_averaged, step=_together),
            partial(_then_averaged, step=_together, before=True),
        ),
        "average.*weights.* (has|have) after .* (is|are) updated",
    ),
    Fault(
        "T15-stale-gradients",
        "two steps; the second uses gradients computed before the first",
        "made up for this list",
        _stale(),
        "gradients are stale.*before the first update",
    ),
    Fault(
        "T15-stale-gradients-with-momentum",
        "two steps of an optimizer; the second uses gradients computed before the first",
        "made up for this list",
        _stale(**_MOMENTUM),
        "gradients are stale.*before the first update",
    ),
    Fault(
        "T16-applied-twice-with-momentum",
        "an optimizer that applies the gradients twice",
        "made up for this list",
        _trained(_alone, partial(_applied, times=2), partial(_applied, times=1), **_MOMENTUM),
        "twice|2 times",
    ),
    Fault(
        "T17-frozen-with-momentum",
        "a bias that the optimizer gets no gradient for",
        "public code",
        _trained(_alone, _without_the_bias, _together, **_MOMENTUM),
        "bias.*(never|not) updated",
    ),
    Fault(
        "T18-clipped-per-tower",
        "the gradients of each tower are clipped, and then averaged",
        "tensorflow 33929",
        _trained(
            _clipped_alone, partial(_clipped_towers, each=True), partial(_clipped_towers, each=False), **_MOMENTUM
        ),
        "clip|norm",
    ),
    Fault(
        "T19-steps-per-tower",
        "a step counter that each tower increments",
        "public code",
        _trained(
            partial(_counted, step=_alone, times=1),
            lambda t, x: _counted(t, x, _together, t.count),
            partial(_counted, step=_together, times=1),
            **_MOMENTUM,
        ),
        "steps.*<n> times|once for each of the <n> shards",
    ),
    Fault(
        "T20-gradients-times-towers",
        "gradients of means added up instead of averaged, and an optimizer with momentum",
        "tensorflow 25806",
        _trained(_alone, lambda t, x: _scaled(t, x, t.count), _together, **_MOMENTUM),
        "added up although each is a mean|<n> times",
    ),
)
