"""Recordings of servers that did not cover the calls are repeated, with more time for all that takes time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import EvidenceError
from harness.speed.timeline import capture
from harness.speed.timeline.capture import Captured, capture_calls

TASK = "/job:core/replica:0/task:0"


class Attempts:
    """Attempts of which the last of so many covers the calls. ``times``: the seconds to start, and in all."""

    def __init__(self, covers: int) -> None:
        self.covers = covers
        self.times: list[tuple[float, float]] = []
        self.made = Captured(None, {})  # type: ignore[arg-type]

    def __call__(
        self, program: Any, calls: int, folder: Path, addresses: Mapping[str, str], start_s: float, record_s: float
    ) -> Captured | None:
        self.times.append((start_s, record_s))
        return self.made if len(self.times) == self.covers else None


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Attempts:
    made = Attempts(request.param)
    monkeypatch.setattr(capture, "_record_all", made)
    monkeypatch.setattr(capture, "cluster_addresses", lambda: {TASK: "127.0.0.1:1"})
    monkeypatch.setattr(capture, "synchronise", lambda outputs: None)
    return made


@pytest.mark.parametrize("attempts", [1, 3], indirect=True)
def test_servers_that_start_late_have_more_time_to_start_in_the_next_attempt(
    attempts: Attempts, tmp_path: Path
) -> None:
    assert capture_calls(lambda: None, 2, tmp_path / "profile", [TASK]) is attempts.made
    assert [start_s for start_s, _ in attempts.times] == [1.0, 3.0, 9.0][: attempts.covers]
    assert all(record_s > start_s for start_s, record_s in attempts.times)


@pytest.mark.parametrize(
    ("names", "found"), [(["node_1"], "node_1"), (["node", "10.0.0.1_8470"], "node"), (["node_1", "node_2"], None)]
)
def test_the_profile_of_this_process_is_the_only_one_that_no_server_wrote(
    names: list[str], found: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop() -> None:
        for name in names:
            (tmp_path / f"{name}.xplane.pb").touch()

    profiler = SimpleNamespace(start=lambda folder, options: None, stop=stop, ProfilerOptions=lambda **levels: None)
    monkeypatch.setattr(capture, "tf", SimpleNamespace(profiler=SimpleNamespace(experimental=profiler)))
    monkeypatch.setattr(capture, "read_xplane", lambda path, task: path.name)
    if found is None:
        with pytest.raises(EvidenceError, match="wrote 2 files for this process"):
            capture._record(lambda: None, 0, tmp_path, ["10.0.0.1_8470"])
    else:
        made: object = capture._record(lambda: None, 0, tmp_path, ["10.0.0.1_8470"])
        assert made == f"{found}.xplane.pb"


@pytest.mark.parametrize("attempts", [99], indirect=True)
def test_servers_that_never_cover_the_calls_are_an_error(attempts: Attempts, tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="did not cover 2 calls; profile fewer"):
        capture_calls(lambda: None, 2, tmp_path / "profile", [TASK])
    assert len(attempts.times) == 4
