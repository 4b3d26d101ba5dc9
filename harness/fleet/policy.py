"""The policy of a site: a TOML file with its thresholds, its Xids, what its models should reach, and what it accepts.

    schema_version = 1

    [judging]
    least_effect = 0.08             # a figure nearer than this to its cohort's median is no outlier

    [plan]
    most_share = 0.1                # a plan that takes out more of the machines is not applied

    [xid]
    ignore = [31]
    actions = { "94" = "reset" }

    [[expect]]
    model = "NVIDIA H100 80GB HBM3"
    figure = "matmul bfloat16"
    at_least = 600_000
    unit = "GFLOP/s"
    source = "acceptance test of 2026-03"

    [[accept]]
    machine = "gpu-17"
    kind = "link"
    reason = "8 lanes in this slot by design"
    until = 2027-06-30

Without a file, the defaults hold.
"""

from __future__ import annotations

from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from harness.devices.toml_file import Table, parse_model, read_text
from harness.errors import InvalidPolicy
from harness.finding_kinds import KINDS
from harness.fleet.actions import TAKES_OUT, Action
from harness.records import Finding

_SHARE = "a number above 0, up to 1"
_ACTIONS = f"one of {', '.join(Action)}"
_Action = Annotated[Action, BeforeValidator(lambda given: Action(given) if isinstance(given, str) else given)]
_XID = Annotated[int, Field(ge=1, le=999)]


class Judging(Table):
    """When a machine stands out."""

    #: Of the cards that are called outliers, at most this share is sound, on average: Benjamini and Hochberg (1995).
    false_discovery_rate: float = Field(default=0.01, gt=0, lt=1, description="a number between 0 and 1")
    #: Sound cards of one kind are taken to spread by at least this share of their median, however alike they are.
    spread_floor: float = Field(default=0.02, gt=0, lt=1, description="a number between 0 and 1 (of the median)")
    #: Sound devices of one kind differ by up to 8 %.
    least_effect: float = Field(default=0.08, gt=0, lt=1, description="a number between 0 and 1 (of the median)")
    least_cards: int = Field(default=8, ge=3, description="an integer, 3 or more (cards that can be compared)")
    #: A finding on so many of the machines that have something in common is a fault of that.
    shared_share: float = Field(default=0.5, gt=0, le=1, description=_SHARE)


class Planning(Table):
    """What a plan may do."""

    most_share: float = Field(default=0.1, gt=0, le=1, description=f"{_SHARE} (of the machines)")
    take_out: tuple[_Action, ...] = Field(
        default=TAKES_OUT, strict=False, description=f"a list of actions for which a machine is drained: {_ACTIONS}"
    )


class Xids(Table):
    """What Xid errors mean at this site."""

    ignore: tuple[_XID, ...] = Field(default=(), strict=False, description="a list of Xid numbers, such as [13, 31]")
    actions: dict[Annotated[str, Field(pattern=r"^[1-9]\d{0,2}$")], _Action] = Field(
        default_factory=dict,
        description=f'a table of Xid numbers in quotes, such as "94" = "reset"; actions: {_ACTIONS}',
    )


class Expectation(Table):
    """What the cards of a model should reach."""

    model: str = Field(description="the name of a card, as the driver reports it; * stands for any text")
    figure: str = Field(description="the name of a figure in run.json, such as 'matmul bfloat16'")
    at_least: float | None = Field(default=None, description="a number: a lower value is a fault")
    at_most: float | None = Field(default=None, description="a number: a higher value is a fault")
    unit: str = Field(description="the unit of the figure in run.json, such as 'GFLOP/s'")
    source: str = Field(description="where the number comes from")

    @model_validator(mode="after")
    def _has_a_limit(self) -> Expectation:
        if self.at_least is None and self.at_most is None:
            raise ValueError("at_least or at_most is needed")
        return self


class Accepted(Table):
    """A finding that is known, and accepted for a time."""

    reason: str = Field(description="a string")
    machine: str = Field(default="*", description="the name of a machine; * stands for any text")
    kind: Literal[tuple(KINDS)] | None = Field(  # type: ignore[valid-type]
        default=None, description=f"one of {', '.join(KINDS)}"
    )
    subject: str = Field(
        default="*", description="what a finding is about, such as 'pcie width'; * stands for any text"
    )
    serial: str | None = Field(default=None, description="the serial number of a card")
    until: date | None = Field(default=None, description="a date: 2027-01-31")

    def covers(self, machine: str, serials: tuple[str, ...], finding: Finding, today: date) -> bool:
        """Whether a finding of a machine is accepted today."""
        return (
            (self.until is None or today < self.until)
            and fnmatchcase(machine, self.machine)
            and self.kind in (None, finding.kind)
            and fnmatchcase(finding.subject or finding.where, self.subject)
            and (self.serial is None or self.serial in serials)
        )

    def __str__(self) -> str:
        until = f" until {self.until}" if self.until is not None else ""
        return f"{self.machine} {self.kind or 'any finding'}{until}: {self.reason}"


class Policy(Table):
    """A whole file."""

    schema_version: Literal[1] = Field(default=1, description="1")
    judging: Judging = Field(default=Judging(), description="a table [judging]")
    plan: Planning = Field(default=Planning(), description="a table [plan]")
    xid: Xids = Field(default=Xids(), description="a table [xid]")
    expect: tuple[Expectation, ...] = Field(
        default=(), strict=False, description="a list of tables, each headed [[expect]]"
    )
    accept: tuple[Accepted, ...] = Field(
        default=(), strict=False, description="a list of tables, each headed [[accept]]"
    )


def load_policy(path: Path | None) -> Policy:
    """Read a policy; without a file, the defaults. Raise InvalidPolicy with the first wrong key."""
    if path is None:
        return Policy()
    return parse_model(path, read_text(path, InvalidPolicy), Policy, InvalidPolicy)
