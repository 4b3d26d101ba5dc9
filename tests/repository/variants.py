"""A pytest plug-in that chooses the tests of an environment of tox: ``pytest --environment=kernels``.

Where each case of a test takes long, its author names the cases that plain tox tries; its other cases are variants:

- ``@pytest.mark.cases("padded", "shifted")`` names the cases, by their ids or the beginnings of these;
  ``@pytest.mark.cases(4)`` has four cases tried, spread evenly over the list. Where the cases are named, they are those
  that run lines of the package which no other test of plain tox runs.
- ``@pytest.mark.rotated(8)`` is for tests of many cases: all are variants, and a commit runs an eighth of them. Eight
  commits in succession run all. Beside ``cases``, it rotates those that plain tox does not try.

A variant runs in one environment at most per commit: on logical CPUs (``long``), with TensorFlow's own kernels
(``kernels``) or on software GPUs (``softgpu``). A hash of its name and the number of the commit choose which. It rests
in every second commit, so that six in succession run it in each. Long tests rest likewise.

Of plain tests, those that depend on kernels and devices (``IN_TURN``) run in one environment per commit: in plain tox,
in ``kernels`` or in ``softgpu``. Of the others a commit runs an eighth in each of the last two, so that eight in
succession run all in both. Those that take long together (``HALVED``) run in plain tox in every second commit.

The header of a session has the number: ``HARNESS_VARIANTS=NUMBER`` repeats its choice, and with
``HARNESS_VARIANTS=all`` an environment runs all that it can. Without ``--environment``, pytest runs every case.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_TESTS = _ROOT / "tests"
_VARIABLE = "HARNESS_VARIANTS"

#: Below which folders of tests an environment runs tests.
ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    "unit": ("",),
    "long": ("",),
    "kernels": ("evidence", "judgement", "faults", "checks"),
    "softgpu": (
        "evidence", "judgement", "faults", "checks", "distribute", "parallel", "hardware", "devices",
        "programs/test_generated_programs.py", "programs/test_generated_patterns.py",
        "programs/test_generated_towers.py",
    ),
}  # fmt: skip
_OF_PLAIN_TESTS = ("unit", "kernels", "softgpu")
_OF_VARIANTS = ("long", "kernels", "softgpu")
_OF_LONG_TESTS = ("long", "kernels")
#: No environment runs it in this commit, except plain tox, which runs all plain tests.
_RESTS = "unit"
#: Six of eight commits run a test of plain tox in plain tox alone.
_OF_REPETITIONS = ("kernels", *3 * (_RESTS,), "softgpu", *3 * (_RESTS,))
#: Below these, plain tests take minutes together.
HALVED = (
    "browser", "checking", "cli", "distribute", "faults", "hardware", "judgement", "parallel", "proof", "pytest_plugin",
    "report", "repository/test_docs.py", "softgpu", "speed", "strategies",
)  # fmt: skip
#: Evidence, values, placement, one fault of each class, and generated programs depend on kernels and devices.
IN_TURN = (
    "evidence", "faults/test_planted_faults.py", "programs",
    "judgement/test_coarse_arithmetic.py", "judgement/test_idle_devices.py", "judgement/test_odd_devices.py",
    "judgement/test_parts_and_places.py", "judgement/test_places_of_findings.py",
    "judgement/test_rounding_in_functions.py", "judgement/test_rounding_of_masks.py",
    "judgement/test_rounding_of_sums.py", "judgement/test_shards.py", "judgement/test_stages.py",
    "judgement/test_tolerance.py", "judgement/test_uneven_devices.py", "judgement/test_values_in_blocks.py",
    "judgement/test_verify.py",
)  # fmt: skip

_Choice: TypeAlias = "int | Literal['all']"
_ALL: _Choice = "all"
_CHOICE = pytest.StashKey[_Choice]()


def tried(test: str, ids: Sequence[str], wanted: Sequence[str | int]) -> set[int]:
    """The indices of the cases that are tried: those that are named, or so many, spread evenly; at least one.

    The first of a number of cases depends on the test's name, so that of two tests with the modes "eager" and "graph"
    not both are tried in the first mode alone.
    """
    names = [each for each in wanted if isinstance(each, str)]
    named = {
        index for index, each in enumerate(ids) if any(each == name or each.startswith(f"{name}-") for name in names)
    }
    count = min(sum(each for each in wanted if isinstance(each, int)) or (not named), len(ids))
    first = zlib.crc32(test.encode())
    return named | {(first + number * len(ids) // count) % len(ids) for number in range(count)}


def has_its_turn(case: int, commits: int, number: int) -> bool:
    """Whether the commit of this number runs the case of this index, where so many commits run all."""
    return (case - number) % commits == 0


def environment_of(name: str, environments: Sequence[str], number: int) -> str:
    """The one of these environments that runs a test in the commit of this number."""
    return environments[(zlib.crc32(name.encode()) + number) % len(environments)]


def runs_in(environment: str, file: str, name: str, kind: str, turn: _Choice, commits: int = 1) -> bool:
    """Whether an environment runs a test of this kind (``long``, ``variant`` or ``plain``) in this commit.

    ``file`` is relative to the folder of tests; ``commits`` is how many commits a variant waits for its next turn.
    """
    if not _is_below(file, ENVIRONMENTS[environment]):
        return False
    if kind == "plain" and turn != "all" and _is_below(file, IN_TURN):
        able = [each for each in _OF_PLAIN_TESTS if _is_below(file, ENVIRONMENTS[each])]
        return environment_of(name, able, turn) == environment
    if environment == "unit":
        if kind != "plain" or turn == "all" or not _is_below(file, HALVED):
            return kind == "plain"
        # It rests in the commits in which another environment may repeat it.
        return environment_of(name, ("rests", "runs"), turn) == "runs"
    if environment == "long" and kind == "plain":
        return False
    if environment not in {"long": _OF_LONG_TESTS, "variant": _OF_VARIANTS, "plain": _OF_REPETITIONS}[kind]:
        return False
    if turn == "all":
        return True
    if kind == "plain":
        return environment_of(name, _OF_REPETITIONS, turn) == environment
    candidates = _OF_LONG_TESTS if kind == "long" else _OF_VARIANTS
    able = [each for each in candidates if _is_below(file, ENVIRONMENTS[each])]
    # A case that waits for its turn does not rest as well.
    turns = able if commits > 1 else [each for one in able for each in (one, _RESTS)]
    # Long tests of a file share what takes long.
    return environment_of(file if kind == "long" else name, turns, turn // commits) == environment


def _is_below(file: str, folders: Sequence[str]) -> bool:
    return any(not folder or file == folder or file.startswith(f"{folder}/") for folder in folders)


def number_of_commit(root: Path = _ROOT) -> int:
    """How many commits led here; where git cannot count them, a checksum of the sources, which differs as well."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        top, shallow = git("rev-parse", "--show-toplevel", "--is-shallow-repository").splitlines()
        if Path(top).resolve() == root.resolve() and shallow == "false":
            return int(git("rev-list", "--count", "--first-parent", "HEAD"))
    except (OSError, subprocess.CalledProcessError):
        pass
    checksum = 0
    for folder in ("harness", "tests"):
        for path in sorted((root / folder).rglob("*.py")):
            checksum = zlib.crc32(path.read_bytes(), checksum)
    return checksum


def choice_of(text: str) -> _Choice:
    """What ``HARNESS_VARIANTS`` says, or the number of the commit."""
    if text == "all":
        return "all"
    if text and not text.isdecimal():
        raise pytest.UsageError(f"{_VARIABLE}={text!r}; accepted: a number of 0 or more, or 'all'")
    return int(text) if text else number_of_commit()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--environment",
        choices=[*ENVIRONMENTS],
        help="run what this environment of tox runs in this commit (default: every test and case)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("environment"):
        text: str = getattr(config, "workerinput", {}).get(_VARIABLE) or os.environ.get(_VARIABLE, "")
        config.stash[_CHOICE] = choice_of(text)
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(_Workers(config))


class _Workers:
    """Hands the choice to the workers of pytest-xdist, which might see another commit."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_configure_node(self, node: Any) -> None:
        if _CHOICE in self.config.stash:
            node.workerinput[_VARIABLE] = str(self.config.stash[_CHOICE])


def pytest_report_header(config: pytest.Config) -> str | None:
    if _CHOICE not in config.stash:
        return None
    choice = config.stash[_CHOICE]
    return f"variants: {_VARIABLE}={choice} repeats the choice of this session, {_VARIABLE}=all runs all"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    environment = config.getoption("environment")
    if not environment or not collection_path.is_relative_to(_TESTS) or collection_path.suffix != ".py":
        return None
    return not _is_below(collection_path.relative_to(_TESTS).as_posix(), ENVIRONMENTS[environment]) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Before pytest deselects by marker.
    rotated = [*_by_test(items, "rotated")]
    for marker, cases in _by_test(items, "cases"):
        kept = tried(cases[0].originalname, [case.callspec.id for case in cases], marker.args)
        for index, case in enumerate(cases):
            if index not in kept:
                case.add_marker("variant")
    choice = config.stash.get(_CHOICE, _ALL)
    periods: dict[pytest.Item, int] = {}
    waiting: set[pytest.Item] = set()
    for marker, cases in rotated:
        if cases[0].get_closest_marker("cases"):
            variants = [case for case in cases if case.get_closest_marker("variant")]
        else:
            variants = cases
        for index, case in enumerate(variants):
            case.add_marker("variant")
            periods[case] = marker.args[0]
            if choice != "all" and not has_its_turn(index, marker.args[0], choice):
                waiting.add(case)
    environment = config.getoption("environment")
    if not environment:
        return

    def runs(item: pytest.Item) -> bool:
        kind = next((each for each in ("long", "variant") if item.get_closest_marker(each)), "plain")
        file = item.path.relative_to(_TESTS).as_posix() if item.path.is_relative_to(_TESTS) else item.path.name
        name = item.nodeid.removeprefix("tests/")
        return item not in waiting and runs_in(environment, file, name, kind, choice, periods.get(item, 1))

    chosen = {item for item in items if runs(item)}
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def _by_test(items: Sequence[pytest.Item], marker: str) -> Iterator[tuple[pytest.Mark, list[pytest.Function]]]:
    """The cases of each test that has this marker, without those that have a marker of their own."""
    tests: dict[tuple[str, str], list[pytest.Function]] = defaultdict(list)
    for item in items:
        chosen_by_hand = any(item.get_closest_marker(name) for name in ("long", "variant"))
        if isinstance(item, pytest.Function) and item.get_closest_marker(marker) and not chosen_by_hand:
            tests[str(item.path), item.originalname].append(item)
    for cases in tests.values():
        found = cases[0].get_closest_marker(marker)
        assert found is not None
        yield found, cases
