"""The table of faults and right programs, and what the programs share.

``fault``, ``clean`` and ``pair`` decorate a function of the devices' names that builds a case: a dictionary with
``parallel``, ``reference`` and ``inputs``, and optionally other arguments of ``harness.verify``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

import harness

BOTH = ("eager", "graph")


class Names(tuple[str, ...]):
    """The names of devices, and the devices."""

    devices: harness.Devices

    def __new__(cls, devices: harness.Devices) -> Names:
        names = super().__new__(cls, devices.names)
        names.devices = devices
        return names


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[Names], dict[str, Any]]
    #: Of which a fault gives one; none for a right program.
    kinds: frozenset[str]
    modes: tuple[str, ...]
    #: How many devices it has.
    count: int

    def verify(self, devices: harness.Devices, mode: str) -> harness.Verification:
        used = devices[: self.count]
        return harness.verify(**self.build(Names(used)), devices=used, modes=(mode,))


FAULTS: dict[str, Case] = {}
CLEAN: dict[str, Case] = {}
Build = Callable[..., Any]


def fault(*kinds: str, modes: tuple[str, ...] = BOTH, n: int = 4, name: str = "") -> Callable[[Build], Build]:
    def add(build: Build) -> Build:
        case = Case(name or build.__name__, build, frozenset(kinds), modes, n)
        assert FAULTS.setdefault(case.name, case) is case, case.name
        return build

    return add


def clean(modes: tuple[str, ...] = BOTH, n: int = 4, name: str = "") -> Callable[[Build], Build]:
    def add(build: Build) -> Build:
        case = Case(name or build.__name__, build, frozenset(), modes, n)
        assert CLEAN.setdefault(case.name, case) is case, case.name
        return build

    return add


def pair(
    name: str, *kinds: str, modes: tuple[str, ...] = BOTH, n: int = 4, fault_modes: tuple[str, ...] = ()
) -> Callable[[Build], Build]:
    """Decorate a function of devices and whether the program is wrong: ``NAME_wrong`` and ``NAME_right``."""

    def add(build: Build) -> Build:
        fault(*kinds, modes=fault_modes or modes, n=n, name=f"{name}_wrong")(lambda dev: build(dev, True))
        clean(modes=modes, n=n, name=f"{name}_right")(lambda dev: build(dev, False))
        return build

    return add


def rnd(*shape: int, seed: int = 0, dtype: str = "float32") -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def sizes(rows: int, count: int) -> list[int]:
    return [rows // count + (i < rows % count) for i in range(count)]


def each(dev: Names, fn: Callable[..., Any], *arrays: Any, cut: list[int] | None = None) -> list[Any]:
    """``fn(shard, ...)`` of every shard in its device's scope."""
    cut = cut or sizes(int(arrays[0].shape[0]), len(dev))
    out = []
    for name, parts in zip(dev, zip(*(tf.split(a, cut) for a in arrays))):
        with tf.device(name):
            out.append(fn(*parts))
    return out


def tower_grads(
    dev: Names, loss: Callable[..., Any], variables: list[Any], *arrays: Any, cut: list[int] | None = None
) -> list[Any]:
    """The loss and the gradients of each shard, backward in the shard's scope."""

    def one(*parts: Any) -> Any:
        with tf.GradientTape() as tape:
            found = loss(*parts)
        return found, tape.gradient(found, variables)

    return each(dev, one, *arrays, cut=cut)


def mean_grads(steps: list[Any]) -> list[Any]:
    return [tf.add_n([grads[i] for _, grads in steps]) / float(len(steps)) for i in range(len(steps[0][1]))]


W = rnd(6, 5, seed=1)
XY = {"x": rnd(8, 6), "y": rnd(8, 5, seed=7)}


def mse_setup() -> tuple[Any, Callable[..., Any], Callable[..., Any]]:
    """A variable, the loss of a layer with it, and the loss with its gradient."""
    v = tf.Variable(W, name="w")

    def loss(p: Any, q: Any) -> Any:
        return tf.reduce_mean((tf.matmul(p, v) - q) ** 2)

    def grad(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            found = loss(x, y)
        return found, tape.gradient(found, v)

    return v, loss, grad
