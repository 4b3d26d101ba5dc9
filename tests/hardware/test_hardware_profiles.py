from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import InvalidProfile, UsageError
from harness.hardware.profile import hardware_profiles, load_hardware_profile, profile_for, use_profiles
from harness.hardware.profile_rates import Rate, joined
from harness.hardware.profile_schema import FIGURE_UNITS
from harness.hardware.profile_writer import SOURCE, profile_text, write_profile

_GOOD = """
schema_version = 1
name = "Test card"
matches = ["NVIDIA Test Card", "Test Card PCIe"]

[sources.sheet]
title = "A datasheet"
date = "2024-05"

[[figures]]
figure = "matmul float32"
value = 1000.0
source = "sheet"
low = 0.6
"""


def _written(folder: Path, text: str) -> Path:
    path = folder / "card.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_all_cards_that_are_promised_have_a_profile() -> None:
    names = {
        "NVIDIA H100 80GB HBM3": "H100 SXM",
        "NVIDIA H100 PCIe": "H100 PCIe",
        "NVIDIA H200": "H200",
        "NVIDIA A100-SXM4-40GB": "A100 SXM 40 GB",
        "NVIDIA A100-SXM4-80GB": "A100 SXM 80 GB",
        "NVIDIA A100 80GB PCIe": "A100 PCIe 80 GB",
        "NVIDIA A100-PCIE-40GB": "A100 PCIe 40 GB",
        "NVIDIA L40S": "L40S",
        "NVIDIA L4": "L4",
        "Tesla V100-SXM2-32GB": "V100 SXM2",
        "Tesla V100-PCIE-16GB": "V100 PCIe",
        "Tesla T4": "T4",
        "NVIDIA GeForce RTX 4090": "RTX 4090",
        "NVIDIA H100 NVL": "H100 NVL",
        "NVIDIA H200 NVL": "H200 NVL",
        "NVIDIA GH200 480GB": "GH200",
        "NVIDIA B200": "B200",
        "NVIDIA A10": "A10",
        "NVIDIA A10G": "A10G",
        "NVIDIA A30": "A30",
        "NVIDIA A40": "A40",
        "NVIDIA L40": "L40",
        "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada",
        "NVIDIA GeForce RTX 5090": "RTX 5090",
        "NVIDIA H20": "H20",
        "NVIDIA H800": "H800",
        "NVIDIA A800-SXM4-80GB": "A800 SXM 80 GB",
        "Tesla V100-SXM3-32GB": "V100 SXM3",
        "CPU core": "CPU core",
    }
    assert {name: found.name if (found := profile_for(name)) else None for name in names} == names
    assert len(hardware_profiles()) == len(names)


def test_a_name_matches_as_a_whole_with_or_without_the_maker() -> None:
    assert profile_for("H100 PCIe") == profile_for("NVIDIA H100 PCIe")
    assert profile_for("NVIDIA L40X") is None
    assert profile_for("NVIDIA H100") is None


def test_no_name_belongs_to_two_profiles() -> None:
    names = [name for profile in hardware_profiles() for name in profile.matches]
    assert len(names) == len(set(names))


def test_every_figure_of_a_card_has_a_unit_a_source_and_a_date() -> None:
    for profile in hardware_profiles():
        for each in profile.expected:
            assert each.unit == FIGURE_UNITS[each.figure]
            assert each.source
            assert each.date
            assert 0 < each.low <= 1 <= each.high
        if profile.name != "CPU core":
            # The GH200's host is joined by NVLink-C2C, and it shares its power with the processor.
            of_card = set() if profile.name == "GH200" else {"pcie width", "power limit"}
            assert {"matmul float32", "memory bandwidth", *of_card} <= {each.figure for each in profile.expected}


def test_rates_of_a_profile_are_in_order() -> None:
    """Tensor cores are no slower than the units without, and lower precision is no slower than higher."""
    for profile in hardware_profiles():
        order = [profile.figure(f"matmul {name}") for name in ("float64", "float32", "tfloat32", "float16")]
        values = [each.value for each in order if each is not None]
        assert values == sorted(values), profile.name


def test_a_cpu_core_has_no_fixed_figure() -> None:
    core = profile_for("CPU core")
    assert core is not None
    assert core.expected == ()


def test_a_figure_is_read_with_its_source_and_its_limits(tmp_path: Path) -> None:
    found = load_hardware_profile(_written(tmp_path, _GOOD))
    assert (found.name, found.matches) == ("Test card", ("NVIDIA Test Card", "Test Card PCIe"))
    figure = found.figure("matmul float32")
    assert figure is not None
    assert (figure.value, figure.unit, figure.source, figure.date) == (1000.0, "GFLOP/s", "A datasheet", "2024-05")
    assert (figure.low, figure.high) == (0.6, 1.05)


@pytest.mark.parametrize(
    ("before", "after", "key", "accepted"),
    [
        ("schema_version = 1", "schema_version = 2", "schema_version", "accepted: 1"),
        ("schema_version = 1", "", "schema_version is missing", "accepted: 1"),
        ("value = 1000.0", "value = -1.0", "figures[0].value", "a number above 0"),
        ("value = 1000.0", 'value = "fast"', "figures[0].value", "a number above 0"),
        ("value = 1000.0", "value = inf", "figures[0].value", "a finite number above 0"),
        ("low = 0.6", "low = 1.5", "figures[0].low", "at most 1"),
        ("low = 0.6", "lowest = 0.6", "figures[0].lowest", "did you mean 'low'?"),
        ("matmul float32", "matmul flaot32", "figures[0].figure", "did you mean 'matmul float32'?"),
        ('source = "sheet"', 'source = "book"', "figures[0].source", "sheet"),
        ('date = "2024-05"', 'date = "May"', "sources.sheet.date", "YYYY"),
        ("[[figures]]", "[[figures]]\nfigure = 1\n[[figures]]", "figures[0].figure", "matmul float32"),
        ("name =", "nam =", "nam", "did you mean 'name'?"),
        ("name =", "name = = ", "TOML syntax", "a TOML document"),
    ],
)
def test_a_broken_file_is_named_with_its_key_and_what_is_accepted(
    tmp_path: Path, before: str, after: str, key: str, accepted: str
) -> None:
    path = _written(tmp_path, _GOOD.replace(before, after, 1))
    with pytest.raises(InvalidProfile) as caught:
        load_hardware_profile(path)
    assert str(path) in str(caught.value)
    assert key in str(caught.value)
    assert accepted in str(caught.value)


def test_a_figure_is_there_once_and_a_file_can_be_read(tmp_path: Path) -> None:
    twice = _GOOD + _GOOD[_GOOD.index("[[figures]]") :]
    with pytest.raises(InvalidProfile, match="each figure only once"):
        load_hardware_profile(_written(tmp_path, twice))
    with pytest.raises(InvalidProfile, match="No such file"):
        load_hardware_profile(tmp_path / "absent.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidProfile, match="UTF-8"):
        load_hardware_profile(tmp_path / "binary.toml")


def test_the_mark_with_which_some_editors_begin_a_file_is_no_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(_GOOD, encoding="utf-8-sig")
    assert load_hardware_profile(path).name == "Test card"


def test_what_is_measured_is_written_and_read_back(tmp_path: Path) -> None:
    rates = [Rate("matmul float32", 41.23456, 40.0), Rate("pcie width", 16.0, 16.0)]
    path = tmp_path / "new" / "mine.toml"
    write_profile(path, profile_text('A "quoted"\nname', ["My CPU"], rates, date="2026-11-21", note="2 cards"))
    found = load_hardware_profile(path)
    assert (found.name, found.matches) == ('A "quoted" name', ("My CPU",))
    product, width = found.expected
    assert (product.figure, product.value, product.unit, product.source) == ("matmul float32", 41.23, "GFLOP/s", SOURCE)
    assert product.date == "2026-11-21"
    assert product.low < 1 < product.high
    assert (width.low, width.high) == (1.0, 1.0)
    assert [file.name for file in path.parent.iterdir()] == ["mine.toml"], "nothing else is left behind"


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    text = profile_text("A", ["B"], [], date="2026-11-21")
    with pytest.raises(UsageError, match=r"cannot be written: .*; name another file with --output"):
        write_profile(tmp_path / "file" / "mine.toml", text)


def test_figures_of_several_cards_are_joined_by_their_median() -> None:
    rates = [Rate("memory bandwidth", value, value - 1) for value in (10.0, 12.0, 3.0)]
    assert joined(rates) == Rate("memory bandwidth", 10.0, 9.0)


def test_profiles_in_a_folder_of_ones_own_come_before_the_shipped_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_PROFILES", "")
    count = len(hardware_profiles())
    _written(tmp_path, _GOOD.replace("NVIDIA Test Card", "NVIDIA H100 PCIe"))
    use_profiles(None)
    assert profile_for("NVIDIA Test Card PCIe") is None
    assert _name_of("NVIDIA H100 PCIe") == "H100 PCIe"
    monkeypatch.chdir(tmp_path)
    use_profiles(Path())
    monkeypatch.chdir("/")  # workers may run elsewhere
    assert _name_of("NVIDIA Test Card PCIe") == _name_of("NVIDIA H100 PCIe") == "Test card"
    assert _name_of("NVIDIA H200") == "H200"
    assert len(hardware_profiles()) == count + 1


def test_a_folder_without_profiles_or_with_one_that_is_not_valid_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_PROFILES", "")
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UsageError, match=r"--profiles .*: no \.toml file is there; accepted: a folder of hardware"):
            use_profiles(folder)
    _written(tmp_path, _GOOD.replace("value", "valu"))
    with pytest.raises(InvalidProfile, match="did you mean 'value'"):
        use_profiles(tmp_path)
    assert profile_for("NVIDIA Test Card") is None


def _name_of(card: str) -> str | None:
    found = profile_for(card)
    return None if found is None else found.name
