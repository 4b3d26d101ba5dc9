"""Takes the findings of planted faults from runs that really happened: ``observe_faults.py KIND=RUN.json#SLOT …``.

Prints the content of ``observed_faults.json``: for each kind of fault what ``harness validate --fake`` found on the
described machine that had it, with the labels and PCI ids of its cards as placeholders, so that the fault can be put on
any card. ``#1-3`` is the link between two cards, and without a slot it is the machine itself.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

_PATH = re.compile(r"(?:/[\w.-]+)+/(?=[\w.-]+)")


def observed(path: Path, slots: tuple[int, ...]) -> dict[str, Any]:
    """The failing results of a run, with the findings about the cards in ``slots`` alone; all of them without slots."""
    record = json.loads(path.read_text(encoding="utf-8"))
    cards = {card["label"]: card for card in record["cards"]}
    by_slot = {slot: [c for c in cards.values() if c["label"] in (f"GPU:{slot}", f"nvml:{slot}")] for slot in slots}
    text = json.dumps(
        {
            result["check"]: [_without_stacks(each) for each in result["findings"] if _is_about(each, slots)]
            for result in record["results"]
            if any(_is_about(each, slots) for each in result["findings"])
        }
    )
    for letter, slot in zip("AB", slots, strict=False):
        for card in by_slot[slot]:
            text = re.sub(rf"\b(GPU|nvml):{slot}\b", rf"\1:<{letter}>", text)
            text = text.replace(card["pci"] or "no PCI id", f"<PCI {letter}>")
    errors = [card["error"] for found in by_slot.values() for card in found if card["error"]]
    return {"findings": json.loads(text), "error": errors[0] if errors else None}


def _without_stacks(finding: dict[str, Any]) -> dict[str, Any]:
    """Without what is of one machine: where a program stood, and the paths of its files."""
    stacks = finding["kind"] == "error"
    return {**finding, "found": "" if stacks else finding["found"], "message": _PATH.sub("", finding["message"])}


def _is_about(finding: dict[str, Any], slots: tuple[int, ...]) -> bool:
    if not slots:
        return finding["pair"] is None and finding["device"] is None
    if len(slots) == 2:
        return bool(finding["pair"] == [f"GPU:{slot}" for slot in slots])
    return finding["pair"] is None and bool(re.search(rf"(GPU|nvml):{slots[0]}\b", finding["device"] or ""))


if __name__ == "__main__":
    found = {}
    for argument in sys.argv[1:]:
        kind, _, rest = argument.partition("=")
        name, _, where = rest.partition("#")
        found[kind] = observed(Path(name), tuple(int(slot) for slot in where.split("-") if slot))
        assert found[kind]["findings"], f"{argument}: no finding"
    print(json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True))
