"""Next steps inside a container: what only the host can do is handed to it, and what the container can do stays."""

from __future__ import annotations

import pytest

from harness.hardware.cards.judge import judge_start
from harness.hardware.inside import step_from_inside
from harness.hardware.surroundings import surroundings
from harness.records import Card

CARD = Card("GPU:0", "NVIDIA H100", kind="GPU", uuid="GPU-0")
BARE = Card("0000:1b:00.0", "NVIDIA H100", kind="GPU")


@pytest.mark.parametrize(
    ("step", "inside"),
    [
        ("read dmesg, and reboot the node", "read dmesg, and have the host rebooted"),
        ("run nvidia-smi --gpu-reset, or reboot the node", "on the host, run nvidia-smi --gpu-reset"),
        (
            "the driver asks for a reset: nvidia-smi --gpu-reset",
            "the driver asks for a reset: on the host, nvidia-smi --gpu-reset",
        ),
        ("power the node off and on, and reseat the card", "have the host powered off and on, and reseat the card"),
        ("sudo nvidia-smi -rgc", "on the host, sudo nvidia-smi -rgc"),
    ],
)
def test_what_only_the_host_can_do_is_handed_to_it(step: str, inside: str) -> None:
    assert step_from_inside(step) == inside
    assert step_from_inside(inside) == inside


@pytest.mark.parametrize("step", ["have it replaced", "start the container with --gpus all", "free its memory"])
def test_what_a_container_can_do_stays(step: str) -> None:
    assert step_from_inside(step) == step


def test_nvml_that_does_not_start_is_found_beside_gpus_too_and_a_missing_driver_only_without_devices() -> None:
    unknown, no_driver = (999, "Unknown Error"), (9, "Driver Not Loaded")
    around = surroundings()
    assert judge_start([CARD], [], unknown, around) is not None
    assert judge_start([CARD], [BARE], unknown, around) is not None, "a container sees the bus of its host"
    assert judge_start([], [], no_driver, around) is not None
    assert judge_start([CARD], [], no_driver, around) is None
    assert judge_start([CARD], [CARD], unknown, around) is None
    assert judge_start([CARD], [CARD], None, around) is None
