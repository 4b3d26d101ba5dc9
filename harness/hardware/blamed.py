"""Findings from what is to blame for wrong results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.hardware.advised import Advised, advised, device_of, named
from harness.hardware.majority import Blame
from harness.records import Card, Finding

_DIAGNOSE = "take it out of use, run the maker's diagnostic (dcgmi diag -r 3), and have it replaced"


def computing_findings(
    blame: Sequence[Blame], cards: Mapping[str, Card], details: Mapping[str, str]
) -> Iterator[Advised]:
    """Of :func:`~harness.hardware.majority.blame_computing`. ``details`` are by card, or ``index N``."""
    for each in blame:
        if each.kind == "card" and each.card is not None:
            sure = (
                "whatever index it worked at" if each.sure and len(cards) > 1 else "too few to tell it from its index"
            )
            if len(cards) == 1:
                sure = "no other card is there to compare with"
            text = f"computes wrong results, {_rate(each)}, {sure}; {details.get(each.card, '')}"
            yield advised(
                "corruption", cards[each.card], "known answers", "the exact result", _rate(each), text, _DIAGNOSE
            )
        elif each.kind == "index":
            yield _index(each, details)
        else:
            yield _all(each, cards, details)


def copying_findings(
    blame: Sequence[Blame], cards: Mapping[str, Card], details: Mapping[str, str]
) -> Iterator[Advised]:
    """Of :func:`~harness.hardware.majority.blame_copying`. ``details`` are by ``GPU:1 -> GPU:3``."""
    for each in blame:
        if each.card is None:
            continue
        if each.kind == "pair":
            pair = f"{each.source} -> {each.card}"
            message = f"the copy {pair} delivers wrong data, {_rate(each)}; {details.get(pair, '')}"
            found = Finding(
                "corruption", pair, device_of(cards[each.card]), "what was sent", _rate(each), message.rstrip("; ")
            )
            yield Advised(
                found,
                f"{pair}: look at nvidia-smi topo -m, at ACS and IOMMU in the BIOS (peer copies need them off), "
                "and at the bridge between the two",
            )
        else:
            way = "into" if each.kind == "into" else "out of"
            text = f"copies {way} it are wrong, {_rate(each)}, whatever card is at the other end"
            yield advised(
                "corruption",
                cards[each.card],
                f"copies {way} {each.card}",
                "what was sent",
                _rate(each),
                text,
                _DIAGNOSE,
            )


def _rate(blame: Blame) -> str:
    if not blame.intermittent:
        of = f" of {', '.join(blame.programs)}" if blame.programs else ""
        return f"in all {blame.trials} trials{of}"
    low, high = blame.interval
    share = blame.wrong / blame.trials
    return f"intermittent: {blame.wrong} of {blame.trials} trials ({share:.2%}, 95 % interval {low:.2%} to {high:.2%})"


def _index(blame: Blame, details: Mapping[str, str]) -> Advised:
    detail = details.get(f"index {blame.index}", "")
    what = f"what is computed at index {blame.index} of the shards is wrong whatever card it is on"
    message = f"{what}, {_rate(blame)}; {detail}"
    return Advised(
        Finding("corruption", f"index {blame.index}", None, "the exact result", _rate(blame), message.rstrip("; ")),
        f"index {blame.index}: no card is to blame, as the index moved over all of them; look at the program and its "
        "libraries, and try another version of TensorFlow and the driver",
    )


def _all(blame: Blame, cards: Mapping[str, Card], details: Mapping[str, str]) -> Advised:
    names = ", ".join(named(card) for card in cards.values())
    message = f"all {len(cards)} cards agree on a result that is not the exact one: {next(iter(details.values()), '')}"
    return Advised(
        Finding("corruption", "known answers", None, "the exact result", _rate(blame), message.rstrip(": ")),
        f"{names}: all alike, so that no card is to blame; look at the host's processor and memory, at the libraries, "
        "and try another version of TensorFlow",
    )
