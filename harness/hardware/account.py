"""Collects what a hardware check exercised, measured and found on the cards of a machine, and derives its result."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Mapping
from typing import cast

from harness.checking.check import CheckContext, unknown
from harness.checking.tally import Tally
from harness.devices.nvidia import nvml_code, silenced
from harness.hardware.counters import judge_repairs, judge_silence
from harness.hardware.finding import FREE_MEMORY, device_of, finding, joined
from harness.hardware.inside import from_inside
from harness.hardware.machine import DeviceMemoryFull, Machine
from harness.records import Card, CheckResult, Exercised, Finding, Verdict

#: Next steps shown for a whole check; the findings have all of them.
MOST_STEPS = 4


def on_machine(context: CheckContext, body: Callable[[Machine, Account], str]) -> CheckResult:
    """Run ``body``, which fills the account and returns the reason of a PASS.

    Without a machine or a card the result is UNKNOWN. If the body raises and a card no longer answers the driver, that
    is a finding about this card, and the body runs again on the others. A failed allocation where all cards answer is a
    finding too.
    """
    machine = cast("Machine | None", context.machine)
    if machine is None:
        return unknown("no machine was given, so no hardware was exercised", "run this check with `harness validate`")
    nothing = not machine.cards and not machine.present
    if nothing and nvml_code() is None:
        return _without_devices(context)
    account = Account(machine)
    passed = ""
    on: Machine | None = machine
    while on is not None:
        on, passed = _attempt(on, account, body)
        if account.cut_short:
            gc.collect()  # what was held would be missing from what follows
    if nothing and not account.findings:
        return _without_devices(context)
    return account.result_of_cards(passed)


def _without_devices(context: CheckContext) -> CheckResult:
    return unknown(context.devices.reason or "no devices", "select devices with --devices, such as cpu:2")


def _attempt(machine: Machine, account: Account, body: Callable[[Machine, Account], str]) -> tuple[Machine | None, str]:
    """Run ``body`` once. Where cards were lost, return the machine without them, which is to be tested all the same."""
    try:
        return None, body(machine, account)
    except Exception as error:
        lost = silenced(card.uuid for card in machine.cards if card.uuid is not None)
        if lost:
            account.add_lost(lost, error, machine)
            for card in machine.cards:
                # What the others wait for is known without the load that has ended here.
                if card.is_gpu and card.uuid not in lost:
                    account.found(*judge_repairs(card, machine.reading(card.label)))
            left = [card.label for card in machine.cards if card.uuid not in lost]
            without = getattr(machine, "only", None)
            if without is None or not left or len(left) == len(machine.cards):
                return None, ""
            account.go_on(left)
            return cast("Machine", without(left)), ""
        if isinstance(error, DeviceMemoryFull):
            full = error.device
            card = next((card for card in machine.cards if full in (card.label, card.device)), machine.cards[0])
            account.add_full(card, error)
            return None, ""
        raise


class Account(Tally):
    """What a check has exercised, measured and found so far."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine
        #: By label.
        self.cards = {card.label: card for card in machine.cards}
        self._known = tuple({card.label: card for card in (*machine.cards, *machine.present)}.values())
        self._labels = {device_of(card): card.label for card in (*machine.cards, *machine.present)}
        #: Whether a card was lost meanwhile.
        self.cut_short = False

    def count(self, *labels: str, values: int = 0, ops: int = 0, programs: int = 0) -> None:
        """Add ``values`` compared and ``ops`` run in ``programs`` on cards."""
        names = tuple(device_of(self.cards[label]) for label in labels)
        self.exercised += Exercised(programs=programs, values=values, ops=ops, devices=names)

    def found_once(self, found: Finding | None) -> None:
        """Add a finding unless there is one of its kind about its device: one broken cell is seen many times."""
        if found is not None and (found.kind, found.device) not in {(each.kind, each.device) for each in self.findings}:
            self.findings.append(found)

    def add_full(self, card: Card, full: DeviceMemoryFull) -> None:
        """Add a finding, once for a card, that it lacks memory."""
        size = f"{full.size_bytes:,} bytes"
        self.found_once(
            finding(
                "memory",
                card,
                "allocation",
                expected=size,
                found="no memory",
                message=f"could not allocate {size}",
                next_step=FREE_MEMORY,
            )
        )

    def add_lost(self, lost: Mapping[str, str], error: Exception, machine: Machine) -> None:
        """Add a finding for each card that no longer answers the driver, which ended the check by ``error``.

        It names the Xid that the driver has reported of the card.
        """
        self.cut_short = True
        for card in self.cards.values():
            if (why := lost.get(card.uuid or "")) is not None:
                codes = machine.reading(card.label).xid
                named = f", after Xid {', '.join(map(str, sorted(set(codes))))}" if codes else ""
                self.found(judge_silence(card, f"{why}{named}"))
        self.scope.append(f"not completed: {type(error).__name__}: {error}")
        # What was exercised before says nothing of the other cards.
        self.exercised = Exercised()

    def go_on(self, labels: Collection[str]) -> None:
        """Take the check from its start again, on these cards."""
        self.cards = {label: card for label, card in self.cards.items() if label in labels}
        self.figures, self.series, self.measured = [], [], {}
        self.scope.append(f"the check then ran again on {', '.join(self.cards)}")

    def result_of_cards(self, passed: str) -> CheckResult:
        """Return the result; ``passed`` is the reason of a PASS."""
        found = joined(dict.fromkeys(self.findings), self._known)
        inside = from_inside(found)
        if inside != found and self._machine.software().around.container:
            found = inside
        # The worst first: a reader may stop after one line.
        self.findings = sorted(found, key=lambda each: each.severity is not Verdict.FAIL)
        return self.result(passed, self._next_step())

    def _told(self, finding: Finding) -> str:
        return finding.message  # it names the card

    def _next_step(self) -> str:
        steps: dict[str, list[str]] = {}
        for each in self.findings:
            name = " -> ".join(each.pair) if each.pair else self._labels.get(each.device or "", "")
            steps.setdefault(each.next_step, []).append(name)
        shown = [
            f"{', '.join(filter(None, dict.fromkeys(names)))}: {step}".removeprefix(": ")
            for step, names in steps.items()
            if step
        ]
        shown += dict.fromkeys(step for _, step in self._unproven)
        more = f"; and {len(shown) - MOST_STEPS} more, see the findings" if len(shown) > MOST_STEPS else ""
        return "; ".join(shown[:MOST_STEPS]) + more
