"""Exchanges that cannot be carried out are refused in one line, and nothing is half done."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest

from harness import UsageError
from harness.fleet.engines.engine import Asked, Done, MachineRun
from harness.fleet.links.run import LinkOptions, start
from harness.fleet.store import Store

NOW = datetime(2027, 1, 31, tzinfo=timezone.utc)


class Cluster:
    """An engine of so many machines, beside one that is not idle."""

    name = "made up"
    needs_folder = False

    def __init__(self, count: int) -> None:
        self.count = count

    def machines(self) -> list[Asked]:
        return [*(Asked(f"node-{number:04}.example.org") for number in range(self.count)), Asked("away", "allocated")]

    def addresses(self, machines: Sequence[str]) -> dict[str, str]:
        return {name: name for name in machines}

    def run(self, machines: Sequence[str], work: MachineRun) -> Generator[Done, None, None]:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("count", "options", "said"),
    [
        (1, LinkOptions(), r"1 machine ready of 2 \(away: allocated\); links are between two or more"),
        (40, LinkOptions(port=65_000), None),
        (600, LinkOptions(port=65_000), "--port 65000: 601 machines need one each; accepted: up to 64935"),
        (1000, LinkOptions(), None),
        (8000, LinkOptions(), "8,000 machines: their exchanges do not fit into a command; give fewer --rounds"),
    ],
)
def test_machines_that_cannot_exchange_are_refused(
    tmp_path: Path, count: int, options: LinkOptions, said: str | None
) -> None:
    store = Store(tmp_path / "store")
    if said is None:
        _, run = start(Cluster(count), options, store, NOW)
        assert len(run.asked) == count + 1
        return
    with pytest.raises(UsageError, match=said):
        start(Cluster(count), options, store, NOW)
    assert not (tmp_path / "store").exists()
