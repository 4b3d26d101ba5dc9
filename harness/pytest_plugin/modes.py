"""``--harness-modes``: each mode of a verification is a test of its own."""

from __future__ import annotations

import sys

import pytest

OPTION_MODES = "--harness-modes"
#: The fixture that has the mode of a test that runs once for each.
_MODE = "_harness_mode"
_KEY = pytest.StashKey[list[str]]()


def add_option(group: pytest.OptionGroup) -> None:
    """Add the option."""
    group.addoption(
        OPTION_MODES,
        metavar="MODES",
        help="give a test that uses the fixture `verify` an id for each of these modes, such as eager,graph, so that "
        "--lf and known failures can name them",
    )


def register(config: pytest.Config) -> None:
    """Register this module. Raises UsageError for other modes than those of a verification."""
    config.pluginmanager.register(sys.modules[__name__], "harness-modes")
    if (text := config.getoption(OPTION_MODES)) is not None:
        config.stash[_KEY] = _known(text)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each mode of a verification an id of its own, if that is asked for."""
    modes = metafunc.config.stash.get(_KEY, None)
    if modes is not None and "verify" in metafunc.fixturenames:
        metafunc.parametrize(_MODE, modes, indirect=True, scope="session")


def _known(text: str) -> list[str]:
    from harness.judgement.runs import MODES

    given = [mode.strip() for mode in text.split(",")]
    if not set(given) <= set(MODES) or len(set(given)) < len(given):
        raise pytest.UsageError(f"{OPTION_MODES}={text}; accepted: one or more of {','.join(MODES)}")
    return given


@pytest.fixture(scope="session")
def _harness_mode(request: pytest.FixtureRequest) -> str | None:
    return getattr(request, "param", None)
