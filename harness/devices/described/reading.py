"""Reads a description of a machine, and refuses what does not fit together."""

from __future__ import annotations

from pathlib import Path

from harness.devices.described.description import MOST_LINKS, SENSORS, Description
from harness.devices.described.effects import hides, without_effect
from harness.devices.described.models import MODELS
from harness.devices.described.order import nvlinks_of
from harness.devices.toml_file import parse_model, read_text
from harness.errors import InvalidDescription
from harness.plural import plural


def load_description(path: Path) -> Description:
    """Read and validate a description. Raise InvalidDescription as :func:`read_description` does."""
    return read_description(path, read_text(path, InvalidDescription))


def read_description(path: Path | str, text: str) -> Description:
    """Parse and validate the text of a description; ``path`` is for messages.

    Raise InvalidDescription with the first wrong key, its value and what is accepted.
    """
    made = parse_model(path, text, Description, InvalidDescription)
    cards = made.cards
    models = f"one of {', '.join(MODELS)}; or another model together with the key `compute_capability`"
    if cards.model not in MODELS and cards.compute_capability is None:
        raise InvalidDescription(path, "cards.model", cards.model, models)
    for number, own in enumerate(made.card):
        if own.card >= cards.count or own.card in [each.card for each in made.card[:number]]:
            accepted = (
                f"a slot from 0 to {cards.count - 1} that no other table [[card]] names: the machine has "
                f"{plural(cards.count, 'card')}"
            )
            raise InvalidDescription(path, f"card[{number}].card", own.card, accepted)
        if own.model is not None and own.model not in MODELS and own.compute_capability is None:
            raise InvalidDescription(path, f"card[{number}].model", own.model, models)
        if own.model is None and own.compute_capability is not None:
            accepted = "this key only together with the key `model`"
            raise InvalidDescription(path, f"card[{number}].compute_capability", own.compute_capability, accepted)
    for name in cards.without:
        if name not in SENSORS:
            raise InvalidDescription(path, "cards.without", name, "one of " + ", ".join(sorted(SENSORS)))
    for bridge in cards.bridges:
        between = set(bridge[:2])
        if len(bridge) != 3 or len(between) != 2 or not between <= set(range(cards.count)) or bridge[2] < 1:
            accepted = (
                f"two different slots from 0 to {cards.count - 1} and the number of NVLinks between them, such as "
                "[0, 1, 12]"
            )
            raise InvalidDescription(path, "cards.bridges", bridge, accepted)
    for slot in {end for bridge in cards.bridges for end in bridge[:2]}:
        if (links := nvlinks_of(made, slot)) > MOST_LINKS:
            accepted = f"up to {MOST_LINKS} links for each card; card {slot} has {links:,}"
            raise InvalidDescription(path, "cards.bridges", cards.bridges, accepted)
    for number, fault in enumerate(made.fault):
        named = [("card", getattr(fault, "card", None))]
        named += [("pair", each) for each in getattr(fault, "pair", [])]
        named += [("cards", each) for each in getattr(fault, "cards", [])]
        for key, value in named:
            if value is not None and not 0 <= value < cards.count:
                accepted = f"a number from 0 to {cards.count - 1}: the machine has {plural(cards.count, 'card')}"
                raise InvalidDescription(path, f"fault[{number}].{key}", value, accepted)
        for key in ("pair", "cards"):
            ends = getattr(fault, key, None)
            if ends is not None and ends[0] == ends[1]:
                raise InvalidDescription(path, f"fault[{number}].{key}", ends, "two different cards")
        if (wrong := without_effect(made, fault)) is not None:
            raise InvalidDescription(path, f"fault[{number}].{wrong[0]}", *wrong[1:])
    for number, fault in enumerate(made.fault):
        for later, other in enumerate(made.fault[number + 1 :], number + 1):
            if (accepted_beside := hides(fault, other, f"fault[{later}]")) is not None:
                raise InvalidDescription(path, f"fault[{number}].kind", fault.kind, accepted_beside)
    return made
