"""The store: what is in it, what is left out, and what happens to it when writers are many, or are killed."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import simulated_fleet as simulated
import store_writers

from harness.fleet import asked
from harness.fleet.asked import FleetRun
from harness.fleet.files import INDEX_FILE, MOST_BYTES, LocalFiles, StoreError
from harness.fleet.index import load
from harness.fleet.store import Store
from harness.records import Host, RunRecord
from harness.report.storage import json_text, save_run


def record(number: int = 0) -> RunRecord:
    return simulated.sound(number, random.Random(number))


def test_records_are_found_wherever_they_are_and_what_is_none_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    save_run(record(1), store.folder / "runs" / "a" / "sim-0001")
    save_run(replace(record(2), host=None), store.folder / "old-machine")
    store.add(json_text(record(3)))
    bad = {
        "damaged.run.json": "{",
        "foreign.run.json": '{"schema_version": 1, "name": "something else"}',
        "newer.run.json": json_text(replace(record(4), schema_version=99)),
        "deep.run.json": "[" * 100_000,
        "odd.run.json": json_text(record(5)).replace('"elapsed_s": 0.0', '"elapsed_s": NaN'),
        "timeless.run.json": json_text(replace(record(6), started_at="yesterday")),
    }
    for name, text in bad.items():
        (store.folder / name).write_text(text, encoding="utf-8")
    with (store.folder / "huge.run.json").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    os.mkfifo(store.folder / "pipe.run.json")
    (store.folder / "link.run.json").symlink_to(tmp_path / "elsewhere.json")
    (store.folder / "bytes.run.json").write_bytes(b"\xff\xfe")
    (store.folder / "notes.json").write_text("{", encoding="utf-8")  # no record by its name
    for _ in ("read", "from the index"):
        found = load(store)
        assert sorted(seen.host for seen in found.runs) == ["old-machine", "sim-0001", "sim-0003"]
        why = {each.path: each.why for each in found.left_out}
        assert why.keys() == {*bad, "huge.run.json", "pipe.run.json", "link.run.json", "bytes.run.json"}
        assert "is not JSON" in why["damaged.run.json"]
        assert "newer than" in why["newer.run.json"]
        assert "more than a record can have" in why["huge.run.json"]
        assert "not a regular file" in why["pipe.run.json"]
        assert "not a time" in why["timeless.run.json"]
        assert "symbolic" in why["link.run.json"]


def test_no_folder_outside_is_read_through_a_link(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for folder in (tmp_path / "elsewhere", store.folder / "runs" / "own"):
        asked.save(FleetRun("2026-11-02T00:00:00+00:00", "hosts", (), ("a",)), LocalFiles(folder))
    (store.folder / "runs" / "linked").symlink_to(tmp_path / "elsewhere")
    assert store.files.names("runs/*/fleet.json") == ["runs/own/fleet.json"]
    (store.folder / "runs").rename(tmp_path / "all")
    (store.folder / "runs").symlink_to(tmp_path / "all")
    assert store.files.names("runs/*/fleet.json") == []


def test_the_index_saves_reading_and_is_made_again_when_it_is_damaged_or_a_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    paths = [Path(store.add(json_text(record(number)))) for number in range(3)]
    first = load(store)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "read", lambda *_: pytest.fail("everything is in the index"))
        assert load(store).runs == first.runs
    with sqlite3.connect(tmp_path / INDEX_FILE) as connection:
        assert connection.execute("select count(*) from card where serial = '16500000012'").fetchone() == (0,)
        assert connection.execute("select count(*) from card").fetchone() == (24,)
    for damage in (b"not SQLite", b"", (tmp_path / INDEX_FILE).read_bytes()[:5000]):
        (tmp_path / INDEX_FILE).write_bytes(damage)
        assert load(store).runs == first.runs
    paths[0].unlink()
    assert len(load(store).runs) == 2
    changed = json_text(replace(record(1), harness="0.2.0"))
    paths[1].write_text(changed, encoding="utf-8")
    assert {seen.record.harness for seen in load(store).runs} == {"0.1.0", "0.2.0"}


def test_a_store_that_cannot_be_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.add(json_text(record()))

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("sqlite3.connect", full)
    found = load(store)
    assert (len(found.runs), found.unwritten) == (1, "database or disk is full")
    assert [path.name for path in tmp_path.iterdir()] == ["records"], "nothing half done is left"


def test_what_2000_writers_write_at_once_is_all_kept(
    tmp_path: Path, fresh_process: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    fresh_process(store_writers.write_all, new_python=True, STORE=str(tmp_path))
    found = load(Store(tmp_path))
    assert sorted(seen.host for seen in found.runs) == sorted(
        f"n{number}" for number in range(store_writers.WRITERS * store_writers.EACH)
    )
    assert (found.left_out, found.unwritten) == ((), None)
    assert not list(tmp_path.rglob(".*")), "nothing half done is left"


def test_writers_that_are_killed_at_any_moment_leave_a_store_that_opens(
    tmp_path: Path, fresh_process: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    fresh_process(store_writers.write_all, new_python=True, STORE=str(tmp_path), KILLED="1")
    for _ in ("read", "from the index"):
        found = load(Store(tmp_path))
        assert (found.left_out, found.unwritten) == ((), None)
        assert len(found.runs) > 0
    # And it can still be written.
    Store(tmp_path).add(store_writers.text_of(10_000))
    assert "n10000" in {seen.host for seen in load(Store(tmp_path)).runs}


def test_a_name_from_a_machine_is_no_path(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for name in ("../../etc/passwd", "a/b", "\x00", "-rf", "x" * 500):
        path = Path(store.add(json_text(replace(record(), host=Host(name)))))
        assert path.parent == store.folder / "records"
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_what_is_no_record_is_not_added(tmp_path: Path) -> None:
    for text, why in (("{", "is not JSON"), ("{}", "schema_version"), ("x" * (MOST_BYTES + 1), "not a record")):
        with pytest.raises(ValueError, match=why):
            Store(tmp_path).add(text)
    assert not list(tmp_path.iterdir())
    with pytest.raises(StoreError, match="no such folder"):
        load(Store(tmp_path / "absent"))
