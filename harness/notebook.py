"""What notebooks show of the results of the harness: a verdict and its sentence, and small tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from harness.plural import plural

_COLOURS = {"PASS": "#1a7f37", "FAIL": "#cf222e"}
_OTHER = "#9a6700"
#: The colours of bars, in order: those of the first parts are easily told apart by the colour-blind.
_BARS = ("#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#999999")
_BAR_PX = 240
#: With its unit.
_NUMBER = re.compile(r"-?[\d,.]+( ?\S+)?")
#: Findings of a run that a notebook shows.
_FINDINGS = 10


def block(head: str, sentences: Iterable[str], *parts: str) -> str:
    """``head`` in bold and in the colour of the verdict that it may be, the sentences, and tables or lists."""
    colour = _COLOURS.get(head, _OTHER if head in ("WARN", "UNKNOWN", "SKIP") else "inherit")
    text = "<br>".join(map(escape, sentences))
    return f'<div><b style="color:{colour}">{escape(head)}</b> {text}{"".join(parts)}</div>'


def small(text: str) -> str:
    """A line in small letters."""
    return f"<br><small>{escape(text)}</small>"


def listed(lines: Sequence[str]) -> str:
    """A list, or nothing."""
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its first column is text, and the others are numbers."""
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>{body}</table>"


def bars(rows: Mapping[str, Mapping[str, int]]) -> str:
    """A table of counts by row and by kind, with a bar for each row that shows the share of each kind."""
    kinds = list(dict.fromkeys(kind for counts in rows.values() for kind in counts))
    most = max((sum(counts.values()) for counts in rows.values()), default=0)
    colours = dict(zip(kinds, _BARS * (len(kinds) // len(_BARS) + 1), strict=False))
    marks = "".join(f'<th><span style="color:{colours[kind]}">&#9632;</span> {escape(kind)}</th>' for kind in kinds)
    body = ""
    for name, counts in rows.items():
        cells = "".join(_cell(f"{counts[kind]:,}" if counts.get(kind) else "") for kind in kinds)
        parts = "".join(
            f'<span style="display:inline-block;height:0.8em;background:{colours[kind]};'
            f'width:{_BAR_PX * count / most:.0f}px"></span>'
            for kind, count in counts.items()
        )
        body += (
            f'<tr><td style="text-align:left">{escape(name)}</td>{cells}<td style="text-align:left">{parts}</td></tr>'
        )
    return f"<table><tr><th></th>{marks}<th></th></tr>{body}</table>" if rows else ""


class ShownRun:
    """What is shown of a :class:`harness.records.RunRecord`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<RunRecord {' '.join(_sentences(self))}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict, the devices, what was found, and each check."""
        record: Any = self
        rows = [(str(each.verdict), each.check, str(each.exercised), each.reason) for each in record.results]
        findings = [
            f"{each.check}: [{finding.code} {finding.kind}] {finding.message}"
            for each in record.results
            for finding in each.findings
        ]
        cards = small(", ".join(f"{card.label} {card.name}" for card in record.cards))
        head, *sentences = _sentences(record)
        checks = table(("", "check", "exercised", "proved, or why not"), rows)
        return block(head, sentences, cards, listed(findings[:_FINDINGS]), checks)


def _sentences(record: Any) -> list[str]:
    done = f"{plural(len(record.results), 'check')} on {record.spec} in {record.elapsed_s:,.0f} s"
    ended = "" if record.complete else "; the run did not end"
    return [str(record.verdict), f"{done}{ended}"]


def _cell(text: str) -> str:
    return f'<td style="text-align:{"right" if _NUMBER.fullmatch(text) else "left"}">{escape(text)}</td>'
