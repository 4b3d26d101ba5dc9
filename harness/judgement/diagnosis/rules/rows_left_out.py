"""The results are the reference's for fewer rows than there are, or with some rows twice, or paired with others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from harness.judgement.diagnosis.joins import with_rows
from harness.judgement.diagnosis.layout import partitions
from harness.judgement.diagnosis.leaves import explains
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.wording import dropped_text, first_upper, listed, rows_text, sizes_text


def _claims(question: Question) -> Iterator[Cause]:
    wrong = [leaf for leaf in question.wrong if leaf.part != "gradients"]
    seen: list[object] = []
    for layout in partitions(question):
        covered, every = layout.covered, list(range(layout.rows))
        whole = sorted(covered) == every
        cuts = {index: (axis, list(chain(*shards))) for index, (axis, shards) in layout.cuts.items()}
        # Another input whose rows, all of them, go with other rows of this one.
        strays = [
            (index, rows)
            for index, (axis, rows) in cuts.items()
            if not axis and sorted(rows) == every and rows != covered
        ]
        key = covered, [rows for _, rows in strays]
        if layout.axis or (whole and not strays) or key in seen or not layout.seen:
            continue
        seen.append(key)
        inputs = question.with_leaves(with_rows(question.reference.leaves(), cuts))
        if not explains(question.run(inputs=inputs, gradients=False), wrong):
            continue
        if whole:
            index, rows = strays[0]
            names, at = question.input_names, next(row for row, other in enumerate(covered) if rows[row] != other)
            sentence = (
                f"{names[index]} and {names[layout.main]} are split into different rows: row {covered[at]} of "
                f"{names[layout.main]} is paired with row {rows[at]} of {names[index]}"
            )
        else:
            missing = sorted(set(every) - set(covered))
            doubled = sorted({row for row in covered if covered.count(row) > 1})
            what = [dropped_text(missing, layout.rows)] if missing else []
            if doubled:
                are = "is" if len(doubled) == 1 else "are"
                what.append(f"{rows_text(doubled)} of {layout.rows} {are} counted twice")
            sentence = first_upper(f"{listed(what)}: the batch is split into {sizes_text(layout.sizes)}")
        yield Cause(sentence, layout.place)
        return


RULE = Rule("C102", "rows-left-out", "rows left out of a sum or mean", _claims)
