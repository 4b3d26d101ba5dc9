"""Stages and members wired wrongly: connections, weights, micro-batches and results (M05 to M16)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, Program
from harness.faults.samples import on_each, sample
from harness.faults.slips import UNUSED, slip
from harness.lazy import tf

UNITS, _ROWS = 4, 8


class Parts:
    """A dense layer for each device, with its weights there: stages in a row, or members side by side."""

    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        self.names = devices.names
        self.host = devices.host
        self.weights: list[Any] = []
        self.copies: list[Any] = []
        for index, name in enumerate(self.names):
            with tf.device(name):
                self.weights.append(tf.Variable(sample(UNITS, UNITS, seed=index) / 2, name=f"weights_{index}"))
                self.copies.append(tf.Variable(sample(UNITS, UNITS) / 2, name=f"copy_{index}"))

    def layer(self, x: Any, index: int) -> Any:
        """Return the result of a layer, on the device of the caller's scope."""
        return tf.tanh(tf.matmul(x, self.weights[index]))

    def stages(self, x: Any, order: list[int] | None = None) -> Any:
        """Return the layers, by default all in sequence, each on its device."""
        for index in order if order is not None else range(len(self.names)):
            with tf.device(self.names[index]):
                x = self.layer(x, index)
        return x

    def whole(self, x: Any) -> Any:
        """Return all layers in sequence, on the device of the caller's scope."""
        for index in range(len(self.names)):
            x = self.layer(x, index)
        return x

    def members(self, x: Any) -> list[Any]:
        """Return each layer of the same input, on its device."""
        return on_each(self.names, partial(self.layer, x), range(len(self.names)))

    def side_by_side(self, x: Any) -> list[Any]:
        """Return the same on the device of the caller's scope."""
        return [self.layer(x, index) for index in range(len(self.names))]


def rows(_: int = 0) -> dict[str, Any]:
    """Return the inputs of the parts."""
    return {"x": sample(_ROWS, UNITS, seed=7)}


def wired(
    pattern: str,
    reference: Program,
    faulty: Program,
    right: Program,
    *found: str,
    also: frozenset[str] = UNUSED,
    **options: Any,
) -> Callable[[Devices], Case]:
    """Return what plants the program ``faulty``, whose twin is ``right``: functions of the parts and of the input."""
    return slip(reference, faulty, right, *found, make=Parts, inputs=rows, pattern=pattern, also=also, **options)


_stages = partial(wired, "stages")
_members = partial(wired, "members")


def _skipping(p: Parts, x: Any, *, placed: bool) -> Any:
    results = []
    for index, name in enumerate(p.names):
        with tf.device(name if placed else None):
            x = p.layer(x, index)
            results.append(x)
    with tf.device(p.names[-1] if placed else None):
        return x + results[0]


def _carried(p: Parts, x: Any) -> Any:
    """The twin of a skip over stages hands the first result on from stage to stage."""
    first = None
    for index, name in enumerate(p.names):
        with tf.device(name):
            x = p.layer(x, index)
            first = x if first is None else tf.identity(first)
    with tf.device(p.names[-1]):
        return x + first


def _loss(p: Parts, x: Any) -> Any:
    return tf.reduce_mean(tf.square(p.whole(x)))


def _loss_on(p: Parts, x: Any, place: int) -> Any:
    y = p.stages(x)
    with tf.device(p.names[place]):
        return tf.reduce_mean(tf.square(y))


def _backwards(p: Parts, x: Any) -> Any:
    """Stage k is on the device of the k-th from the end, where its weights are not."""
    for index, name in enumerate(reversed(p.names)):
        with tf.device(name):
            x = p.layer(x, index)
    return x


def _micro(p: Parts, x: Any, order: tuple[int, ...]) -> Any:
    done = [p.stages(part) for part in tf.split(x, 4)]
    with tf.device(p.names[-1]):
        return tf.concat([done[index] for index in order], axis=0)


def _in_order(p: Parts, x: Any) -> Any:
    return _micro(p, x, (0, 1, 2, 3))


def _left_out(p: Parts, x: Any) -> Any:
    return p.stages(x, list(range(len(p.names) - 1)))


def _shared(p: Parts, x: Any) -> Any:
    return on_each(p.names, lambda: p.layer(x, 0))


def _chained(p: Parts, x: Any) -> list[Any]:
    results: list[Any] = []
    for index, name in enumerate(p.names):
        with tf.device(name):
            x = p.layer(x, index)
        results.append(x)
    return results


def _same(p: Parts, x: Any) -> list[Any]:
    return [p.layer(x, 0) for _ in p.names]


def _copied(p: Parts, x: Any) -> list[Any]:
    return on_each(p.names, lambda copy: tf.tanh(tf.matmul(x, copy)), p.copies)


def _rotated(p: Parts, x: Any) -> list[Any]:
    first, *others = p.members(x)
    return [*others, first]


def _voted(p: Parts, x: Any) -> Any:
    return tf.add_n(p.side_by_side(x)) / len(p.names)


def _votes(p: Parts, x: Any, *, used: int = 0, place: str | None = None) -> Any:
    results = p.members(x)
    with tf.device(place):
        return tf.add_n(results[used:]) / len(results)


def _vote_on_host(p: Parts, x: Any) -> Any:
    return _votes(p, x, place=p.host)


_NEXT = "a stage may pass tensors only to the next device"
_ALONE = "member|side by side|arguments and results"

FAULTS = (
    Fault(
        "M05-skip-connection",
        "a connection that skips stages",
        "public code",
        _stages(partial(_skipping, placed=False), partial(_skipping, placed=True), _carried, "transfer"),
        _NEXT,
        devices_needed=3,
    ),
    Fault(
        "M07-loss-on-the-first",
        "the loss on the device of the first stage",
        "public code",
        _stages(_loss, partial(_loss_on, place=0), partial(_loss_on, place=-1), "transfer"),
        _NEXT,
        devices_needed=3,
    ),
    Fault(
        "M08-backwards",
        "the stages on the devices in reverse order",
        "public code",
        _stages(Parts.whole, _backwards, Parts.stages, "transfer", "variable-placement"),
        _NEXT,
        devices_needed=3,
    ),
    Fault(
        "M10-micro-batches-reversed",
        "micro-batches joined in reverse order",
        "public code",
        _stages(Parts.whole, partial(_micro, order=(3, 2, 1, 0)), _in_order, "value"),
        "in a different order",
        rule="C101",
    ),
    Fault(
        "M11-micro-batch-lost",
        "the last micro-batch is lost",
        "public code",
        _stages(Parts.whole, partial(_micro, order=(0, 1, 2)), _in_order, "shape"),
        r"Rows 6 and 7 of 8 were dropped",
        rule="C101",
    ),
    Fault(
        "M11-micro-batch-doubled",
        "a micro-batch takes the place of the next",
        "public code",
        _stages(Parts.whole, partial(_micro, order=(0, 0, 2, 3)), _in_order, "value"),
        r"Rows 0 and 1 take the place of rows 2 and 3",
        rule="C101",
    ),
    Fault(
        "M12-stage-left-out",
        "the last stage is left out",
        "public code",
        _stages(Parts.whole, _left_out, Parts.stages, "value", "unused-device"),
        "the ops after it in the reference are left out",
        rule="C411",
    ),
    Fault(
        "M13-shared-weights",
        "every member of an ensemble reads the weights of the first",
        "public code",
        _members(_same, _shared, _copied, "variable-placement"),
        "variable .* is copied in every call",
    ),
    Fault(
        "M14-chained",
        "every member of an ensemble gets the result of the one before it",
        "public code",
        _members(Parts.side_by_side, _chained, Parts.members, "value", "transfer"),
        _ALONE,
        rule="C409",
    ),
    Fault(
        "M15-results-rotated",
        "the results of an ensemble's members in another order",
        "public code",
        _members(Parts.side_by_side, _rotated, Parts.members, "value"),
        "in the wrong order",
        rule="C404",
    ),
    Fault(
        "M16-member-without-a-vote",
        "an average of an ensemble that leaves a member out",
        "public code",
        _members(_voted, partial(_votes, used=1), _vote_on_host, "value"),
        "missing|left out",
        rule="C407",
    ),
    Fault(
        "M16-vote-on-a-member",
        "the average of an ensemble on the device of a member",
        "public code",
        _members(_voted, lambda p, x: _votes(p, x, place=p.names[-1]), _vote_on_host, "transfer"),
        _ALONE,
    ),
)
