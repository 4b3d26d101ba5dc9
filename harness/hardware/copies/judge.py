"""Names the card or the pair of cards to which copies of a wrong bandwidth belong.

A card that is wrong in most of its copies is named; one ordered pair that is wrong by itself is named as a pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.hardware.finding import amount, finding
from harness.hardware.machine import HOST
from harness.hardware.rates import BOTH_WAYS, TOO_FAST, Offence
from harness.records import Card, Figure, Finding, Verdict

_SLOW = (
    "look at nvidia-smi topo -m and at the card's PCIe width under load (check 'sustained-load'), and reseat the card"
)
_SLOW_PAIR = (
    "look at nvidia-smi topo -m and at the PCIe width of both cards under load (check 'sustained-load'), and reseat "
    "the cards"
)
_SLOW_CPU = "look for other programs that use the CPU or the host's memory, and run this check again"


def copy_findings(
    offences: Sequence[Offence], copies: Sequence[Figure], cards: Mapping[str, Card]
) -> Iterator[Finding]:
    """Yield the findings for ``copies`` of one name and size, of which ``offences`` are outside of their limits."""
    left = list(offences)
    while left:
        wrong = {label: sum(label in _ends(each.figure) for each in left) for label in cards}
        label = max(wrong, key=lambda each: wrong[each])
        of = sum(label in _ends(copy) for copy in copies)
        mine = [each for each in left if label in _ends(each.figure)]
        if HOST not in _ends(mine[0].figure) and (wrong[label] <= of / 2 or of <= 2):
            yield from (_of_pair(each) for each in left)
            return
        yield _of_card(cards[label], mine)
        left = [each for each in left if label not in _ends(each.figure)]


def _ends(copy: Figure) -> tuple[str, ...]:
    return (copy.device or "", copy.peer or "")


def _of_card(card: Card, mine: Sequence[Offence]) -> Finding:
    worst = min(mine, key=lambda each: -each.figure.value if each.too_fast else each.figure.value)
    copy, speed = worst.figure, amount(worst.figure.value, worst.figure.unit)
    copied = f"{copy.name} of {copy.size_bytes or 0:,} bytes"
    return finding(
        "rate" if worst.too_fast else "link",
        card,
        copied if len(mine) == 1 else f"{copied}, {len(mine)} copies",
        expected=worst.expected,
        found=speed,
        message=f"{'copies impossibly fast' if worst.too_fast else 'copies too slowly'}: {speed} from {copy.device} to "
        f"{copy.peer}, {copy.size_bytes or 0:,} bytes{' both ways' if copy.name == BOTH_WAYS else ''}",
        next_step=TOO_FAST if worst.too_fast else _SLOW if card.is_gpu else _SLOW_CPU,
        severity=Verdict.FAIL if any(each.severity is Verdict.FAIL for each in mine) else Verdict.WARN,
        subject=copy.name,
    )


def _of_pair(offence: Offence) -> Finding:
    copy, speed = offence.figure, amount(offence.figure.value, offence.figure.unit)
    source, target = _ends(copy)
    return finding(
        "rate" if offence.too_fast else "link",
        offence.card,
        f"{source} -> {target}, {copy.name} of {copy.size_bytes or 0:,} bytes",
        expected=offence.expected,
        found=speed,
        message=f"the copy {source} -> {target} runs at only {speed}"
        if not offence.too_fast
        else f"the copy {source} -> {target} is impossibly fast: {speed}",
        next_step=TOO_FAST if offence.too_fast else _SLOW_PAIR if offence.card.is_gpu else _SLOW_CPU,
        severity=offence.severity,
        subject=copy.name,
        pair=(source, target),
    )
