"""The op at which a program parts from the reference, and the words for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.devices.name import DeviceName
from harness.judgement.diagnosis.recorded import Step, named, titled
from harness.judgement.diagnosis.wording import listed


@dataclass(frozen=True)
class Origin:
    """The op of the program at which it parts from the reference.

    ``unlike`` are ops that made what it reads and that only moved data, or computed integers from shapes: the reference
    has no equal of their results. ``count`` equal results come before. ``expected`` is what the reference runs there.
    ``uncompared``: of something that it reads there is no value, as for want of room. ``contrast`` says how it differs
    from the same op on other devices. ``shared`` are lines that the reference runs too. ``again``: run again from the
    reference's inputs, it gives this result too. ``turn`` is the line at which it is called in another way than where
    the same line gives what the reference has. ``confirmed``: the numbers show that this is the cause. ``added``: the
    reference runs no op of its type, or, of a backward op, computes no such gradient. ``code``: of the look that
    told the contrast.
    """

    step: Step
    unlike: tuple[Step, ...]
    devices: tuple[str, ...]
    count: int
    local: bool
    expected: Step | None
    uncompared: bool = False
    contrast: str = ""
    shared: frozenset[str] = frozenset()
    again: bool = False
    turn: str = ""
    confirmed: bool = False
    added: bool = False
    code: str = ""

    @property
    def place(self) -> str | None:
        """Its line, and the one of the program from which it was called."""
        return place_of_step(self.step, self.shared, self.turn)

    @property
    def evidence(self) -> tuple[str, ...]:
        """What running it again has shown: nothing, where it reads something else than the reference's op."""
        if not self.again or self.local or self.unlike or self.contrast or self.uncompared:
            return ()
        on = f" on {self.step.on}" if self.step.device else ""
        return (f"{named(self.step)}{on}, run again on the reference's inputs, gives the same wrong result",)

    @property
    def elsewhere(self) -> bool:
        """Whether it reads results, made on other lines, that the reference does not have."""
        return any(step.place not in self.step.places for step in self.unlike)


def lines_of_step(step: Step, shared: frozenset[str], turn: str = "") -> tuple[str, ...]:
    """The line of a step; ``turn``, or the line that calls code shared with the reference; the outermost line."""
    own = turn or next((line for line in step.places if line not in shared), "")
    return tuple(dict.fromkeys(line for line in (*step.places[:1], own, *step.places[-1:]) if line))


def place_of_step(step: Step, shared: frozenset[str], turn: str = "") -> str | None:
    """Those lines as a text."""
    return " from ".join(lines_of_step(step, shared, turn)).replace(" from ", ", called at ", 1) or None


def sentence_of(origin: Origin) -> str:
    """Which op, and what is to be said of it, without its place."""
    on = f" on {listed([DeviceName.parse(name).short for name in origin.devices])}" if origin.devices else ""
    text = f"{titled(origin.step)}{on}: "
    if origin.local:
        return text + "it computes over the rows of its own shard, the reference over all rows of the batch"
    if origin.unlike:
        text += f"it reads the result of {named_steps(origin.unlike)}, which has no equal in the reference"
    elif origin.contrast:
        return text + origin.contrast
    elif origin.uncompared:
        text += "not all of its inputs were compared"
    else:
        text += (
            f"its inputs equal the reference's{f', as do {origin.count} results before it' if origin.count > 1 else ''}"
        )
        of = origin.step.gradient_of
        added = f"computes no gradient of {of} there" if of else f"runs no {origin.step.kind}"
        text += f"; the reference {added}" if origin.added else ""
    if origin.expected is not None and origin.expected.kind != origin.step.kind and not origin.added:
        text += f"; the reference runs {named(origin.expected)} there"
    return text


def named_steps(steps: Iterable[Step]) -> str:
    """The types and lines of some steps, each once."""
    return listed(list(dict.fromkeys(map(named, steps))))
