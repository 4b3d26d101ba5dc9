"""What is known of the machine itself."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from harness.devices.host import read_host
from harness.records import Host


def machine(root: Path, serial: str) -> Path:
    for name, text in (("sys/class/dmi/id/product_serial", serial), ("proc/sys/kernel/random/boot_id", "b-1\n")):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def test_the_name_of_the_scheduler_comes_before_the_host_name(tmp_path: Path) -> None:
    root = machine(tmp_path, "S123\n")
    everything = {"SLURMD_NODENAME": "n2", "HARNESS_NODE": "gpu-7", "HARNESS_RACK": "r4"}
    assert read_host(everything, root) == Host("gpu-7", "S123", "r4", "b-1")
    assert read_host({"SLURMD_NODENAME": "n2"}, root).name == "n2"
    assert read_host({"SLURMD_NODENAME": " "}, root).name == socket.gethostname()


@pytest.mark.parametrize("serial", ["", "To be filled by O.E.M.\n", "Default string"])
def test_a_placeholder_is_no_serial_number(tmp_path: Path, serial: str) -> None:
    assert read_host({}, machine(tmp_path, serial)).serial is None


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    assert read_host({"HARNESS_NODE": "a"}, tmp_path) == Host("a", None, None, None)
