"""Rows of a variable keep the value that they had before the call, or get what belongs to other rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from harness.judgement.diagnosis.leaves import place_of, rows_of, telling, variables_text
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.wording import first_upper, listed, rows_text


def _claims(question: Question) -> Iterator[Cause]:
    for leaf in (leaf for leaf in question.wrong if leaf.part == "state"):
        start, expected, found = leaf.start, leaf.expected, leaf.found
        if start is None or expected is None or found is None or not start.ndim or start.shape != expected.shape:
            continue
        count = len(start)
        either = replace(leaf, expected=np.concatenate([expected, start]))
        if found.shape != expected.shape or not telling(leaf) or np.all(found == start):
            continue
        places = rows_of(either)
        if places is None or not leaf.explained_by(either.expected[places]):  # type: ignore[index]
            continue
        kept = [row for row, place in enumerate(places) if place >= count]
        others = [row for row, place in enumerate(places) if place < count and place != row]
        name = variables_text([leaf])
        what = []
        if others:
            verb = "gets" if len(others) == 1 else "get"
            source = rows_text([places[row] for row in others])
            what.append(f"{rows_text(others)} of {name} {verb} the values that belong in {source}")
        if kept:
            keep = "keeps its old value" if len(kept) == 1 else "keep their old values"
            what.append(f"{rows_text(kept)} of {name} {keep}" if not others else f"{rows_text(kept)} {keep}")
        if what:
            yield Cause(first_upper(listed(what)), place_of(question, leaf))
            return


RULE = Rule("C117", "written-elsewhere", "rows of a variable not written, or written to other rows", _claims)
