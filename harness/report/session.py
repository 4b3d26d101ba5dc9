"""Adds up what the tests of a session exercised, in all processes, and summarises it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.plural import plural
from harness.records import Exercised

#: Tests that a summary lists by name; of more it lists the files.
_MOST_TESTS = 10


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """How a test used devices since its last report. It travels between processes as what ``asdict`` makes of it.

    ``needed``: whether the test asks for devices, by a fixture or the marker. ``configured`` describes the devices,
    ``None`` where they were not configured. ``unpassed`` counts verifications that did not pass. ``warned``: what those
    say that passed with warnings. ``proved``: for which inputs those that passed are proved.
    """

    needed: bool = True
    configured: str | None = None
    verifications: int = 0
    exercised: Exercised = field(default_factory=Exercised)
    unpassed: int = 0
    warned: tuple[str, ...] = ()
    proved: tuple[str, ...] = ()

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> DeviceUse:
        """Convert back; tuples may have become lists on the way."""
        exercised = {**plain["exercised"], "devices": tuple(plain["exercised"]["devices"])}
        texts = {name: tuple(plain[name]) for name in ("warned", "proved")}
        return cls(**{**plain, "exercised": Exercised(**exercised), **texts})


@dataclass(slots=True)
class SessionTotals:
    """The sum over all tests that need devices, by their ids."""

    tests: set[str] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)
    configured: set[str] = field(default_factory=set)
    verifications: int = 0
    #: How many verifications are proved, by the inputs that the proof is about.
    proved: Counter[str] = field(default_factory=Counter)
    exercised: Exercised = field(default_factory=Exercised)
    #: How many verifications did not pass, by the test.
    unpassed: Counter[str] = field(default_factory=Counter)
    #: The test and the warnings of each verification that passed with some.
    warned: list[tuple[str, str]] = field(default_factory=list)

    def add(self, test: str, use: DeviceUse, skipped: str | None) -> None:
        """Add the report of ``test``; ``skipped`` is the reason of a skip, or ``None``."""
        if use.configured is not None:
            self.configured.add(use.configured)
        self.verifications += use.verifications
        self.proved.update(use.proved)
        self.exercised += use.exercised
        if use.unpassed:
            self.unpassed[test] += use.unpassed
        self.warned += [(test, text) for text in use.warned]
        if not use.needed:
            return
        self.tests.add(test)
        if skipped is not None:
            self.skipped[test] = skipped

    @property
    def nothing_exercised(self) -> bool:
        """Whether all tests that need devices were skipped, and there were some."""
        return bool(self.tests) and self.tests == set(self.skipped)

    def _unpassed_places(self) -> Counter[str]:
        """The tests whose verifications did not pass, or their files where these are many."""
        if len(self.unpassed) <= _MOST_TESTS:
            return self.unpassed
        files: Counter[str] = Counter()
        for test, count in self.unpassed.items():
            files[test.partition("::")[0]] += count
        return files

    def lines(self) -> list[str]:
        """Summarise the session; empty where no test needed devices."""
        lines = sorted(self.configured)
        if self.verifications:
            lines.append(f"{plural(self.verifications, 'verification')}: {self.exercised}")
        if self.proved:
            counts = ", ".join(f"{count:,} for {reach}" for reach, count in sorted(self.proved.items()))
            lines.append(f"proved: {counts}")
        if self.unpassed:
            lines.append(f"{sum(self.unpassed.values())} of them did not pass:")
            lines += [f"  {count} in {place}" for place, count in self._unpassed_places().items()]
        if self.warned:
            lines.append(f"{len(self.warned)} of them passed with warnings:")
            lines += [f"  {test}: {text}" for test, text in self.warned[:_MOST_TESTS]]
            if len(self.warned) > _MOST_TESTS:
                lines.append(f"  and {len(self.warned) - _MOST_TESTS:,} more")
        if self.nothing_exercised:
            number = len(self.tests)
            skipped = (
                f"All {number:,} tests that need devices were" if number > 1 else "The only test that needs devices was"
            )
            lines.append(
                f"UNKNOWN: nothing was exercised. {skipped} skipped, so this session proves nothing about the devices. "
                "Reasons:"
            )
            lines += [f"  {count} x {why}" for why, count in Counter(self.skipped.values()).most_common()]
        return lines
