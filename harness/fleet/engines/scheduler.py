"""What a scheduler has to be able to do with a node: say its state, take it out of service, and bring it back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

#: The reason of a node that the harness took out of service begins with this. Any other is left alone.
OWN = "harness:"


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node as its scheduler sees it. ``why`` is empty if it can be given work now."""

    name: str
    #: Whether nobody works on it, and it may be given work.
    idle: bool
    #: Whether somebody has taken it out of service, with the reason given.
    out: bool
    reason: str = ""
    state: str = ""

    @property
    def is_own(self) -> bool:
        """Whether the harness took it out of service."""
        return self.out and self.reason.startswith(OWN)


class Scheduler(Protocol):
    """A scheduler of nodes."""

    name: str

    def states(self) -> dict[str, NodeState]:
        """Return all nodes by name. Raise EngineError if the scheduler does not answer."""

    def take_out(self, node: str, action: str, reason: str) -> list[list[str]]:
        """Return the commands that take a node out of service."""

    def bring_back(self, node: str) -> list[list[str]]:
        """Return the commands that undo :meth:`take_out`."""
