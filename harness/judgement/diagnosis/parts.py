"""What an op does with a shard's part of a result of the reference: rightly, or as if the part were the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.judgement.diagnosis.leaves import factor_of
from harness.judgement.diagnosis.lookup import Rows, whole_and_rows
from harness.judgement.diagnosis.recorded import MOVES, Step, equal, named, titled
from harness.judgement.diagnosis.siblings import reordered
from harness.judgement.diagnosis.wording import factor_text
from harness.judgement.values import wide

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search

_ADDS = ("AddV2", "BiasAdd", "Sub")
_SCALES = ("Mul", "RealDiv")
#: How far a weight may be from a shard's share of the rows.
_NEAR = 1e-5


def partial(search: Search, step: Step) -> str:
    """Which of the tensors that a step reads is a shard's part of the reference's."""
    if step.kind in MOVES or step.gradient_of:
        return ""
    parts = _parts(search, step)
    moving = [search.maker[name] for name in step.inputs if name in search.maker and reordered(search, name)]
    if moving:
        return f"it reads the reference's rows in a different order, which comes from {named(moving[0])}"
    if not parts or not search.sums.keys().isdisjoint(step.outputs) or _done_right(search, step):
        return ""
    made = search.maker[step.inputs[parts[0]]]
    if step.kind in _ADDS and _adds_to_each(search, step, parts[0]):
        each = f"each of the {len(search.groups[id(step)])} parts of {named(made)}"
        return f"it adds the same numbers to {each}, although these parts are added up later"
    if scaled := _scaled_rows(search, step, parts[0]):
        return scaled
    part = _first_part(search, made)
    text = titled(part) if part.place == step.place else named(part)
    return f"it reads {text} of one shard, where the reference reads that of the whole batch"


def _scaled_rows(search: Search, step: Step, number: int) -> str:
    """Whether a part is the reference's own rows times a number: then it is no result of one shard."""
    name = step.inputs[number]
    made, known, own = search.maker[name], search.partner.get(name), search.value(name)
    theirs = known.step.result if known is not None and known.step is not None else None
    rows = Rows(search.shards[0], search.rows_of_device(step), 0)
    if theirs is None or own is None or own.size < 2 or not rows.numbers or known is None or known.step is None:
        return ""
    for part in whole_and_rows(theirs, rows)[1:]:
        if part.shape != own.shape or np.iscomplexobj(own):
            continue
        factor = factor_of(wide(own), wide(part))
        if factor and abs(factor - 1.0) > _NEAR and equal((wide(part) * factor).astype(own.dtype), own):
            whole = f"the reference's {named(known.step)}"
            return f"it reads {named(made)}, which gives {factor_text(factor)} times these rows of {whole}"
    return ""


def wrong_weight(search: Search, step: Step) -> tuple[Step, str] | None:
    """The run of a step that weights the mean of a shard otherwise than by its share of the rows, and how."""
    parts, group = _parts(search, step), search.groups[id(step)]
    if step.kind not in _SCALES or len(parts) != 1 or len(group) != len(search.partners.sizes) or len(group) < 2:
        return None
    rows = [len(search.rows_of_device(each)) for each in group]
    weights = [search.read(each, 1 - parts[0]) for each in group]
    means = [search.value(each.inputs[parts[0]]) for each in group]
    whole = _whole(search, step, parts[0])
    for mean, weight, count in zip(means, weights, rows, strict=True):
        if mean is None or weight is None or weight.size != 1 or not count or weight.dtype.kind != "f":
            return None
        if any(array is None or array.shape != mean.shape for array in (whole, *means)):
            return None
    shares = np.array(rows, np.float64) / sum(rows)
    own = np.array([float(np.ravel(weight)[0]) for weight in weights if weight is not None])
    own = 1.0 / own if step.kind == "RealDiv" else own
    joined = sum(mean * share for mean, share in zip(means, shares, strict=True) if mean is not None)
    wrong = np.flatnonzero(np.abs(own - shares) > _NEAR * shares)
    if whole is None or not equal(np.asarray(joined, whole.dtype), whole) or not 0 < len(wrong) < len(group):
        return None
    at = int(wrong[0])
    here, there = (factor_text(float(each[at])) for each in (own, shares))
    return group[at], f"it weights the mean of this shard by {here}, but {there} of the rows are in the shard"


def _parts(search: Search, step: Step) -> list[int]:
    """Which inputs of a step are parts, by their number."""
    return [
        number for number, name in enumerate(step.inputs) if search.status.get(name) == "part" and name in search.maker
    ]


def _whole(search: Search, step: Step, number: int) -> np.ndarray | None:
    """The reference's result that an input of a step is a part of."""
    known = search.partner.get(step.inputs[number])
    return known.step.first if known is not None and known.step is not None else None


def _adds_to_each(search: Search, step: Step, number: int) -> bool:
    """Whether all devices add the same to parts that make the reference's result if they are added up."""
    group, whole = search.groups[id(step)], _whole(search, step, number)
    arrays = [search.value(each.inputs[number]) for each in group if len(each.inputs) == 2]
    others = [search.read(each, 1 - number) for each in group if len(each.inputs) == 2]
    known = [array for array in arrays if array is not None]
    if whole is None or len(known) < len(group) or len(known) < 2 or any(each.shape != whole.shape for each in known):
        return False
    same = all(equal(each, others[0]) for each in others) and not _parts(search, step)[1:]
    return same and equal(np.asarray(sum(known), whole.dtype), whole)


def _done_right(search: Search, step: Step) -> bool:
    """Whether another device computes with such parts in the same way, and does it right."""
    wanted = {id(known.step) for name in step.inputs if (known := search.partner.get(name)) and known.how == "part"}
    return any(
        each.device != step.device
        and (each.kind, each.gradient_of) == (step.kind, step.gradient_of)
        and not search.is_bad(each)
        and any((known := search.partner.get(name)) and id(known.step) in wanted for name in each.inputs)
        for each in search.steps
    )


def _first_part(search: Search, step: Step) -> Step:
    """The step before this one, or this one, that was the first to make a part of what it reads whole."""
    while before := [
        search.maker[name] for name in step.inputs if name in search.maker and search.status[name] == "part"
    ]:
        step = before[0]
    return step
