"""Switches in the environment that would abort TensorFlow are refused before it starts."""

from __future__ import annotations

import pytest

from harness.devices.request import SWITCHES, check_switches, resolve
from harness.errors import UsageError


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("value", ["maybe", "", "2", "yes"])
def test_another_value_is_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    said = f"^environment variable {name}='{value}'; accepted: 0, 1, true, false; "
    with pytest.raises(UsageError, match=said):
        resolve("cpu:2")


def test_what_tensorflow_accepts_is_no_error() -> None:
    for value in ("0", "1", "true", "False", "TRUE"):
        check_switches(dict.fromkeys(SWITCHES, value))
    check_switches({})
