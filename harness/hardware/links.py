"""Judges the links of a card: PCIe width, generation and replays under load, and NVLinks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.hardware.advised import Advised, advised
from harness.hardware.telemetry import Reading
from harness.records import Card, Figure, Verdict

#: One direction of one PCIe lane by generation, in GB/s (1e9), after line coding (PCI-SIG base specifications).
PCIE_LANE_GBS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
#: From so many replays on while it was watched, a link is bad and not only restless.
MANY_REPLAYS = 10


@dataclass(frozen=True, slots=True)
class Watched:
    """The sensors of one card: before the load, and several times under it."""

    card: Card
    before: Reading
    during: tuple[Reading, ...]


def pcie_peak_gbs(reading: Reading) -> float | None:
    """What the card's PCIe link can carry one way at its best, in GB/s; ``None`` where it is not known."""
    lane = PCIE_LANE_GBS.get(reading.pcie_generation_max or 0)
    return lane * reading.pcie_width_max if lane is not None and reading.pcie_width_max else None


def judge_links(watched: Watched, others: Sequence[Watched] = ()) -> Iterator[Advised]:
    """What is wrong with the links of a card. ``others`` are all cards of the same model, this one too."""
    yield from _pcie(watched)
    yield from _replays(watched)
    yield from _nvlinks(watched, others)


def link_figures(watched: Watched) -> Iterator[Figure]:
    """Width and generation of the card's PCIe link under load, beside what card and slot can do."""
    label = watched.card.label
    for name, unit, (found, most) in (
        ("PCIe width", "lanes", _width(watched)),
        ("PCIe generation", "", _generation(watched)),
    ):
        if found is not None:
            against = None if most is None else "what the card and its slot can do"
            yield Figure(f"{name} under load", found, unit, label, expected=most, expected_from=against)


def _width(watched: Watched) -> tuple[int | None, int | None]:
    # An idle link reports a low speed: what counts is the best that was seen under load.
    return (
        max((each.pcie_width for each in watched.during if each.pcie_width is not None), default=None),
        max((each.pcie_width_max for each in watched.during if each.pcie_width_max is not None), default=None),
    )


def _generation(watched: Watched) -> tuple[int | None, int | None]:
    return (
        max((each.pcie_generation for each in watched.during if each.pcie_generation is not None), default=None),
        max(
            (each.pcie_generation_max for each in watched.during if each.pcie_generation_max is not None), default=None
        ),
    )


def _pcie(watched: Watched) -> Iterator[Advised]:
    width, most = _width(watched)
    if width is not None and most is not None and width < most:
        yield advised(
            "link",
            watched.card,
            "PCIe width under load",
            f"x{most}",
            f"x{width}",
            f"runs at x{width} of x{most}",
            "reseat the card, or look at the BIOS setting of its slot and at its riser",
        )
    generation, newest = _generation(watched)
    if generation is not None and newest is not None and generation < newest:
        yield advised(
            "link",
            watched.card,
            "PCIe generation under load",
            f"generation {newest}",
            f"generation {generation}",
            f"runs at PCIe generation {generation} of {newest} under load",
            "reseat the card, and look at the BIOS setting of its slot: link speed should be automatic",
        )


def _replays(watched: Watched) -> Iterator[Advised]:
    seen = [each.pcie_replays for each in (watched.before, *watched.during) if each.pcie_replays is not None]
    grown = max(seen) - seen[0] if seen else 0
    if grown:
        yield advised(
            "link",
            watched.card,
            "PCIe replays under load",
            "no more replays",
            f"{grown} more",
            f"had to send {grown} PCIe packets again under load",
            "reseat the card and its riser or cable; a link that replays loses bandwidth and then fails",
            Verdict.FAIL if grown >= MANY_REPLAYS else Verdict.WARN,
        )


def _nvlinks(watched: Watched, others: Sequence[Watched]) -> Iterator[Advised]:
    # Cards have links that no board connects, so that a card is held against its like.
    active = _fewest(watched)
    best = max((count for each in others if (count := _most(each)) is not None), default=None)
    if active is not None and best is not None and active < best:
        yield advised(
            "link",
            watched.card,
            "NVLinks under load",
            f"{best} active, as on the other cards",
            f"{active} active",
            f"has {active} NVLinks active, other cards have {best}",
            "look at nvidia-smi nvlink --status, reseat the card or its bridge, and see that the fabric manager runs",
        )


def _fewest(watched: Watched) -> int | None:
    return min((each.nvlinks_active for each in watched.during if each.nvlinks_active is not None), default=None)


def _most(watched: Watched) -> int | None:
    return max((each.nvlinks_active for each in watched.during if each.nvlinks_active is not None), default=None)
