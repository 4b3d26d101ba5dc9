"""Adds up what a hardware check exercised, measured and found, and says what follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from harness.checking.check import CheckContext, CheckOutcome
from harness.hardware.advised import Advised, advised, device_of
from harness.hardware.machine import DeviceMemoryFull, Machine
from harness.records import Card, Exercised, Figure, Series, Verdict, overall

#: So many next steps are said; who reads more has the findings.
MOST_STEPS = 4


def on_machine(context: CheckContext, body: Callable[[Machine, Account], str]) -> CheckOutcome:
    """What follows from ``body``, which fills the account and gives the reason of a PASS.

    Without a machine nothing is proven; memory that cannot be had is a fault of the card that has none.
    """
    machine = cast("Machine | None", context.machine)
    if machine is None:
        return CheckOutcome(
            Verdict.UNKNOWN,
            "no machine was given to this check, so that no hardware was exercised",
            "run it through harness validate",
        )
    account = Account(machine)
    try:
        passed = body(machine, account)
    except DeviceMemoryFull as full:
        account.found(_no_room(machine, full))
        passed = ""
    return account.outcome(passed)


def _no_room(machine: Machine, full: DeviceMemoryFull) -> Advised:
    card = next((card for card in machine.cards if full.device in (card.label, card.device)), machine.cards[0])
    return advised(
        "memory",
        card,
        "allocation",
        f"{full.size_bytes} bytes",
        "no room",
        f"could not allocate {full.size_bytes} bytes",
        "look for another process that holds its memory (nvidia-smi), end it, and reset the card if there is none",
    )


def is_cpu(card: Card) -> bool:
    """Whether the card is a logical CPU, whose memory is the host's."""
    return card.label.partition(":")[0] != "GPU"


class Account:
    """What a check has exercised, measured and found so far."""

    def __init__(self, machine: Machine) -> None:
        self._cards = {card.label: card for card in machine.cards}
        self.exercised = Exercised()
        self.figures: list[Figure] = []
        self.series: list[Series] = []
        self.scope: list[str] = []
        self.measured: dict[str, float] = {}
        self._found: list[Advised] = []
        self._unproven: list[tuple[str, str]] = []

    def count(self, *cards: str, values: int = 0, ops: int = 0, programs: int = 0) -> None:
        """Add ``values`` compared and ``ops`` run in ``programs`` on cards, by their labels."""
        names = tuple(sorted({device_of(self._cards[card]) for card in cards if card in self._cards}))
        self.exercised += Exercised(programs=programs, values=values, ops=ops, devices=names)

    def found(self, *advised: Advised | None) -> None:
        """Add findings; ``None`` is none."""
        self._found += [each for each in advised if each is not None]

    def found_once(self, advised: Advised | None) -> None:
        """Add a finding, unless there is one of its kind about its device: one broken cell is seen many times."""
        known = {(each.finding.kind, each.finding.device) for each in self._found}
        if advised is not None and (advised.finding.kind, advised.finding.device) not in known:
            self._found.append(advised)

    def found_all(self, advised: Iterable[Advised]) -> None:
        """Add all findings of a rule."""
        self._found += advised

    def unproven(self, why: str, do: str) -> None:
        """Note that something could not be proven: the check is then UNKNOWN at best."""
        self._unproven.append((why, do))

    @property
    def failed(self) -> bool:
        """Whether something is wrong so far."""
        return any(each.finding.severity is Verdict.FAIL for each in self._found)

    def outcome(self, passed: str) -> CheckOutcome:
        """The outcome; ``passed`` is the reason of a PASS."""
        # The worst first: a reader may stop after one line.
        worst = sorted(self._found, key=lambda each: each.finding.severity is not Verdict.FAIL)
        said = [Verdict.PASS, *(each.finding.severity for each in worst)]
        verdict = overall([*said, Verdict.UNKNOWN] if self._unproven else said)
        steps = list(dict.fromkeys([each.do for each in worst] + [do for _, do in self._unproven]))
        more = f"; and {len(steps) - MOST_STEPS} more, see the findings" if len(steps) > MOST_STEPS else ""
        return CheckOutcome(
            verdict=verdict,
            reason=self._reason(verdict, passed, worst),
            next_step="; ".join(steps[:MOST_STEPS]) + more,
            exercised=self.exercised,
            findings=tuple(each.finding for each in worst),
            measured=self.measured,
            figures=tuple(self.figures),
            series=tuple(self.series),
            scope=tuple(self.scope),
        )

    def _reason(self, verdict: Verdict, passed: str, worst: list[Advised]) -> str:
        if verdict is Verdict.PASS:
            return passed
        if verdict is Verdict.UNKNOWN:
            return "; ".join(why for why, _ in self._unproven)
        first = worst[0].finding.message
        return f"{len(worst)} findings, the first: {first}" if len(worst) > 1 else first
