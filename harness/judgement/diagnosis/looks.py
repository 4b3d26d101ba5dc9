"""The op at which the program parts from the reference, and why: looks at it and around it, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

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
class Told:
    """What is known of the op at fault: why it is, the reference's op in its place, and which devices show it alike.

    ``by`` is the code of the look that told it.
    """

    step: Step
    expected: Step | None = None
    why: str = ""
    alike: tuple[Step, ...] = ()
    by: str = ""


class Look(NamedTuple):
    """One way in which an op may part from the reference's: its code and name, what holds, and how it is seen.

    ``at`` gets what is known so far, and returns what it tells, or ``None``.
    """

    code: str
    name: str
    meaning: str
    at: Callable[[Search, Told], Told | None]


def _told(
    look: Callable[[Search, Step, Step | None], tuple[Step, str] | None], *, alike: bool = False
) -> Callable[[Search, Told], Told | None]:
    """A look that names a step and says why: it is asked with the search, the step at hand and the reference's."""

    def at(search: Search, told: Told) -> Told | None:
        if (found := look(search, told.step, told.expected)) is None:
            return None
        step, why = found
        return Told(step, told.expected, why, (step,) if alike else ())

    return at


def _said(look: Callable[[Search, Step, Step | None], str]) -> Callable[[Search, Told], Told | None]:
    """A look that says why the step at hand is at fault."""

    def at(search: Search, told: Told) -> Told | None:
        why = look(search, told.step, told.expected)
        return replace(told, why=why) if why else None

    return at


def _moved(look: Callable[..., tuple[Step, Sequence[Step], str] | None]) -> Callable[[Search, Told], Told | None]:
    def at(search: Search, told: Told) -> Told | None:
        if (found := look(search, told.step, told.expected)) is None:
            return None
        step, alike, why = found
        return replace(told, step=step, alike=tuple(alike), why=why)

    return at


def _sums(search: Search, step: Step) -> list[Step]:
    return [each for each in search.behind(step) if each.kind in ("AddN", "AddV2")]


def _odd_part(search: Search, step: Step) -> tuple[Step, str] | None:
    return next(filter(None, (odd_part(search, each) for each in (step, *_sums(search, step)))), None)


def _rearranged(search: Search, step: Step) -> tuple[Step, str] | None:
    moving = rearranging(search, step) if step.kind in MOVES else None
    return (moving, REARRANGED) if moving is not None and is_rearranged(search, moving) else None


def _side_by_side(search: Search, told: Told) -> Told | None:
    pair = first_unlike(search, told.step)
    return None if pair is None else Told(*pair, alike=(pair[0],))


def _out_of_line(search: Search, told: Told) -> Told | None:
    if (alone := out_of_line(search) or wrong_weight(search, told.step)) is None:
        return None
    step, why = alone
    return replace(told, step=step, why=why, alike=(step,) if len(search.groups[id(step)]) > 1 else ())


def _unlike_siblings(search: Search, told: Told) -> Told | None:
    why = unlike_siblings(search, told.step)
    return replace(told, why=why, alike=_wrong_alike(search, told.step)) if why else None


def _related(search: Search, told: Told) -> Told | None:
    at = told.step if told.by == _PAIR else [told.step, *_sums(search, told.step)][-1]
    found = related(search, at)
    return None if found is None else Told(found[0], told.expected, found[1])


#: The codes of looks from which more follows.
_CHOICE, _PAIR = "C904", "C907"
_MOVE, _ROWS = "C911", "C912"
_RELATION, _ANEW, _PART, _NEIGHBOURS = "C915", "C916", "C917", "C918"
#: Where the fault may be instead of at the op that was found, the most telling look first.
WHERE: tuple[Look, ...] = (
    Look(
        "C901",
        "odd-part",
        "Of the parts that an op joins, one is not made as the others are.",
        _told(lambda search, step, _: _odd_part(search, step), alike=True),
    ),
    Look(
        "C902",
        "odd-reading",
        "Of the same op on all devices, one reads something else than the others do.",
        _told(odd_reading, alike=True),
    ),
    Look(
        "C903",
        "lost-write",
        "A later write replaces what an earlier one has written.",
        _told(lambda search, *_: lost_write(search)),
    ),
    Look(
        _CHOICE,
        "other-indices",
        "An op chooses rows by indices that the reference does not have.",
        _told(lambda search, step, _: wrong_indices(search, step)),
    ),
    Look(
        "C905",
        "rearranged-data",
        "An op that moves data has what the reference's reads, and arranges it in another way.",
        _told(lambda search, step, _: _rearranged(search, step)),
    ),
    Look(
        "C906",
        "stale-read",
        "A variable is read before its update; the reference reads it after that.",
        _told(stale_read),
    ),
    Look(
        _PAIR,
        "side-by-side",
        "Followed back from a joined result, both programs run the same ops up to this one.",
        _side_by_side,
    ),
    Look("C908", "unlike-siblings", "An op differs from the same one on the other devices.", _unlike_siblings),
    Look(
        "C909",
        "out-of-line",
        "Of the constants of the devices, one does not fit the others; or a weight is not the share of its shard.",
        _out_of_line,
    ),
)
#: How data may be moved otherwise than the reference moves it.
MOVED: tuple[Look, ...] = (
    Look(_MOVE, "other-move", "An op would be right with another axis, order, or range of rows.", _moved(other_move)),
    Look(
        _ROWS,
        "other-rows",
        "An op would be right with other rows of what it reads.",
        _moved(lambda search, step, _: other_rows(search, step)),
    ),
)
#: Why the op is at fault, the most telling look first.
WHY: tuple[Look, ...] = (
    Look(
        "C913",
        "mispaired",
        "An op pairs the rows of one tensor with the wrong rows of another one.",
        _said(lambda search, step, _: mispaired(search, step)),
    ),
    Look(
        "C914",
        "other-constants",
        "An op would be right with the constants of the reference's op.",
        _said(lambda *of: unlike_reference(*of) if right_with_constants(*of) else ""),
    ),
    Look(
        _RELATION,
        "related",
        "The result of an op is one of the reference's, or of a shard's, times a factor or plus a term.",
        _related,
    ),
    Look(_ANEW, "counted-anew", "Numbers that an op reads lack the offset of the shard.", _said(counted_anew)),
    Look(
        _PART,
        "of-a-part",
        "An op reads a result of one shard, where the reference reads that of the whole batch.",
        _said(lambda search, step, _: partial(search, step)),
    ),
    Look(_NEIGHBOURS, "no-neighbours", "Rows beside a cut lack those of the next shard.", _said(without_neighbours)),
    Look(
        "C919",
        "overflow",
        "Whole numbers, or floating ones, overflow.",
        _said(lambda search, step, _: overflowing(search, step)),
    ),
    Look(
        "C920",
        "unlike-reference",
        "An op has another type, attribute or constant than the reference's in its place.",
        _said(unlike_reference),
    ),
)
#: What the first op that differs may tell, by the code of its look.
LOOKS: tuple[Look, ...] = (*WHERE, *MOVED, *WHY)


def _look(search: Search, looks: Sequence[Look], told: Told) -> Told | None:
    found = ((each, each.at(search, told)) for each in looks)
    return next((replace(known, by=each.code) for each, known in found if known is not None), None)


def _wrong_alike(search: Search, step: Step) -> tuple[Step, ...]:
    return tuple(each for each in search.groups[id(step)] if search.is_bad(each))


def origin_of(search: Search) -> Origin | None:
    """The op at which the program parts from the reference."""
    found = _found(search)
    if found is None:
        return None
    told = Told(found, expected_after(search, found), alike=_wrong_alike(search, found))
    told = _look(search, WHERE, told) or told
    if told.by != _PAIR:
        told = replace(told, expected=expected_after(search, told.step))
    if told.why in ("", REARRANGED):
        told = _look(search, MOVED, told) or told
    if not told.why:
        told = _look(search, WHY, told) or told
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
        unlike=() if told.by in (_RELATION, _ANEW, _NEIGHBOURS, _CHOICE, _MOVE, _ROWS) else _unlike(search, found),
        devices=tuple(sorted(filter(None, devices))),
        count=sum(step.computes and search.status[step.outputs[0]] in ("same", "part") for step in before),
        local=_is_local(search, told),
        expected=expected,
        contrast=why,
        shared=search.shared,
        turn=turn_of(search, found),
        confirmed=told.by in (_ANEW, _NEIGHBOURS, _ROWS),
        code=told.by if why else "",
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


def _is_local(search: Search, told: Told) -> bool:
    """Whether the op has rows of its shard alone, and nothing tells more of it."""
    found = told.step
    if told.by in (_RELATION, _ANEW, _PART, _NEIGHBOURS) or mispaired(search, found):
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
