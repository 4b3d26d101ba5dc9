"""Finds the card that differs from most of the others of a machine: another model, memory, or VBIOS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from harness.hardware.finding import finding
from harness.plural import plural
from harness.records import Card, Finding, Verdict

#: So many cards have to agree before another one is the odd one.
_LEAST_ALIKE = 3
#: A card with less than this share of the others' memory is there for a display.
_FOR_A_DISPLAY = 0.25
#: Cards of one model report up to this much more or less memory.
_MEMORY_SHARE = 0.02


def judge_alike(cards: Sequence[Card]) -> tuple[list[Finding], list[str]]:
    """Return the whole cards that differ from a majority of three or more, and the scope: differences without one.

    Parts of one card count once, slices under MIG not at all.
    """
    by_uuid = {card.uuid: card for card in cards if card.uuid is not None and not card.uuid.startswith("MIG-")}
    whole = list(by_uuid.values())
    found, scope = list(_models(whole)), []
    for name in dict.fromkeys(card.name for card in whole):
        alike = [card for card in whole if card.name == name]
        found += _memory(alike)
        # Boards of different makers have their own VBIOS.
        for part in dict.fromkeys(card.board_part for card in alike if card.board_part is not None):
            of_part = [card for card in alike if card.board_part == part and card.vbios is not None]
            odd, usual = _odd(of_part, lambda card: card.vbios)
            found += [_vbios(card, str(usual), len(of_part) - len(odd)) for card in odd]
            if not odd and len({card.vbios for card in of_part}) > 1:
                scope.append(
                    "VBIOS versions differ: " + ", ".join(f"{card.label} has {card.vbios}" for card in of_part)
                )
    return found, scope


def _odd(cards: Sequence[Card], fact: Callable[[Card], object]) -> tuple[list[Card], object]:
    """Return the cards without the most common value of a fact, and that value; none where too few have it."""
    if not cards:
        return [], None
    ((usual, count),) = Counter(map(fact, cards)).most_common(1)
    enough = count >= _LEAST_ALIKE and 2 * count > len(cards)
    return [card for card in cards if enough and fact(card) != usual], usual


def _models(cards: Sequence[Card]) -> Iterator[Finding]:
    odd, usual = _odd(cards, lambda card: card.name)
    sizes = [card.memory_bytes for card in cards if card.name == usual and card.memory_bytes is not None]
    for card in odd:
        if sizes and card.memory_bytes is not None and card.memory_bytes < _FOR_A_DISPLAY * max(sizes):
            continue
        yield _differs(
            card,
            "model",
            str(usual),
            card.name,
            f"is {card.name}, unlike {plural(len(cards) - len(odd), 'card')} that are {usual}",
            "find out whether it was installed by mistake: programs that share work evenly wait for the slower model",
        )


def _memory(cards: Sequence[Card]) -> Iterator[Finding]:
    known = [card for card in cards if card.memory_bytes is not None]
    odd, usual = _odd(known, lambda card: card.memory_bytes)
    for card in odd:
        size, others = card.memory_bytes or 0, int(str(usual))
        if abs(size - others) > _MEMORY_SHARE * others:
            yield _differs(
                card,
                "memory",
                f"{others / 2**20:,.0f} MiB",
                f"{size / 2**20:,.0f} MiB",
                f"has {size / 2**20:,.0f} MiB of memory, unlike {plural(len(known) - len(odd), 'other')} of its model "
                f"with {others / 2**20:,.0f} MiB",
                "compare its ECC mode (nvidia-smi -q -d ECC) and its board part number with those of the others",
            )


def _vbios(card: Card, usual: str, count: int) -> Finding:
    return _differs(
        card,
        "VBIOS",
        usual,
        str(card.vbios),
        f"has VBIOS {card.vbios}, unlike {plural(count, 'other')} of its model and board with {usual}",
        "give all cards the same VBIOS with the vendor's tool: versions may differ in clocks and power limits",
    )


def _differs(card: Card, what: str, expected: str, found: str, message: str, step: str) -> Finding:
    return finding(
        "mixed-cards",
        card,
        what,
        expected=expected,
        found=found,
        message=message,
        next_step=step,
        severity=Verdict.WARN,
        subject=what,
    )
