"""What to do with a machine: few actions, each with what it means for who does it."""

from __future__ import annotations

from enum import Enum

from harness.records import Finding
from harness.report.card_verdicts import action_of


class Action(str, Enum):
    """An action, from the one that asks for most to the one that asks for least."""

    REPLACE = "replace"
    RESEAT = "reseat"
    RESET = "reset"
    UPDATE = "update"
    DRAIN = "drain"
    RERUN = "rerun"
    WATCH = "watch"

    def __str__(self) -> str:
        return self.value


#: What each means.
MEANING = {
    Action.REPLACE: "the card is defective: have it replaced",
    Action.RESEAT: "a connection is bad: reseat the card, or look at its cables, riser and links",
    Action.RESET: "a state is bad: reset the card, restart its services, or reboot the machine",
    Action.UPDATE: "software or a setting is wrong: update it, or set it right",
    Action.DRAIN: "take it out of service until someone has looked at it",
    Action.RERUN: "not confirmed: run it again beside a control machine",
    Action.WATCH: "may stay in service: watch it",
}
#: The action of each thing that the report of one machine advises. Any other: someone has to look at it.
_OF_ADVICE = {
    "replace": Action.REPLACE,
    "power the node off and on, and reseat": Action.RESEAT,
    "reseat": Action.RESEAT,
    "look at its power supply": Action.RESEAT,
    "swap with another, and see whether the fault moves": Action.RESEAT,
    "move to another slot, and see whether the fault moves": Action.RESEAT,
    "move to another slot": Action.RESEAT,
    "look at its NVLinks": Action.RESEAT,
    "look at its links": Action.RESEAT,
    "look at the link between them": Action.RESEAT,
    "reset": Action.RESET,
    "reboot the node": Action.RESET,
    "start the fabric manager": Action.RESET,
    "start the MPS server": Action.RESET,
    "free its memory, or reset": Action.RESET,
    "remove CUDA's compatibility package": Action.UPDATE,
    "remove the wrong library from LD_LIBRARY_PATH": Action.UPDATE,
    "raise its power limit": Action.UPDATE,
    "find out why TensorFlow skips it": Action.UPDATE,
    "look at CUDA_VISIBLE_DEVICES": Action.UPDATE,
    "look at the permissions of /dev/nvidia*": Action.UPDATE,
    "find out why CUDA does not start": Action.UPDATE,
    "use a TensorFlow that supports it": Action.UPDATE,
    "install a newer driver": Action.UPDATE,
    "try another TensorFlow and driver": Action.UPDATE,
    "update its VBIOS": Action.UPDATE,
    "compare its ECC mode with that of the other cards": Action.UPDATE,
    "watch": Action.WATCH,
}
#: Actions for which a machine is taken out of service, unless the policy says otherwise.
TAKES_OUT = (Action.REPLACE, Action.RESEAT, Action.RESET, Action.UPDATE, Action.DRAIN)


def action_for(advice: str) -> Action:
    """Return the action for what the report of one machine advises."""
    return _OF_ADVICE.get(advice, Action.DRAIN)


def action_of_finding(finding: Finding) -> Action:
    """Return the action for a finding by itself."""
    if finding.kind == "software":
        return Action.UPDATE
    return action_for(action_of(finding))
