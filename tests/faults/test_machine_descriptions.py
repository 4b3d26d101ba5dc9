"""The files that describe machines: what they accept, and what they say of what they do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from described_machines import H100, text
from executed_machines import BRIDGES, FAULTY, H200, LAPTOP, OF_LAPTOP, PCIE, V100

from harness.checks.registry import SUITE
from harness.devices.described.description import FAULT_KINDS, FAULT_TABLES
from harness.devices.described.reading import load_description, read_description
from harness.devices.described.state import gpus_of
from harness.errors import InvalidDescription, UsageError
from harness.hardware.profile import hardware_profiles

NVML_ERROR = 'nvml-error error = "NVML_ERROR_TIMEOUT"'
FOLDER = Path(__file__).resolve().parents[2] / "profiles" / "fake"


@pytest.mark.parametrize(
    ("given", "key", "accepted"),
    [
        ("x =", "", "a TOML document"),
        ("schema_version = 1", "cards", "a table [cards] with `count`, `model`"),
        (text(2).replace("schema_version = 1", ""), "schema_version", "1"),
        (text(2).replace("schema_version = 1", "schema_version = 9"), "schema_version", "1"),
        (text(2, top="sede = 1"), "sede", "did you mean 'seed'?"),
        (text(0), "cards.count", "an integer from 1 to 64"),
        (text(2).replace("count = 2", 'count = "2"'), "cards.count", "an integer from 1 to 64"),
        (text(2, "A card of tomorrow"), "cards.model", "or another model together with the key `compute_capability`"),
        (text(2, cards="sotfware_mib = 3"), "cards.sotfware_mib", "did you mean 'software_mib'?"),
        (text(2, cards='without = ["temperature"]'), "cards.without", "temperature_c"),
        (text(2, software="driver = 5"), "software.driver", "a version"),
        (text(2, H100, "zeroes pair = [0, 1]"), "fault[0].kind", "did you mean 'zeros'?"),
        (text(2, H100, "zeros pair = [0, 1]", "slow"), "fault[1].card", "the slot of a card"),
        (text(2, H100, "slow card = 2"), "fault[0].card", "a number from 0 to 1"),
        (text(2, H100, "slow card = 1, factor = 1.5"), "fault[0].factor", "a number between 0 and 1"),
        (text(2, H100, "zeros pair = [1, 1]"), "fault[0].pair", "two different cards"),
        (text(2, H100, "zeros pair = [1]"), "fault[0].pair", "two cards, [from, to]"),
        (text(2, H100, "hot card = 1, degrees = 3"), "fault[0].degrees", "only the keys card, kind"),
        (text(2, H100, "link-width card = 1, width = 3"), "fault[0].width", "1, 2, 4 or 8 (PCIe lanes)"),
        ("fault = [3]\n" + text(2), "fault[0]", "tables [[fault]]"),
        (text(2, H100, 'bit-flip card = 1, dtype = "floot32"'), "fault[0].dtype", "one of int8"),
        (text(2, H100, 'wrong-arithmetic card = 1, dtype = "bool"'), "fault[0].dtype", "one of float16"),
        (text(2, LAPTOP, "link-width card = 1, width = 8", cards=OF_LAPTOP), "fault[0].width", "less than the 8 lanes"),
        (text(2, "Tesla T4", "link-generation card = 1, generation = 3"), "fault[0].generation", "less than 3"),
        (text(2, "Tesla T4", "power-limit card = 1, watts = 70.5"), "fault[0].watts", "less than 70"),
        (text(2, "Tesla T4", "nvlink-down card = 1"), "fault[0].links", "this one has none"),
        (text(2, H100, "nvlink-down card = 1, links = 19"), "fault[0].links", "up to 18"),
        (text(2, own="card = 2"), "card[0].card", "a slot from 0 to 1 that no other table [[card]] names"),
        (
            text(2, own='card = 1\nmodel = "A card of tomorrow"'),
            "card[0].model",
            "or another model together with the key `compute_capability`",
        ),
        (
            text(2, own='card = 1\ncompute_capability = "8.0"'),
            "card[0].compute_capability",
            "this key only together with the key `model`",
        ),
        (text(2, H100, "nvlink-down card = 1", own='card = 1\nmodel = "Tesla T4"'), "fault[0].links", "has none"),
        (text(2, H100, "stuck-bit card = 1, word = 2097152", cards="software_mib = 16"), "fault[0].word", "16 MiB"),
        (text(2, H100, "power-limit card = 1, watts = 700.0"), "fault[0].watts", "less than 700"),
        (text(4, PCIE, "nvlink-down card = 1, links = 13", cards=BRIDGES), "fault[0].links", "up to 12"),
        (text(2, H100, 'collective-drop card = 1, algorithm = "reduce-to-one"'), "fault[0].algorithm", "'nccl' or"),
        (text(2, V100, "row-remap card = 1"), "fault[0].kind", "retired-pages"),
        (text(2, H100, "retired-pages card = 1"), "fault[0].kind", "row-remap"),
        (text(2, H100, 'no-write card = 1, op = ""'), "fault[0].op", "the name of an op"),
        (text(2, H100, 'bit-flip card = 1, op = "*"'), "fault[0].op", "the name of an op"),
        (text(3, H100, "bit-flip card = 1", software='visible = "2,0"'), "fault[0].card", "TensorFlow sees: 0, 2 "),
        (text(3, H100, "hot card = 1", software='visible = "2,0"'), "fault[0].card", "TensorFlow sees: 0, 2 "),
        (text(3, H100, "missing card = 1", software='visible = "2,0"'), "fault[0].card", "TensorFlow sees: 0, 2 "),
        (text(3, H100, "misnumbered cards = [0, 1]", software='visible = "2,0"'), "fault[0].cards", "sees: 0, 2 "),
        (text(2, H100, "leak card = 1", cards="slices = 2"), "fault[0].card", "TensorFlow sees: 0 "),
        (text(3, H100, "zeros pair = [0, 1]", "missing card = 1"), "fault[0].pair", "TensorFlow sees: 0, 2 "),
        (text(2, H100, "slow card = 0", "absent card = 0"), "fault[0].card", "TensorFlow sees: 1 "),
        (text(2, H100, "row-remap card = 0", "lost card = 0"), "fault[0].card", "a card that answers"),
        (text(2, H100, "cuda-unavailable", "no-write card = 0"), "fault[1].card", "it sees none"),
        (text(2, H100, "hot card = 1", cards="sensors = false"), "fault[0].kind", "sensors that are off"),
        (
            text(2, H100, "replays card = 1", cards='without = ["pcie_replays"]'),
            "fault[0].kind",
            "sensors that are off",
        ),
        (text(2, H100, "xid card = 1", cards='without = ["xid"]'), "fault[0].kind", "sensors that are off"),
        (text(2, H100, "ecc card = 1", cards='without = ["ecc_corrected"]'), "fault[0].kind", "sensors that are off"),
        (text(2, H100, "ecc card = 1, corrected_per_s = 0.0"), "fault[0].kind", "a fault that changes the machine"),
        (
            text(2, H100, "cuda-unavailable", "cuda-unavailable code = 3"),
            "fault[1].kind",
            "another fault, a value in [software]",
        ),
        (text(2, H100, "bit-flip card = 1, elements = []"), "fault[0].elements", "up to 1024 different indices"),
        (text(2, H100, "bit-flip card = 1, elements = [-1]"), "fault[0].elements[0]", "up to 1024 different indices"),
        (text(2, H100, "bit-flip card = 1, elements = [3, 3]"), "fault[0].elements", "each index once"),
        (text(2, H100, "bit-flip card = 1, elements = [3], run = 8"), "fault[0].run", "together with `elements`"),
        (
            text(2, H100, 'bit-flip card = 1, dtype = "float64", elements = [2097152]', cards="software_mib = 16"),
            "fault[0].elements",
            "indices below 2,097,152",
        ),
        (text(2, H100, 'nvml-error error = "LOST", card = 1'), "fault[0].error", "GPU_IS_LOST, RESET_REQUIRED"),
        (text(2, H100, 'nvml-error error = "TIMEOUT"'), "fault[0].call", "such as 'nvmlInit'; or add the key `card`"),
        (text(2, H100, f"{NVML_ERROR}, card = 2"), "fault[0].card", "a number from 0 to 1"),
        (text(2, H100, f'{NVML_ERROR}, call = "nvmlDeviceGetTemp"'), "fault[0].call", "'nvmlDeviceGetTemperature'?"),
        (text(2, H100, f'{NVML_ERROR}, call = "nvmlInit_v2"'), "fault[0].call", "did you mean 'nvmlInit'?"),
        (text(2, H100, f'{NVML_ERROR}, card = 1, call = "nvmlInit"'), "fault[0].call", "remove the key `card`"),
        (text(2, H100, f"{NVML_ERROR}, card = 1", "lost card = 1"), "fault[0].card", "this one is lost"),
        (
            text(2, H100, f"{NVML_ERROR}, card = 1", "row-remap card = 1"),
            "fault[1].kind",
            "another fault, a value in [software]",
        ),
        (
            text(2, H100, f'{NVML_ERROR}, call = "nvmlInit"', "hot card = 1"),
            "fault[1].kind",
            "another fault, a value in [software]",
        ),
        # Numbers that C++ cannot hold, or that never come up.
        (text(2, H100, "hot card = 1, slowdown_after_s = inf"), "fault[0].slowdown_after_s", "a finite number"),
        (text(2, cards="link_gbs = nan"), "cards.link_gbs", "GB/s of one NVLink"),
        (text(2, top="seed = 9223372036854775808"), "seed", "below 2^63"),
        (text(2, cards="nvlinks = 1000000000000"), "cards.nvlinks", "from 0 to 18"),
        (text(3, cards="bridges = [[0, 1, 12], [0, 2, 7]]"), "cards.bridges", "card 0 has 19"),
        (text(2, H100, "lost card = 1, after_ops = 9223372036854775808"), "fault[0].after_ops", "0 to 10^12"),
        (text(2, H100, "ecc card = 1, corrected_per_s = 1e30"), "fault[0].corrected_per_s", "0 to 1e9"),
        (text(2, H100, "xid card = 1, code = 1000"), "fault[0].code", "1 to 999"),
        (text(2, H100, "leak card = 1, bytes_per_step = 134217729"), "fault[0].bytes_per_step", "up to 134,217,728"),
        (
            text(2, H100, "bit-flip card = 1, least_elements = 134217729"),
            "fault[0].least_elements",
            "hold no more elements",
        ),
        (
            text(2, H100, 'wrong-arithmetic card = 1, dtype = "float16", relative_error = 9e-4'),
            "fault[0].relative_error",
            "0.00098 or more",
        ),
        # Versions and names that are none, and a line that would add a key to what the driver says.
        (text(2, "X", cards='compute_capability = "nine"'), "cards.compute_capability", "such as '9.0'"),
        (text(2, own='card = 1\nmodel = "X"\ncompute_capability = "9"'), "card[0].compute_capability", "such as '8.0'"),
        (text(2, software='driver_cuda = "twelve"'), "software.driver_cuda", "such as '12.8'"),
        (text(2, software='cudnn = ""'), "software.cudnn", "such as '9.3.0'"),
        (text(2, own='card = 1\nvbios = "1\\ncards 0"'), "card[0].vbios", "96.00.30.00.02"),
        (text(2, software='visible = "1\\u0000"'), "software.visible", "such as '3,1'"),
        (text(2, H100, 'library-missing library = "a b"'), "fault[0].library", "such as 'libcudnn.so.9'"),
        (text(2, H100, 'driver-too-old driver_cuda = "12.1"'), "fault[0].driver_cuda", "a version before 12"),
        # Faults that hide or undo one another.
        (text(2, H100, "zeros pair = [0, 1]", "stale pair = [0, 1]"), "fault[0].kind", "fault[1] hides this one"),
        (text(2, H100, "wrong-card card = 1", "wrong-card card = 1"), "fault[0].kind", "each kind of fault once"),
        (
            text(2, H100, "misnumbered cards = [0, 1]", "misnumbered cards = [1, 0]"),
            "fault[0].kind",
            "repeats this one",
        ),
        (text(2, H100, "stuck-bit card = 1", "stuck-bit card = 1, value = 0"), "fault[0].kind", "repeats this one"),
        (text(2, H100, "slow card = 0", "slow card = 1", "slow card = 0, factor = 0.3"), "fault[0].kind", "fault[2]"),
        (text(1, H100, "collective-drop card = 0"), "fault[0].kind", "a collective needs two cards"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line_with_file_key_and_what_is_accepted(
    given: str, key: str, accepted: str
) -> None:
    with pytest.raises(InvalidDescription) as caught:
        read_description("machine.toml", given)
    assert caught.value.key == key
    assert accepted in caught.value.accepted
    assert str(caught.value).startswith(f"description machine.toml: {key or 'TOML syntax:'} ")
    assert len(str(caught.value).splitlines()) == 1
    assert isinstance(caught.value, UsageError), "the command line answers it with exit code 2"


@pytest.mark.parametrize(
    "given",
    [
        text(2, H100, 'bit-flip card = 1, dtype = "complex64"', 'wrong-arithmetic card = 0, dtype = "bfloat16"'),
        text(2, LAPTOP, "link-width card = 1, width = 4", cards=OF_LAPTOP),
        text(2, "Tesla T4", "link-generation card = 1, generation = 2", "power-limit card = 1, watts = 69.0"),
        text(4, PCIE, "nvlink-down card = 1, links = 12", cards=BRIDGES),
        text(2, H100, 'collective-drop card = 1, algorithm = "nccl"', 'no-write card = 1, op = "Relu"'),
        text(2, V100, "retired-pages card = 1", "ecc card = 1, corrected_per_s = 0.0, old_uncorrected = 1"),
        text(3, H100, "bit-flip card = 0", "hot card = 0", "missing card = 2", software='visible = "2,0"'),
        text(3, H100, "misnumbered cards = [0, 2]", "memory-held card = 1", software='visible = "2,0"'),
        text(2, H100, "leak card = 0", "row-remap card = 1", cards="slices = 2"),
        text(2, H100, "link-width card = 1", cards="sensors = false"),
        text(2, H100, "ecc card = 1, uncorrected_per_s = 1.0", cards='without = ["ecc_corrected"]'),
        text(2, H100, "cuda-unavailable", "row-remap card = 0"),
        text(2, H100, 'bit-flip card = 1, dtype = "float64", elements = [0, 2097151]', cards="software_mib = 16"),
        text(2, H100, f"{NVML_ERROR}, card = 1", "link-width card = 1", "row-remap card = 0"),
        text(2, H100, f'{NVML_ERROR}, call = "nvmlDeviceGetTemperature", card = 1', "row-remap card = 1"),
        text(2, H100, "nvlink-down card = 1, links = 18"),
        text(2, H100, "stuck-bit card = 1, word = 2097151", cards="software_mib = 16"),
        text(2, H100, "zeros pair = [0, 1], probability = 0.5", "stale pair = [0, 1], probability = 0.5"),
        text(2, H100, "zeros pair = [0, 1]", "stale pair = [1, 0]", "shifted pair = [1, 0], probability = 0.1"),
        text(2, H100, "stuck-bit card = 1", "stuck-bit card = 1, bit = 18", "stuck-bit card = 0"),
        text(
            2,
            H100,
            "bit-flip card = 1",
            "bit-flip card = 1, run = 8",
            'no-write card = 1, op = "Relu"',
            "no-write card = 1",
        ),
        text(3, H100, "misnumbered cards = [0, 1]", "misnumbered cards = [1, 2]"),
        text(2, H100, 'wrong-arithmetic card = 1, dtype = "float16", relative_error = 0.0009765625'),
        text(2, H100, "leak card = 1, bytes_per_step = 134217728", "lost card = 0, after_ops = 1000000000000"),
        text(2, H100, 'driver-too-old driver_cuda = "11"', software='driver_cuda = "12"'),
    ],
)
def test_a_fault_that_acts_on_its_card_is_accepted(given: str) -> None:
    assert read_description("machine.toml", given).fault


def _slower(description: str) -> list[str]:
    faults = gpus_of(read_description("m", description), "m").faults
    return [each for each in faults if each.startswith("link ")]


def test_slower_links_delay_the_copies_that_take_them() -> None:
    width = "link-width card = 1, width = 4"
    assert _slower(text(3, H100, width)) == ["link from=1 to=-1 factor=0.25"], "the cards are joined by NVLinks"
    of_bridged = ["link from=1 to=-1 factor=0.25", "link from=1 to=2 factor=0.25"]
    assert _slower(text(3, PCIE, width, cards="bridges = [[0, 1, 12]]")) == of_bridged
    older = _slower(text(1, "Tesla T4", "link-generation card = 0, generation = 2"))
    assert older == [f"link from=0 to=-1 factor={0.5 / 0.985}"]
    down = "nvlink-down card = 1, links = 3"
    assert _slower(text(4, PCIE, down, cards=BRIDGES)) == ["link from=1 to=0 factor=0.75"]
    assert _slower(text(3, H200, "nvlink-down card = 1, links = 9")) == [
        f"link from=1 to={to} factor=0.5" for to in (0, 2)
    ]
    assert _slower(text(3, H100)) == []


def test_a_file_that_cannot_be_read_is_an_error_too(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(InvalidDescription, match="accepted: a readable TOML file"):
            load_description(path)


def test_every_kind_of_fault_has_a_table_that_says_what_each_key_accepts() -> None:
    assert len(FAULT_KINDS) == len(set(FAULT_KINDS)) == len(FAULT_TABLES)
    for table in FAULT_TABLES:
        for key, field in table.model_fields.items():
            assert key == "kind" or field.description, f"{table.__name__}.{key}"


def _driver(description: str) -> dict[str, str]:
    return dict(gpus_of(read_description("machine.toml", description), "machine.toml").driver)


#: Where a described machine has its faults from, if TensorFlow does not execute them: docs/guides/software-gpus.md.
SIMULATED = {"hot", "ecc", "xid", "replays"}
STATIC = {
    *("missing", "misnumbered", "lost", "memory-held", "cuda-unavailable", "driver-too-old", "library-missing"),
    *(
        "kernels-missing",
        "nvml-error",
        "power-limit",
        "link-width",
        "link-generation",
        "nvlink-down",
        "row-remap",
        "retired-pages",
    ),
}


def test_each_check_that_finds_a_fault_of_the_driver_says_where_it_is_from_and_no_other() -> None:
    assert set(FAULT_KINDS) >= SIMULATED | STATIC
    declared = {(check.id, read.source) for check in SUITE.checks for read in check.reads}
    found = set()
    for made in FAULTY:
        kinds = {fault.partition(" ")[0] for fault in made.faults}
        source = "simulated" if kinds <= SIMULATED else "static" if kinds <= STATIC else None
        if source and " " not in made.checks:
            found.add((made.checks, source))
    assert found == declared


def test_every_card_with_a_profile_can_be_described() -> None:
    names = [name for profile in hardware_profiles() for name in profile.matches]
    assert len(names) > 20
    for name in names:
        assert _driver(text(2, name, cards='compute_capability = "9.0"'))["card.1.name"] == name


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_the_shipped_descriptions_are_valid(path: Path) -> None:
    made = load_description(path)
    assert made.description
    assert gpus_of(made, path).count


def test_the_shipped_descriptions_are_these() -> None:
    assert {path.stem for path in FOLDER.glob("*.toml")} == {"clean-8", "faulty-8", "missing-of-4"}


def test_a_card_that_tensorflow_does_not_see_is_known_to_the_driver() -> None:
    made = gpus_of(read_description("machine.toml", text(3, H100, "missing card = 1")), "machine.toml")
    assert (made.count, made.numbers, dict(made.driver)["cards"]) == (2, (0, 2), "3")
    absent = gpus_of(read_description("machine.toml", text(3, H100, "absent card = 1")), "machine.toml")
    assert (absent.count, dict(absent.driver)["cards"]) == (2, "2")


def test_another_model_has_what_the_description_says() -> None:
    driver = _driver(text(1, "A card of tomorrow", cards='compute_capability = "10.0"\nnvlinks = 3'))
    assert (driver["card.0.compute_capability"], driver["card.0.nvlinks"]) == ("10.0", "1,1,1")


def test_software_faults_are_said_by_the_software() -> None:
    faults = ('library-missing library = "libcudnn.so.9"', "driver-too-old", "kernels-missing")
    plain, broken = _driver(text(1)), _driver(text(1, H100, *faults))
    assert "missing_libraries" not in plain
    assert plain["kernels_ptx"] == "9.0"
    assert broken["missing_libraries"] == "libcudnn.so.9"
    assert "cudnn" not in broken
    assert (broken["driver"], broken["driver_cuda"]) == ("470.57.02", "11040")
    assert not [each for each in broken["kernels_sass"].split() if each.startswith("9")]
    assert not broken["kernels_ptx"]


def test_a_card_of_its_own_has_what_its_table_says_and_the_others_what_all_have() -> None:
    own = 'card = 1\nmodel = "NVIDIA A100-SXM4-80GB"\nsoftware_mib = 32\nvbios = "92.1"\nboard_part = "692-X"'
    made = gpus_of(read_description("m", text(3, cards="software_mib = 64", own=own)), "m")
    driver = dict(made.driver)
    for key, values in {
        "name": [H100, "NVIDIA A100-SXM4-80GB", H100],
        "compute_capability": ["9.0", "8.0", "9.0"],
        "vbios": ["96.00.30.00.01", "92.1", "96.00.30.00.01"],
        "board_part": ["692-2G520-0200-000", "692-X", "692-2G520-0200-000"],
        "power_limit": ["700000.0", "400000.0", "700000.0"],
    }.items():
        assert [driver[f"card.{at}.{key}"] for at in range(3)] == values
    assert [made.memory_of(at) for at in range(3)] == [64, 32, 64]
    assert int(driver["card.1.memory"]) < int(driver["card.2.memory"])


def test_cuda_visible_devices_numbers_the_cards() -> None:
    made = gpus_of(read_description("m", text(4, software='visible = "3,1"')), "m")
    assert (made.visible, made.numbers) == ("3,1", (3, 1))
    assert [dict(made.driver)[f"cuda.{at}.pci"] for at in range(2)] == ["0000:24:00.0", "0000:1E:00.0"]
