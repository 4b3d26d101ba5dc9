"""Differences that TensorFlow or a device makes, not the program: which settings make them go away, and which do not.

An op is accused where the same op, run again with the inputs that it had, gives something else on another device. A
graph is accused where eager code gives the right results, and the graph does too once TensorFlow leaves it as written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

#: What is fixed once TensorFlow has started, with what to set before.
_AT_START = (
    "oneDNN off (start the program with TF_ENABLE_ONEDNN_OPTS=0)",
    "deterministic ops (start the program with TF_DETERMINISTIC_OPS=1)",
)


@dataclass
class Table:
    """What makes the difference go away, what does not, and what could not be tried here."""

    gone: list[str] = field(default_factory=list)
    remains: list[str] = field(default_factory=list)
    untried: list[str] = field(default_factory=list)

    def note(self, setting: str, right: Callable[[], bool]) -> bool:
        """Try a setting: whether the results are right with it."""
        try:
            found = right()
        except Exception as error:  # noqa: BLE001 - not every op has a kernel for every setting: the table says so
            why = str(error) if isinstance(error, CannotTry) else type(error).__name__
            self.untried.append(f"{setting} ({why})")
            return False
        (self.gone if found else self.remains).append(setting)
        return found

    def lines(self) -> tuple[str, ...]:
        """The table, a line for each kind of setting."""
        rows = (
            ("the difference goes away with", self.gone),
            ("the difference stays with", self.remains),
            ("not tried", [*self.untried, *_AT_START]),
        )
        return tuple(f"{title}: {', '.join(names)}" for title, names in rows if names)


class CannotTry(Exception):
    """Why a setting cannot be tried."""


def fewer(shards: int) -> list[int]:
    """The numbers of shards that are tried instead of this one: 1, 2, 4 and so on."""
    return [2**power for power in range((shards - 1).bit_length())]
