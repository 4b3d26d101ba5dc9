"""The first op whose result differs although what it reads is equal.

From a wrong output the search goes back, op by op, through what has no equal in the reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from harness.judgement.diagnosis.contrast import (
    lost_write,
    written_by_each_shard,
)
from harness.judgement.diagnosis.looks import origin_of
from harness.judgement.diagnosis.mends import mended
from harness.judgement.diagnosis.observed import place_of_function
from harness.judgement.diagnosis.odd import odd_count, uneven_line
from harness.judgement.diagnosis.origins import Origin, lines_of_step, named_steps, place_of_step, sentence_of
from harness.judgement.diagnosis.parts import partial
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.recorded import MOVES, Step, titled
from harness.judgement.diagnosis.search import Search, searched
from harness.judgement.diagnosis.siblings import (
    stopped_gradient,
    unread_result,
    zeros_instead,
)


def first_difference(question: Question) -> Iterator[Cause]:
    """Name the first op of the program whose result the reference does not have, or that passes no gradient on."""
    search = searched(question)
    origin = origin_of(search)
    refused = question.refused
    if (stop := _stop(search, origin)) is not None:
        step, sentence = stop
        yield Cause(sentence, place_of_step(step, search.shared), evidence=(refused,), final=True)
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
            yield Cause(f"{titled(way.step)}{on}: {sentence}", place, evidence=(refused,), final=True)
        # The reference runs no op of this type: it computes the result in another way, so this op is hardly the fault.
        alone = not origin.contrast and all(each.kind != origin.step.kind for each in search.whole)
        if alone and not mends and (uneven := uneven_line(search, origin.expected)) is not None:
            step, sentence = uneven
            yield Cause(sentence, place_of_step(step, search.shared), evidence=evidence, final=True)
        begin = "" if origin.confirmed else "the first op whose result differs from the reference's is "
        unread = unread_result(search) if origin.local or not origin.contrast else ""
        lost = f"; no op reads {unread}" if unread else ""
        only_where = not origin.confirmed and not mends
        sentence = f"{begin}{sentence_of(origin)}{lost}{mends}"
        yield Cause(sentence, origin.place, evidence=evidence, only_where=only_where, final=True, rule=origin.code)


def located(question: Question, cause: Cause) -> Cause:
    """A cause with the first op that differs, if that is at another line, else with the line that called its own."""
    if cause.final:
        return cause
    try:
        search = searched(question)
        origin = origin_of(search)
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


def _stop(search: Search, origin: Origin | None) -> tuple[Step, str] | None:
    """Where a gradient is lost, unless values differ before any gradient is computed."""
    begin = next((search.order[id(step)] for step in search.steps if step.gradient_of), None)
    if begin is None or (origin is not None and search.order[id(origin.step)] < begin):
        return None
    return stopped_gradient(search)
