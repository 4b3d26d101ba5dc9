"""Ensembles gone wrong: gradients of another member (M03); slots on the default device (P10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, Program, kinds
from harness.faults.samples import sample
from harness.lazy import tf

_FEATURES, _OUTPUTS, _ROWS = 4, 3, 6


class _Member:
    """A dense model on a device, and an optimizer, which is built in eager code unless ``built`` is false."""

    def __init__(self, device: str, seed: int, *, built: bool = True) -> None:
        self.device = device
        with tf.device(device):
            self.weights = tf.Variable(sample(_FEATURES, _OUTPUTS, seed=seed) / 2, name=f"weights_{seed}")
        self.optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
        if built:
            with tf.device(device):
                self.optimizer.build([self.weights])

    def loss_and_gradient(self, x: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(tf.matmul(x, self.weights))))
        return loss, tape.gradient(loss, self.weights)

    def apply(self, gradient: Any) -> None:
        self.optimizer.apply_gradients([(gradient, self.weights)])


def _training(
    members: Sequence[_Member], *, shift: int = 0, scopes: bool = True, apply_in_scopes: bool = True
) -> Program:
    """A training step of every member. Member k gets the gradient of member ``k + shift``."""

    def step(x: Any) -> list[Any]:
        losses, gradients = [], []
        for member in members:
            with tf.device(member.device if scopes else None):
                loss, gradient = member.loss_and_gradient(x)
            losses.append(loss)
            gradients.append(gradient)
        for index, member in enumerate(members):
            with tf.device(member.device if scopes and apply_in_scopes else None):
                member.apply(gradients[(index + shift) % len(members)])
        return losses

    return step


def _state(members: Sequence[_Member]) -> list[Any]:
    return [member.weights for member in members]


def _anothers_gradients(devices: Devices) -> Case:
    members = [_Member(device.name, index) for index, device in enumerate(devices)]
    return Case(
        _training(members, shift=1),
        _training(members),
        _training(members, scopes=False),
        {"x": sample(_ROWS, _FEATURES, seed=9)},
        kinds("value", "transfer"),
        variables=_state(members),
        pattern="members",
    )


def _lazy_slots(devices: Devices) -> Case:
    """The optimizers are applied outside the scopes, and create their slots while the first step is traced."""
    lazy = [_Member(device.name, index, built=False) for index, device in enumerate(devices)]
    before = [member.weights.numpy() for member in lazy]
    x = sample(_ROWS, _FEATURES, seed=9)
    step = _training(lazy, apply_in_scopes=False)
    tf.function(step)(tf.constant(x))
    for member, value in zip(lazy, before, strict=True):
        member.weights.assign(value)
        for slot in member.optimizer.variables[2:]:
            slot.assign(tf.zeros_like(slot))
    members = [_Member(device.name, index) for index, device in enumerate(devices)]
    reference = [_Member(devices.host, index) for index in range(len(devices))]
    twin = _training(members, apply_in_scopes=False)
    return Case(step, twin, _training(reference, scopes=False), {"x": x}, kinds("variable-placement"))


FAULTS = (
    Fault(
        "M03-gradients-of-another-member",
        "each member of an ensemble is trained with the gradients of the next member",
        "a slip in a loop over models and gradients: every member learns from another's data",
        _anothers_gradients,
        "gradients? of (another|the next) member|another member",
        rule="C404",
    ),
    Fault(
        "P10-slots-on-the-default-device",
        "an optimizer's slots are made by the first traced step, and land on the default device",
        "tensorflow 35849",
        _lazy_slots,
        "slots on the default device.*slot ",
    ),
)
