"""Hardware that a run requires (``gpu>=8``). Missing hardware is then a FAIL, not merely less to check."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.devices.name import DeviceName
from harness.errors import InvalidRequirement
from harness.records import CheckResult, Exercised, Finding, Fingerprint, Verdict

_FORM = re.compile(r"\s*(gpu|core|device)\s*(>=|==|=)\s*(\d{1,4})\s*")


@dataclass(frozen=True, slots=True)
class Requirement:
    """``kind``: ``gpu`` (cards that TensorFlow can use), ``core`` (CPU cores) or ``device`` (configured devices).

    ``=`` means ``>=``, because a shell takes an unquoted ``>`` as a redirection.
    """

    kind: str
    exact: bool
    count: int

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Parse ``gpu>=8``. Raise InvalidRequirement if it is not of that form."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise InvalidRequirement(text)
        return cls(match[1], match[2] == "==", int(match[3]))

    def __str__(self) -> str:
        return f"{self.kind}{'==' if self.exact else '>='}{self.count}"

    def met_by(self, count: int) -> bool:
        """Whether ``count`` of that kind are enough."""
        return count == self.count if self.exact else count >= self.count


def unmet(
    requirements: Iterable[Requirement], devices: Sequence[str], fingerprint: Fingerprint | None
) -> list[tuple[Requirement, int]]:
    """Return the requirements that are not met, each with the number found. ``devices`` are full names."""
    used = sum(DeviceName.parse(name).kind == "GPU" for name in devices)
    # Several logical GPUs may share one card, and a card that is not configured is not exercised.
    cards = min(used, len(fingerprint.gpus)) if fingerprint is not None else 0
    cores = fingerprint.cores_logical if fingerprint is not None else None
    counts = {"gpu": cards, "core": cores or 0, "device": len(devices)}
    return [(each, counts[each.kind]) for each in requirements if not each.met_by(counts[each.kind])]


#: The name of the result that reports missing hardware.
REQUIRED = "required"
_COMPARE = (
    "compare the output of `harness devices` with that of `nvidia-smi -L`; a card in neither list is not powered, not "
    "seated, or not passed to the container; "
)


#: What is known to keep all GPUs from being used, and what to do about it.
_KNOWN = {
    "driver is not loaded": "install or load NVIDIA's driver (modprobe nvidia; look at dmesg and at Secure Boot): the "
    "GPUs are on the PCI bus; ",
}


def absent(unmet_ones: Sequence[tuple[Requirement, int]], spec: str, why: str = "") -> CheckResult:
    """Return the result for missing hardware. ``why`` is what TensorFlow or the driver reported."""
    known = next((step for words, step in _KNOWN.items() if words in why), _COMPARE)
    gpus_lack = any(each.kind == "gpu" and count < each.count for each, count in unmet_ones)
    findings = tuple(
        Finding(
            "missing-device",
            "--require",
            None,
            str(requirement),
            str(count),
            f"{requirement} is required, but {count} can be used{f': {why}' if why else ''}",
        )
        for requirement, count in unmet_ones
    )
    return CheckResult(
        REQUIRED,
        Verdict.FAIL,
        "; ".join(finding.message for finding in findings),
        f"{known if gpus_lack else ''}without --require, the checks run on what is available",
        Exercised(),
        findings,
        spec=spec,
    )
