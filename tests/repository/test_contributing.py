"""CONTRIBUTING describes the tree as it is."""

from __future__ import annotations

import re

from house import FRONTS, GROUND_FLOOR, ROOMS
from repository import ROOT, read
from test_versions import environments


def test_the_rooms_are_described_in_their_order() -> None:
    text = read("CONTRIBUTING.md")
    described = re.findall(r"^      (\w+)/ ", text, re.MULTILINE)
    assert tuple(described) == (*ROOMS, *FRONTS)
    for module in ("__init__", *GROUND_FLOOR):
        assert re.search(rf"^      {module}\.py ", text, re.MULTILINE), module


def test_every_environment_of_tox_is_described_and_no_other() -> None:
    described = {
        name
        for line in re.findall(r"^    tox -e ([\w,-]+)", read("CONTRIBUTING.md"), re.MULTILINE)
        for name in line.split(",")
    }
    assert described == set(environments())


def test_every_file_and_folder_that_it_names_is_there() -> None:
    for name in re.findall(r"`((?:harness|tests|profiles)/[\w./]*)`", read("CONTRIBUTING.md")):
        assert (ROOT / name).exists(), name
