"""``--require``: what it accepts, and when it is met."""

from __future__ import annotations

import pytest

from harness.errors import InvalidRequirement
from harness.judgement.requirements import Requirement, absent, unmet
from harness.records import Fingerprint, GpuFacts, Verdict

GPUS = [f"/job:localhost/replica:0/task:0/device:GPU:{index}" for index in range(4)]


def machine(cards: int) -> Fingerprint:
    gpus = (GpuFacts("card"),) * cards
    return Fingerprint("2", None, "2", "3", None, None, 2, None, None, "", gpus=gpus)


@pytest.mark.parametrize(
    ("text", "devices", "cards", "met"),
    [
        ("gpu>=4", 4, 4, True),
        ("gpu>=5", 4, 4, False),
        ("gpu==4", 4, 4, True),
        ("gpu==3", 4, 4, False),
        # A shell reads an unquoted > as a redirection; so = does without it.
        ("gpu=3", 4, 4, True),
        ("gpu=5", 4, 4, False),
        # Four logical GPUs on one card are one card.
        ("gpu>=2", 4, 1, False),
        # A card that is there, and that nobody configured, is not exercised.
        ("gpu>=4", 2, 4, False),
        ("gpu>=1", 0, 0, False),
        ("device>=4", 4, 1, True),
        ("core>=2", 0, 0, True),
        ("core>=3", 4, 4, False),
    ],
)
def test_a_requirement_counts_what_can_be_used(text: str, devices: int, cards: int, met: bool) -> None:
    assert (unmet([Requirement.parse(text)], GPUS[:devices], machine(cards)) == []) is met


def test_nothing_meets_a_requirement_where_nothing_is_known() -> None:
    asked = [Requirement.parse(" gpu >= 8 ")]
    wrong = unmet(asked, (), None)
    assert wrong == [(asked[0], 0)]
    result = absent(wrong, "auto", "no driver")
    assert result.verdict is Verdict.FAIL
    assert result.findings[0].kind == "missing-device"
    assert result.findings[0].message == "gpu>=8 is required, but 0 can be used: no driver"


@pytest.mark.parametrize("text", ["", "gpu", "gpu>8", "gpus>=8", "gpu>=x", "gpu>=8,core>=2", "gpu>=-1"])
def test_what_is_no_requirement_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequirement, match="accepted: gpu=N"):
        Requirement.parse(text)
