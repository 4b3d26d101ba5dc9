"""The first op whose result differs although what it reads is equal: where two programs part.

From a wrong output the search goes back, op by op, through what has no equal in the reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from harness.evidence.arithmetic import PYTHON
from harness.judgement.diagnosis.acquittal import rightly_unlike
from harness.judgement.diagnosis.contrast import (
    lost_write,
    mispaired,
    overflowing,
    repeated_write,
    stale_read,
    unlike_reference,
    written_by_each_shard,
)
from harness.judgement.diagnosis.expected import expected_after
from harness.judgement.diagnosis.lockstep import first_unlike
from harness.judgement.diagnosis.mends import MENDED, mended
from harness.judgement.diagnosis.moves import other_move
from harness.judgement.diagnosis.neighbours import without_neighbours
from harness.judgement.diagnosis.odd_rows import other_rows
from harness.judgement.diagnosis.origins import Origin, lines_of_step, named_steps, place_of_step, sentence_of
from harness.judgement.diagnosis.out_of_line import out_of_line
from harness.judgement.diagnosis.parts import partial, wrong_weight
from harness.judgement.diagnosis.place import place_of_function
from harness.judgement.diagnosis.positions import counted_anew
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.recorded import GIVEN, MOVES, Step, titled
from harness.judgement.diagnosis.relation import related, right_with_constants
from harness.judgement.diagnosis.replays import from_reference
from harness.judgement.diagnosis.search import Search, searched
from harness.judgement.diagnosis.siblings import (
    choosing,
    is_rearranged,
    odd_part,
    odd_reading,
    rearranging,
    stopped_gradient,
    turn_of,
    unlike_siblings,
    unread_result,
    wrong_indices,
    zeros_instead,
)
from harness.judgement.diagnosis.uneven import AT_ONE_LINE, odd_count, uneven_line

#: So many lines are named that only move data.
_MOST_LINES = 2

#: How the sentence about it begins.
FIRST_OP = "the first op whose result differs from the reference's is"
#: How the sentence about a gradient that is lost begins.
STOP = "the gradient stops at"
#: What is reported of an op that moves data otherwise, if nothing tells how.
REARRANGED = "its inputs equal the reference's, but it arranges them in another way"


def first_difference(question: Question) -> Iterator[Cause]:
    """Name the first op of the program whose result the reference does not have, or that passes no gradient on."""
    search = searched(question)
    origin = _origin(search)
    refused = question.refused
    if (stop := _stop(search, origin)) is not None:
        step, sentence = stop
        yield Cause(sentence, place_of_step(step, search.shared), evidence=(refused,))
    elif origin is not None:
        evidence = (*origin.evidence, refused)
        if partial(search, origin.step) and (written := written_by_each_shard(search, origin.step)) is not None:
            step, sentence = written
            remedy = "join the shards' results first, and update the variable once"
            yield Cause(sentence, place_of_step(step, search.shared), remedy, evidence)
        mend = mended(search, origin.step, origin.expected, known=bool(origin.contrast))
        mends = ""
        if mend is not None and mend[0].of_origin:
            mends = f"; {mend[1]}"
        elif mend is not None:
            way, sentence = mend
            on = f" on {way.step.on}" if way.step.device else ""
            place = place_of_step(way.step, search.shared)
            yield Cause(f"{titled(way.step)}{on}: {sentence}", place, evidence=(refused,))
        # The reference runs no op of this type: it computes the result in another way, so this op is hardly the fault.
        alone = not origin.contrast and all(each.kind != origin.step.kind for each in search.whole)
        if alone and not mends and (uneven := uneven_line(search, origin.expected)) is not None:
            step, sentence = uneven
            yield Cause(sentence, place_of_step(step, search.shared), evidence=evidence)
        begin = "" if origin.confirmed else f"{FIRST_OP} "
        unread = unread_result(search) if origin.local or not origin.contrast else ""
        lost = f"; no op reads {unread}" if unread else ""
        only_where = not origin.confirmed and not mends
        sentence = f"{begin}{sentence_of(origin)}{lost}{mends}"
        yield Cause(sentence, origin.place, evidence=evidence, only_where=only_where)


def located(question: Question, cause: Cause) -> Cause:
    """A cause with the first op that differs, if that is at another line, else with the line that called its own."""
    begins = cause.sentence.startswith((FIRST_OP, STOP, AT_ONE_LINE))
    if cause.final or begins or cause.sentence.endswith(MENDED):
        return cause
    try:
        search = searched(question)
        origin = _origin(search)
        if origin is not None and origin.confirmed and cause.sentence == sentence_of(origin):
            return cause
        stop = _stop(search, origin)
    except Exception as error:  # noqa: BLE001 - the cause is known, and must not be lost for want of a line
        question.failed.append(f"the first op that differs: {type(error).__name__}: {error}")
        return cause
    if stop is None and cause.at_join:
        stop = zeros_instead(search)
        halted = [place for place in question.seen.stopped if place and not question.seen_reference.stopped]
        if stop is None and halted:
            return replace(cause, sentence=f"{cause}; a gradient is stopped", place=halted[0])
    if stop is not None:
        step, sentence = stop
        if cause.place in lines_of_step(step, search.shared):
            return replace(cause, place=place_of_step(step, search.shared))
        return replace(cause, sentence=f"{cause}; {sentence}", place=place_of_step(step, search.shared))
    if cause.at_join:
        origin = None
    elif origin is not None and cause.rows and search.is_bad_elsewhere(origin.step, cause.rows):
        origin = None
        if (odd := odd_count(search, cause.rows)) is not None:
            step, sentence = odd
            return replace(cause, sentence=f"{cause}; {sentence}", place=place_of_step(step, search.shared))
    known = (
        origin is not None
        and cause.place in lines_of_step(origin.step, origin.shared, origin.turn)
        and not (origin.elsewhere or origin.contrast)
    )
    if origin is None or origin.place is None or known or (origin.step.kind in MOVES and not origin.contrast):
        steps = (step for step in search.steps if step.place == cause.place)
        places = {place for step in steps if (place := place_of_step(step, search.shared)) != cause.place}
        cause = replace(cause, place=places.pop()) if len(places) == 1 else cause
        overwritten = lost_write(search) if cause.at_join else None
        if overwritten is not None:
            step, sentence = overwritten
            sentence = f"{cause.sentence}; {titled(step)}: {sentence}"
            return replace(cause, sentence=sentence, place=place_of_step(step, search.shared))
        unread = unread_result(search) if cause.at_join else ""
        if not unread:
            return replace(cause, place=origin.place) if known and origin is not None else cause
        function = place_of_function(question.parallel.fn)
        program = f"in the program at {function}, " if function and function not in (cause.place or "") else ""
        return replace(cause, sentence=f"{cause.sentence}; {program}no op reads {unread}")
    made = f", which reads the result of {named_steps(origin.unlike)}" if origin.elsewhere else ""
    if origin.contrast:
        told = bool(made) and named_steps(origin.unlike) in origin.contrast
        made = f"{'' if told else made}: {origin.contrast}"
    sentence = f"{cause}; the first op that differs is {titled(origin.step)}{made}"
    return replace(cause, sentence=sentence, place=origin.place, evidence=(*cause.evidence, *origin.evidence))


def _origin(search: Search) -> Origin | None:
    """The op at which the program parts from the reference."""
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
    if found is None:
        return None
    if found.kind in MOVES and (chosen := choosing(search, found)) is not None:
        found = chosen
    expected, alike = expected_after(search, found), list[Step]()
    pair = choice = None
    sums = [each for each in search.behind(found) if each.kind in ("AddN", "AddV2")]
    joins = (found, *sums)
    odd = next(filter(None, (odd_part(search, each) for each in joins)), None)
    if (odd := odd or odd_reading(search, found, expected)) is not None:
        found, contrast = odd
        alike = [found]
    elif (overwritten := lost_write(search)) is not None:
        found, contrast = overwritten
    elif (choice := wrong_indices(search, found)) is not None:
        found, contrast = choice
    elif found.kind in MOVES and (moving := rearranging(search, found)) is not None and is_rearranged(search, moving):
        found, contrast = moving, REARRANGED
    elif (stale := stale_read(search, found, expected)) is not None:
        found, contrast = stale
    elif (pair := first_unlike(search, found)) is not None:
        (found, expected), contrast = pair, ""
        alike = [found]
    else:
        contrast = unlike_siblings(search, found)
        alike = [each for each in search.groups[id(found)] if search.is_bad(each)]
        if not contrast and (alone := out_of_line(search) or wrong_weight(search, found)) is not None:
            found, contrast = alone
            alike = [found] if len(search.groups[id(found)]) > 1 else []
    expected = expected if pair else expected_after(search, found)
    move = None if contrast not in ("", REARRANGED) else other_move(search, found, expected)
    moved = None if contrast not in ("", REARRANGED) or move else other_rows(search, found)
    if (move := move or moved) is not None:
        found, alike, contrast = move
    pairing = mispaired(search, found)
    if not (contrast or pairing) and right_with_constants(search, found, expected):
        contrast = unlike_reference(search, found, expected)
    relation = None if contrast or pairing else related(search, found if pair else (sums or [found])[-1])
    if relation is not None:
        found, contrast = relation
        alike = []
    known = contrast or pairing
    anew = "" if known else counted_anew(search, found, expected)
    of_shard = "" if known or anew else partial(search, found)
    beside = "" if known or anew or of_shard else without_neighbours(search, found, expected)
    lacking = anew or of_shard or beside
    contrast = known or lacking or overflowing(search, found)
    contrast = contrast or unlike_reference(search, found, expected)
    added = (
        all(each.gradient_of != found.gradient_of for each in search.whole)
        if found.gradient_of
        else expected is None and all(each.kind != found.kind for each in search.whole)
    )
    stops = search.question.seen_reference.stopped if added and found.gradient_of and not contrast else []
    if len(stops) > len(search.question.seen.stopped):
        contrast = f"the reference computes no gradient of {found.gradient_of} there: it stops gradients at {stops[-1]}"
    local = not (pairing or relation or lacking) and (
        (bool(found.outputs) and all(search.status[name] == "local" for name in found.outputs))
        or (not contrast and _on_own_rows(search, found, expected))
    )
    devices = [each.device for each in alike] if len(alike) < len(search.question.devices) else []
    before = search.steps[: search.order[id(found)]]
    of_variable = found.kind == "ReadVariableOp" or found.kind.startswith("Resource")
    count = sum(step.computes and search.status[step.outputs[0]] in ("same", "part") for step in before)
    return Origin(
        step=found,
        unlike=_unlike(search, found) if relation is None and not (anew or beside or choice or move) else (),
        devices=tuple(sorted(filter(None, devices))),
        count=count,
        local=local,
        expected=expected,
        contrast=contrast,
        shared=search.shared,
        turn=turn_of(search, found),
        confirmed=bool(anew or beside or moved),
        added=added,
        again=(
            _reads_alike(search, found, expected)
            and (made := from_reference(search, found)) is not None
            and found.gave(made)
        ),
        uncompared=of_variable
        or any(search.status.get(name) == "given" and name in search.maker for name in found.inputs),
    )


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


def _stop(search: Search, origin: Origin | None) -> tuple[Step, str] | None:
    """Where a gradient is lost, unless values differ before any gradient is computed."""
    begin = next((search.order[id(step)] for step in search.steps if step.gradient_of), None)
    if begin is None or (origin is not None and search.order[id(origin.step)] < begin):
        return None
    return stopped_gradient(search)


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
