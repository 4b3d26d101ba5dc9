"""Does one thing of the program in another way, and every op after it again. If all results are then right, it is the
cause.

Each way is an edit of ops of the program; one replay runs it, one test accepts it, and one test rules out chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from harness.judgement.diagnosis.chance import is_by_chance
from harness.judgement.diagnosis.lookup import Rows, whole_and_rows
from harness.judgement.diagnosis.question import Array
from harness.judgement.diagnosis.recorded import GIVEN, MOVES, Step, equal, is_write, named
from harness.judgement.diagnosis.replays import Edit, Values, run_again, run_with
from harness.judgement.diagnosis.wording import constant_texts, listed

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search

#: Ops with the same inputs. To join parts, a program may use one of them by mistake for another.
_ALIKE = (
    ("Sum", "Max", "Min", "Mean", "Prod"),
    ("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd"),
)
#: Ops that join parts of equal shape as if each counted alike.
_EVEN = ("AddN", "AddV2", "Sum", "Mean")
#: Ops of two operands, of which TensorFlow broadcasts one.
_BINARY = frozenset({"Sub", "AddV2", "Mul", "RealDiv", "SquaredDifference", "Maximum", "Minimum", "DivNoNan"})
#: How many ways to read or to join are tried at most, and how many others.
_MOST = 16


@dataclass(frozen=True)
class Way:
    """What is done otherwise: at ``step``, what the ops of ``edits`` (by their ids) make of what they read.

    ``live``: tensors that follow what is written to a variable, by its handle. ``text``: how the sentence begins.
    ``of_origin``: the sentence goes on after what is reported of the first op that differs.
    """

    step: Step
    text: str
    edits: dict[int, Edit]
    live: tuple[int, frozenset[int]] = (0, frozenset())
    of_origin: bool = False


def mended(search: Search, origin: Step, expected: Step | None, *, known: bool) -> tuple[Way, str] | None:
    """Find what the program does in a wrong way: with it done in another way, all that differs is right.

    ``origin`` is the first op that differs, and ``expected`` the reference's op in its place. ``known``: how they
    differ is known; then only ways are tried that tell more. Returns the way and the sentence.
    """
    ways = chain(_by_rows(search), _from_ones(search, origin, expected), _writes(search))
    if not known:
        ways = chain(
            islice(chain(_as_on_other_devices(search), _other_joins(search)), _MOST),
            ways,
            _broadcast(search, origin),
            _without(search, origin, expected),
        )
    ways = chain(ways, _as_in_the_reference(search, origin, expected))
    for number, way in enumerate(islice(ways, 2 * _MOST)):
        try:
            after = run_with(search, way.edits, *way.live)
        except Exception as error:  # noqa: BLE001 - the first op that differs must not be lost for want of a replay
            search.question.failed.append(f"{way.text}: {type(error).__name__}: {error}")
            continue
        if after is not None and _right_with(search, after) and not is_by_chance(search.question.wrong, number):
            return way, f"{way.text} makes the results right"
    return None


def _as_on_other_devices(search: Search) -> Iterator[Way]:
    """Give a step the value that it reads on all other devices, if that is the same on all of them."""
    for step in search.steps:
        others = [each for each in search.groups[id(step)] if each is not step]
        if len(others) < 2 or len({len(each.inputs) for each in others}) > 1 or not step.place:
            continue
        read = [search.read(step, number) for number in range(len(step.inputs))]
        for number, name in enumerate(step.inputs):
            theirs = [search.read(each, number) for each in others]
            own, first = read[number], theirs[0]
            if own is None or first is None or not all(equal(each, first) for each in theirs) or equal(own, first):
                continue
            maker, other = search.maker.get(name), search.maker.get(others[0].inputs[number])
            if maker is not None and other is not None:
                here, there = (f"the result of {named(each)}" for each in (maker, other))
            else:
                here, there = constant_texts(own, first)
            text = f"it reads {here}, but on the other devices it reads {there}, which"
            yield Way(step, text, {id(step): _reading(step, number, first)})


def _other_joins(search: Search) -> Iterator[Way]:
    """Put another op in the place of one that joins results of several devices."""
    for step in search.steps:
        kinds = next((each for each in _ALIKE if step.kind in each), ())
        if step.place and len({search.maker[name].device for name in search.behind_moves(step)} if kinds else ()) > 1:
            for kind in kinds:
                if kind != step.kind:
                    other = replace(step, kind=kind)
                    yield Way(step, f"it joins the parts; replacing it with {kind}", {id(step): _running(other)})


def _by_rows(search: Search) -> Iterator[Way]:
    """Weight the parts that a step adds up, or averages, by the numbers of rows of the shards."""
    sizes = [len(rows) for rows in search.shards[1].values()]
    if len(set(sizes)) < 2:
        return
    weights = [size * len(sizes) / sum(sizes) for size in sizes]
    for step in search.steps:
        if step.kind not in _EVEN or step.gradient_of or not step.place or step.result is None:
            continue
        names = search.addends(step) if step.kind in ("AddN", "AddV2") else _packed(search, step)
        devices = [search.maker[name].device if name in search.maker else "" for name in names]
        if len(names) != len(sizes) or len(set(devices)) != len(sizes):
            continue
        scale = 1.0 / len(sizes) if step.kind == "Mean" else 1.0

        def weighted(
            _: list[Array], parts: Values, step: Step = step, names: Sequence[int] = tuple(names), scale: float = scale
        ) -> list[Array] | None:
            known = [parts.get(name) for name in names]
            if any(part is None or part.shape != step.results[0].shape for part in known):  # type: ignore[union-attr]
                return None
            total = sum(part * weight * scale for part, weight in zip(known, weights, strict=True) if part is not None)
            return [np.asarray(total, step.results[0].dtype)]  # type: ignore[union-attr]

        rows = listed([str(size) for size in sizes])
        text = f"it counts the {len(sizes)} shards alike; to weight them by their rows ({rows})"
        yield Way(step, text, {id(step): weighted})


def _packed(search: Search, step: Step) -> list[int]:
    """The tensors that are stacked, or joined along their first axis, for a step to add up over that axis."""
    maker = search.maker.get(step.inputs[0])
    axes = step.constants.get(1)
    if maker is None or maker.kind not in ("Pack", "ConcatV2") or axes is None or axes.ravel().tolist() != [0]:
        return []
    return [
        name
        for name in maker.inputs
        if name in search.maker and (value := search.value(name)) is not None and value.size
    ]


def _from_ones(search: Search, origin: Step, expected: Step | None) -> Iterator[Way]:
    """Give a gradient that starts from ones what the reference sends back there."""
    if not origin.gradient_of or expected is None or len(expected.inputs) != len(origin.inputs):
        return
    for number, name in enumerate(origin.inputs):
        own, theirs = search.read(origin, number), search.read(expected, number)
        maker, there = search.maker.get(name), search.makers.get(expected.inputs[number])
        if (
            own is None
            or theirs is None
            or own.size < 2
            or not np.all(own == 1)
            or there is None
            or not there.gradient_of
        ):
            continue
        if theirs.shape == own.shape and not equal(own, theirs) and (maker is None or not maker.gradient_of):
            text = (
                f"the gradient starts from ones there (is output_gradients= missing?); the result of {named(there)}, "
                "with which the reference goes on,"
            )
            yield Way(origin, text, {id(origin): _reading(origin, number, theirs)})


def _writes(search: Search) -> Iterator[Way]:
    """Overwrite what an earlier write left; read a variable after a write; add up rows with the same index."""
    seen: dict[int, Step] = {}
    later: dict[int, list[Step]] = {}
    for step in search.steps:
        if step.kind == "TensorScatterUpdate" and step.place:
            yield from _scattering(search, step)
        if is_write(step.kind):
            if step.inputs[0] in seen and step.kind == "AssignAddVariableOp":
                later.setdefault(step.inputs[0], []).append(step)
            seen.setdefault(step.inputs[0], step)
    for handle, steps in later.items():
        before = named(seen[handle]) if seen[handle].place != steps[0].place else "its run before"
        text = f"it adds to what {before} has left in the variable; to overwrite that"
        if steps[0].place:
            yield Way(steps[0], text, {id(step): _overwriting for step in steps})
    yield from _live(search)


def _live(search: Search) -> Iterator[Way]:
    """Have what was read from a variable before a write be what it is after it."""
    for handle in dict.fromkeys(step.inputs[0] for step in search.steps if is_write(step.kind)):
        first = next(at for at, step in enumerate(search.steps) if is_write(step.kind) and step.inputs[0] == handle)
        held = {
            name
            for step in search.steps[:first]
            if step.kind == "ReadVariableOp" and step.inputs[0] == handle
            for name in step.outputs
        }
        for step in search.steps[:first]:
            if step.kind == "Identity" and held.intersection(step.inputs):
                held.update(step.outputs)
        user = next((step for step in search.steps[first + 1 :] if held.intersection(step.inputs) and step.place), None)
        if user is not None:
            text = f"it reads a variable's value from before {named(search.steps[first])}; the value from after it"
            yield Way(user, text, {}, (handle, frozenset(held)))


def _scattering(search: Search, step: Step) -> Iterator[Way]:
    """Add up the rows with the same index, or by how much each of them changes what was there."""
    indices = search.read(step, 1)
    if indices is None or indices.ndim < 2:
        return
    if len(np.unique(indices.reshape(-1, indices.shape[-1]), axis=0)) == indices[..., 0].size:
        return
    rows = search.read(step, 2)
    if rows is None or not rows.any():
        return  # to add up zeros is to leave the op out

    def added(read: list[Array], _: Values, changes: bool) -> list[Array]:
        start, at, rows = read
        places = tuple(np.moveaxis(at, -1, 0))
        total = start.copy()
        np.add.at(total, places, rows - start[places] if changes else rows)
        return [total]

    for changes in (True, False):
        text = "rows with equal indices overwrite one another, but the reference adds them up; to add them up"
        edits: dict[int, Edit] = {id(each): partial(added, changes=changes) for each in search.groups[id(step)]}
        yield Way(step, text, edits)


def _broadcast(search: Search, origin: Step) -> Iterator[Way]:
    """Give both operands the shape of one where each is broadcast over the other."""
    read = [search.read(origin, number) for number in range(len(origin.inputs))]
    made = origin.results[0] if origin.results else None
    if origin.kind not in _BINARY or len(read) != 2 or made is None or not origin.place:
        return
    one, other = read
    if one is None or other is None or one.size != other.size or one.size < 2 or made.size <= one.size:
        return
    for number in (0, 1):
        edits = {id(step): _reshaped(step, number) for step in search.groups[id(origin)]}
        shapes = listed([str(list(each.shape)) for each in (one, other)])
        text = f"it broadcasts inputs of the shapes {shapes} to {list(made.shape)}; giving both the same shape"
        yield Way(origin, text, edits, of_origin=True)


def _without(search: Search, origin: Step, expected: Step | None) -> Iterator[Way]:
    """Leave an op out where the reference has none of its type that reads the same: pass on what it reads."""
    group = search.groups[id(origin)]
    if not origin.computes or origin.kind in MOVES or not origin.place or origin.gradient_of:
        return
    if expected is not None and expected.kind == origin.kind:
        return
    for number, name in enumerate(origin.inputs):
        own = search.read(origin, number)
        if own is None or name not in search.from_data or own.shape != origin.results[0].shape:  # type: ignore[union-attr]
            continue
        constants = [value for at, value in origin.constants.items() if at != number]
        by = (
            f" by {constant_texts(constants[0], constants[0])[0]}"
            if len(constants) == 1 and constants[0].size == 1
            else ""
        )
        edits = {id(step): _passing(number) for step in group}
        yield Way(origin, f"to leave this {origin.kind}{by} out", edits, of_origin=True)


def _as_in_the_reference(search: Search, origin: Step, expected: Step | None) -> Iterator[Way]:
    """Give an op, on each device, what the reference's op in its place reads, or the rows of it."""
    if expected is None or expected.kind != origin.kind or len(expected.inputs) != len(origin.inputs):
        return
    group = [step for step in search.groups[id(origin)] if search.is_bad(step)]
    for number, name in enumerate(expected.inputs):
        theirs = search.read(expected, number)
        edits: dict[int, Edit] = {}
        for step in group:
            own, rows = search.read(step, number), Rows(0, search.rows_of_device(step), 0)
            parts = [part for part in whole_and_rows(theirs, rows) if own is not None and part.shape == own.shape]
            if parts and own is not None and not equal(own, parts[-1]):
                edits[id(step)] = _reading(step, number, parts[-1])
        if not edits or len(edits) < len(group):
            continue
        maker = _computed(search, name)
        constant = expected.constants.get(number)
        if maker is not None:
            text = f"the result of the reference's {named(maker)}"
        elif constant is not None and number in origin.constants and name not in search.from_data:
            text = constant_texts(constant, constant)[0]
        else:
            text = "what the reference reads"
        yield Way(origin, f"to read {text} there", edits, of_origin=True)


def _computed(search: Search, name: int) -> Step | None:
    """The op that computed a tensor of the reference, which others may only have moved since."""
    step = search.makers.get(name)
    while step is not None and step.kind in MOVES:
        step = search.makers.get(step.inputs[0])
    return None if step is None or step.kind in GIVEN else step


def _passing(number: int) -> Edit:
    return lambda read, _: [read[number]]


def _reading(step: Step, number: int, value: Array) -> Edit:
    return lambda read, _: run_again(step, [*read[:number], value, *read[number + 1 :]], step.given)


def _running(step: Step) -> Edit:
    return lambda read, _: run_again(step, read, step.given)


def _reshaped(step: Step, number: int) -> Edit:
    def run(read: list[Array], _: Values) -> list[Array] | None:
        own = [*read]
        if own[0].size != own[1].size:
            return None
        own[number] = own[number].reshape(own[1 - number].shape)
        return run_again(step, own, step.given)

    return run


def _overwriting(read: list[Array], _: Values) -> list[Array]:
    """What a variable is after a write: what is written, whatever it was (the first of what is read)."""
    return [read[1]]


def _right_with(search: Search, after: Values) -> bool:
    """Whether all that differs is the reference's after a replay; gradients that verify takes, where they are seen."""
    found = [(after.get(name), leaf) for name, leaf in search.wrong_outputs()]
    found += [(after.variable(handle), leaf) for leaf, handle in search.wrong_variables()]
    judged = {id(leaf) for _, leaf in found}
    rest = [leaf for leaf in search.question.wrong if id(leaf) not in judged]
    return (
        bool(found)
        and all(leaf.part == "gradients" for leaf in rest)
        and all(leaf.right_as(value) for value, leaf in found)
    )
