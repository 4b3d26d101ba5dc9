"""How pairs of cards are joined: by how many NVLinks, of what rate, or by which way over PCIe."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any

from harness.devices.nvidia import bus_id
from harness.hardware.machine import Pair, PairLink

if TYPE_CHECKING:
    from harness.devices.nvidia import Card as DriverCard
    from harness.hardware.nvml import Nvml
    from harness.records import Card

#: NVML's number of a switch at the other end of a link, and its names of ways over PCIe, by their level.
_SWITCH = 2
_PCIE_WAYS = {
    0: "one board",
    10: "one PCIe switch",
    20: "several PCIe switches",
    30: "a host bridge",
    40: "one NUMA node",
    50: "the link between processors",
}


@dataclass(frozen=True, slots=True)
class CardLinks:
    """The active NVLinks of one card: to a switch, and to other cards by their PCI address; ``gbs`` of each."""

    to_switch: int = 0
    to_cards: Mapping[str, int] | None = None
    gbs: float | None = None


def pair_links(
    cards: Sequence[Card], links: Mapping[str, CardLinks], way: Callable[[Card, Card], str | None]
) -> dict[Pair, PairLink]:
    """Return the link of each ordered pair of which it is known; ``links`` are by label.

    Devices on one card have no link. Through switches, every card reaches every other one with all its active links.
    """
    found = {}
    for one, other in permutations(cards, 2):
        if one.uuid is None or other.uuid is None or (one.pci or one.uuid) == (other.pci or other.uuid):
            continue
        here, there = links.get(one.label, CardLinks()), links.get(other.label, CardLinks())
        count = min(here.to_switch, there.to_switch) or (here.to_cards or {}).get((other.pci or "").lower(), 0)
        rates = [each.gbs for each in (here, there) if each.gbs is not None]
        if count:
            found[one.label, other.label] = PairLink(count, min(rates, default=None))
        elif (path := way(one, other)) is not None:
            found[one.label, other.label] = PairLink(way=path)
    return found


def read_links(nvml: Nvml, cards: Sequence[Card], present: Sequence[Card]) -> dict[Pair, PairLink]:
    """Ask NVML how the cards are joined. ``present`` are all cards of the driver: what else is linked is a switch."""
    known = {card.pci.lower() for card in present if card.pci is not None}
    handles = {card.label: handle for card in cards if card.uuid and (handle := nvml.handle(card.uuid)) is not None}
    links = {label: _card_links(nvml, handle, known) for label, handle in handles.items()}

    def way(one: Card, other: Card) -> str | None:
        if one.label not in handles or other.label not in handles or links[one.label].to_cards is None:
            return None
        level = nvml.call("nvmlDeviceGetTopologyCommonAncestor", handles[one.label], handles[other.label])
        return _PCIE_WAYS.get(level, "PCIe") if level is not None else "PCIe"

    return pair_links(cards, links, way)


def joined_by_switches(nvml: Nvml, cards: Sequence[DriverCard]) -> bool | None:
    """Whether NVSwitches join the cards, so that they need a fabric manager; ``None`` if the links do not say."""
    known = {card.pci.lower() for card in cards if card.pci is not None}
    readings = [(nvml.reading(card.uuid, 0.0), nvml.handle(card.uuid)) for card in cards]
    if any(reading.details.fabric for reading, _ in readings):
        return True
    linked = [handle for reading, handle in readings if reading.nvlinks_total and handle is not None]
    links = [_card_links(nvml, handle, known) for handle in linked]
    if any(each.to_switch for each in links):
        return True
    # Links that lead to other cards need none; those that are down do not say where they lead.
    return None if any(not each.to_cards for each in links) else False


def _card_links(nvml: Nvml, handle: Any, known: Collection[str]) -> CardLinks:
    """Count the active links of a card by what is at their other end; ``to_cards`` is ``None`` where NVML is silent."""
    to_switch, to_cards = 0, dict[str, int]()
    for link in range(nvml.most_links):
        if nvml.call("nvmlDeviceGetNvLinkState", handle, link) != 1:
            continue
        if nvml.call("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link) == _SWITCH:
            to_switch += 1
            continue
        remote = nvml.call("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
        if remote is None:
            return CardLinks()
        address = bus_id(remote).lower()
        if address in known:
            to_cards[address] = to_cards.get(address, 0) + 1
        else:
            to_switch += 1
    return CardLinks(to_switch, to_cards, nvml.nvlink_gbs(handle))
