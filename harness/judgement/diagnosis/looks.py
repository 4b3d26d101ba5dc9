"""The op at which the program parts from the reference, and why: looks at it and around it, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.evidence.arithmetic import PYTHON
from harness.judgement.diagnosis.contrast import (
    lost_write,
    mispaired,
    overflowing,
    repeated_write,
    stale_read,
    unlike_reference,
)
from harness.judgement.diagnosis.expected import expected_after, rightly_unlike
from harness.judgement.diagnosis.lockstep import first_unlike
from harness.judgement.diagnosis.moves import other_move
from harness.judgement.diagnosis.neighbours import counted_anew, without_neighbours
from harness.judgement.diagnosis.odd import other_rows, out_of_line
from harness.judgement.diagnosis.origins import Origin
from harness.judgement.diagnosis.parts import partial, wrong_weight
from harness.judgement.diagnosis.recorded import GIVEN, MOVES, Step
from harness.judgement.diagnosis.relation import related, right_with_constants
from harness.judgement.diagnosis.replays import from_reference
from harness.judgement.diagnosis.search import Search
from harness.judgement.diagnosis.siblings import (
    choosing,
    is_rearranged,
    odd_part,
    odd_reading,
    rearranging,
    turn_of,
    unlike_siblings,
    wrong_indices,
)

#: So many lines are named that only move data.
_MOST_LINES = 2

#: What is reported of an op that moves data otherwise, if nothing tells how.
REARRANGED = "its inputs equal the reference's, but it arranges them in another way"


@dataclass(frozen=True)
class _Told:
    """What is known of the op at fault: why it is, the reference's op in its place, and which devices show it alike.

    ``by`` names the look that told, where more follows from that.
    """

    step: Step
    expected: Step | None = None
    why: str = ""
    alike: tuple[Step, ...] = ()
    by: str = ""


_Look = Callable[[Search, _Told], _Told | None]


def _told(look: Callable[..., tuple[Step, str] | None], by: str = "", *, alike: bool = False) -> _Look:
    """A look that names a step and says why: it is asked with the search, the step at hand and the reference's."""

    def asked(search: Search, told: _Told) -> _Told | None:
        if (found := look(search, told.step, told.expected)) is None:
            return None
        step, why = found
        return _Told(step, told.expected, why, (step,) if alike else (), by)

    return asked


def _said(look: Callable[[Search, Step, Step | None], str], by: str = "") -> _Look:
    """A look that says why the step at hand is at fault."""

    def asked(search: Search, told: _Told) -> _Told | None:
        why = look(search, told.step, told.expected)
        return replace(told, why=why, by=by) if why else None

    return asked


def _sums(search: Search, step: Step) -> list[Step]:
    return [each for each in search.behind(step) if each.kind in ("AddN", "AddV2")]


def _rearranged(search: Search, step: Step) -> tuple[Step, str] | None:
    moving = rearranging(search, step) if step.kind in MOVES else None
    return (moving, REARRANGED) if moving is not None and is_rearranged(search, moving) else None


def _side_by_side(search: Search, told: _Told) -> _Told | None:
    pair = first_unlike(search, told.step)
    return None if pair is None else _Told(*pair, alike=(pair[0],), by="pair")


def _among_siblings(search: Search, told: _Told) -> _Told:
    group = search.groups[id(told.step)]
    why = unlike_siblings(search, told.step)
    alone = None if why else out_of_line(search) or wrong_weight(search, told.step)
    if alone is None:
        return replace(told, why=why, alike=tuple(each for each in group if search.is_bad(each)))
    step, why = alone
    return replace(told, step=step, why=why, alike=(step,) if len(search.groups[id(step)]) > 1 else ())


def _moved(search: Search, told: _Told) -> _Told | None:
    move, by = other_move(search, told.step, told.expected), "move"
    if move is None:
        move, by = other_rows(search, told.step), "rows"
    if move is None:
        return None
    step, alike, why = move
    return replace(told, step=step, alike=tuple(alike), why=why, by=by)


def _related(search: Search, told: _Told) -> _Told | None:
    at = told.step if told.by == "pair" else [told.step, *_sums(search, told.step)][-1]
    found = related(search, at)
    return None if found is None else _Told(found[0], told.expected, found[1], by="relation")


#: Where the fault may be instead of at the op that was found, the most telling look first.
_WHERE: tuple[_Look, ...] = (
    _told(
        lambda search, step, _: next(
            filter(None, (odd_part(search, each) for each in (step, *_sums(search, step)))), None
        ),
        alike=True,
    ),
    _told(odd_reading, alike=True),
    _told(lambda search, *_: lost_write(search)),
    _told(lambda search, step, _: wrong_indices(search, step), "choice"),
    _told(lambda search, step, _: _rearranged(search, step)),
    _told(stale_read),
    _side_by_side,
)
#: Why the op is at fault, the most telling look first.
_WHY: tuple[_Look, ...] = (
    _said(lambda search, step, _: mispaired(search, step)),
    _said(lambda *of: unlike_reference(*of) if right_with_constants(*of) else ""),
    _related,
    _said(counted_anew, "counted anew"),
    _said(lambda search, step, _: partial(search, step), "part"),
    _said(without_neighbours, "neighbours"),
    _said(lambda search, step, _: overflowing(search, step)),
    _said(unlike_reference),
)


def _look(search: Search, looks: Sequence[_Look], told: _Told) -> _Told | None:
    return next(filter(None, (look(search, told) for look in looks)), None)


def origin_of(search: Search) -> Origin | None:
    """The op at which the program parts from the reference."""
    found = _found(search)
    if found is None:
        return None
    told = _Told(found, expected_after(search, found))
    told = _look(search, _WHERE, told) or _among_siblings(search, told)
    if told.by != "pair":
        told = replace(told, expected=expected_after(search, told.step))
    if told.why in ("", REARRANGED):
        told = _moved(search, told) or told
    if not told.why:
        told = _look(search, _WHY, told) or told
    found, expected, why = told.step, told.expected, told.why
    added = (
        all(each.gradient_of != found.gradient_of for each in search.whole)
        if found.gradient_of
        else expected is None and all(each.kind != found.kind for each in search.whole)
    )
    stops = search.question.seen_reference.stopped if added and found.gradient_of and not why else []
    if len(stops) > len(search.question.seen.stopped):
        why = f"the reference computes no gradient of {found.gradient_of} there: it stops gradients at {stops[-1]}"
        told = replace(told, why=why)
    before = search.steps[: search.order[id(found)]]
    devices = [each.device for each in told.alike] if len(told.alike) < len(search.question.devices) else []
    return Origin(
        step=found,
        unlike=()
        if told.by in ("relation", "counted anew", "neighbours", "choice", "move", "rows")
        else _unlike(search, found),
        devices=tuple(sorted(filter(None, devices))),
        count=sum(step.computes and search.status[step.outputs[0]] in ("same", "part") for step in before),
        local=_is_local(search, told),
        expected=expected,
        contrast=why,
        shared=search.shared,
        turn=turn_of(search, found),
        confirmed=told.by in ("counted anew", "neighbours", "rows"),
        added=added,
        again=(
            _reads_alike(search, found, expected)
            and (made := from_reference(search, found)) is not None
            and found.gave(made)
        ),
        uncompared=found.kind == "ReadVariableOp"
        or found.kind.startswith("Resource")
        or any(search.status.get(name) == "given" and name in search.maker for name in found.inputs),
    )


def _found(search: Search) -> Step | None:
    """The first op that differs, but for those that are right though they do."""
    found = _first(search)
    while found is not None and (made := from_reference(search, found)) is not None and search.acquits(found, made):
        found = _first(search)
    if found is not None and id(found) in (right := rightly_unlike(search)):
        statuses = dict(search.status)
        names = (name for step in search.steps if id(step) in right for name in step.outputs)
        search.status.update((name, "part") for name in names if search.status[name] == "differs")
        found = _first(search) or found
        if id(found) in right:
            search.status = statuses  # nothing else differs
    found = found or repeated_write(search)
    if found is not None and found.kind in MOVES and (chosen := choosing(search, found)) is not None:
        found = chosen
    return found


def _is_local(search: Search, told: _Told) -> bool:
    """Whether the op has rows of its shard alone, and nothing tells more of it."""
    found = told.step
    if told.by in ("relation", "counted anew", "part", "neighbours") or mispaired(search, found):
        return False
    if found.outputs and all(search.status[name] == "local" for name in found.outputs):
        return True
    return not told.why and _on_own_rows(search, found, told.expected)


def _first(search: Search) -> Step | None:
    found = search.first(search.roots(), {"differs"})
    if found is not None and found.gradient_of:
        # What is wrong before any gradient is computed is no fault of a gradient.
        before = search.first((name for name, _ in search.wrong_outputs()), {"differs"})
        found = before if before is not None and not before.gradient_of else found
    if found is None:
        return search.first(search.roots(), {"differs", "local"})
    local = [name for name in search.sources(found) if search.status.get(name) == "local"]
    if local and not all(_counted_alike(search, found, name) for name in local):
        return search.first(search.sources(found), {"differs", "local"}) or found
    return found


def _counted_alike(search: Search, step: Step, name: int) -> bool:
    """Whether the step is right on another device that numbers its rows in the same way, from 0 in each shard."""
    makers = search.groups[id(search.maker[name])]
    return any(
        each.device != step.device
        and not search.is_bad(each)
        and search.maker.get(theirs) in makers
        and (known := search.partner.get(theirs)) is not None
        and (known.how == "local" or known.rows is not None)
        for each in search.groups[id(step)]
        for theirs in each.inputs
    )


def _reads_alike(search: Search, step: Step, other: Step | None) -> bool:
    """Whether a step reads what the reference's step in its place reads: otherwise its result may be right."""
    data = [name for name in step.inputs if name in search.from_data]
    known = [partner.step for name in data if (partner := search.partner.get(name)) is not None]
    wanted = [search.makers.get(name) for name in other.inputs] if other is not None else []
    return bool(known) and len(known) == len(data) and all(each is None or each in wanted for each in known)


def _on_own_rows(search: Search, step: Step, other: Step | None) -> bool:
    """Whether a step is the reference's, on fewer rows of what that reads."""
    if other is None or other.kind != step.kind or step.kind in PYTHON or len(other.inputs) != len(step.inputs):
        return False
    fewer = False
    for number, (mine, theirs) in enumerate(zip(step.inputs, other.inputs, strict=True)):
        partner = search.partner.get(mine)
        if mine == theirs or (mine not in search.maker and number in step.constants):
            continue
        wanted = search.makers.get(theirs)
        given = wanted is None or wanted.kind in GIVEN
        if partner is None or (partner.step is not wanted and not (partner.step is None and given)):
            return False
        fewer |= search.is_of_rows(mine)
    return fewer


def _unlike(search: Search, step: Step) -> tuple[Step, ...]:
    """One of these for each line but the step's own, the last ones first."""
    by_line = {each.place: each for each in reversed(search.behind(step))}
    own = by_line.pop(step.place, None)
    lines = tuple(sorted(by_line.values(), key=lambda each: -search.order[id(each)]))[:_MOST_LINES]
    return lines or ((own,) if own is not None else ())
