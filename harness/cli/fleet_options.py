"""The options that several commands of ``harness fleet`` have."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.fleet.policy import Policy
    from harness.fleet.store import Store

DEFAULT_STORE = Path("fleet")
StoreOption = Annotated[
    Path, typer.Option("--store", metavar="DIR", file_okay=False, help="The folder with the records of all machines.")
]
PolicyOption = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", dir_okay=False, help="The policy of the site, in TOML.")
]
AsOfOption = Annotated[
    str | None,
    typer.Option("--as-of", metavar="DATE", help="Judge as on this day, such as 2027-01-31 (default: today)."),
]


def moment(given: str | None) -> datetime:
    """Return the end of a day, or now."""
    if given is None:
        return datetime.now(timezone.utc)
    from harness.fleet.seen import parse_time

    made = parse_time(given)
    if made is None:
        raise UsageError(f"--as-of {given!r}; accepted: a date, such as 2027-01-31")
    return made


def opened(folder: Path, policy: Path | None) -> tuple[Store, Policy]:
    """Open the store and read the policy, both before anything is done."""
    from harness.fleet.policy import load_policy
    from harness.fleet.store import Store

    return Store(folder), load_policy(policy)
