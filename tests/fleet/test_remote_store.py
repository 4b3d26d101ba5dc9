"""A store at a URL: the same verdict as of the same files in a folder, and one clear line for whatever goes wrong."""

from __future__ import annotations

import random
import sys
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import fsspec
import pytest
import simulated_fleet as simulated
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import known_implementations

from harness.cli.fleet_options import folder_of
from harness.errors import MissingExtra
from harness.fleet import asked
from harness.fleet.asked import FleetRun
from harness.fleet.engines.engine import Asked, Done, MachineRun
from harness.fleet.files import LocalFiles, StoreError
from harness.fleet.fleet import judge_store
from harness.fleet.index import load
from harness.fleet.links.newest import newest_verdict
from harness.fleet.links.record import LinkPlan, LinkRun, Report, keep
from harness.fleet.links.run import LinkOptions, carry_out as carry_out_links, start as start_links
from harness.fleet.links.schedule import schedule
from harness.fleet.policy import Judging, Policy
from harness.fleet.remote_files import RemoteFiles
from harness.fleet.run import carry_out, resume, start
from harness.fleet.store import Store
from harness.records import RunRecord
from harness.report.storage import json_text, save_json, save_run

NOW = datetime(2026, 11, 2, tzinfo=timezone.utc)


def record(number: int = 0) -> RunRecord:
    return simulated.sound(number, random.Random(number))


class Fragile(MemoryFileSystem):  # type: ignore[misc]
    """An object store that fails where the test says so, and counts the bytes that it is asked for."""

    protocol = "fragile"
    store: dict[str, Any] = {}  # noqa: RUF012 - fsspec's own
    pseudo_dirs = [""]  # noqa: RUF012
    fails: dict[str, Exception] = {}  # noqa: RUF012
    asked: list[tuple[str, Any, Any]] = []  # noqa: RUF012
    silent = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("fragile://").strip("/")

    def find(self, path: str, *given: Any, **options: Any) -> Any:
        self._fail("find")
        found = super().find(path, *given, **options)
        return {name: {"name": name, "type": "file"} for name in found} if self.silent else found

    def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> bytes:
        self.asked.append((path, start, end))
        self._fail(path.rpartition("/")[2])
        content: bytes = super().cat_file(path, start, end, **options)
        return content

    def pipe_file(self, path: str, value: bytes, *given: Any, **options: Any) -> None:
        self._fail("write")
        super().pipe_file(path, value, *given, **options)

    def _fail(self, what: str) -> None:
        if what in self.fails:
            raise self.fails[what]


@pytest.fixture
def fragile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Fragile]]:
    """The class of a store at ``fragile://``. The user's cache is a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fsspec.register_implementation("fragile", Fragile, clobber=True)
    yield Fragile
    for kept in (Fragile.store, Fragile.fails, Fragile.asked, MemoryFileSystem.store):
        kept.clear()
    Fragile.pseudo_dirs[:] = MemoryFileSystem.pseudo_dirs[:] = [""]
    Fragile.silent = False


def test_the_same_files_give_the_same_verdict_at_a_url_as_in_a_folder(tmp_path: Path, fragile: type[Fragile]) -> None:
    folder = tmp_path / "store"
    run = FleetRun(NOW.isoformat(), "hosts", (), ("sim-0001", "sim-0002", "away"))
    asked.save(run, LocalFiles(folder / "runs" / "1"))
    for number in (1, 2):
        save_run(record(number), folder / "runs" / "1" / f"sim-000{number}")
    save_run(simulated.plant(record(3), "stuck-bit", 2)[0], folder / "old")
    links = LinkRun(NOW.isoformat(), "hosts", ("a", "b", "c"), tuple(schedule("abc", 3, 0)))
    save_json(links, folder / "links" / "1", "links.json")
    keep(Report("a", 1, "done"), LocalFiles(folder / "links" / "1" / "a"))
    (folder / "links" / "1" / "b").mkdir()
    for name, content in {
        "damaged.run.json": b"{",
        "empty.run.json": b"",
        "newer.run.json": json_text(replace(record(4), schema_version=99)).encode(),
        "bytes.run.json": b"\xff\xfe",
        "logs/not.run.json": b"{",
        "runs/2/fleet.json": b"[" * 100_000,
        "links/1/b/00001.exchange.json": b"{",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    local = judge_store(Store(folder), Policy(), NOW)
    assert (local.counts.asked, local.counts.proven, local.counts.action) == (4, 2, 1)
    assert [each.path for each in local.left_out] == [
        "bytes.run.json",
        "damaged.run.json",
        "empty.run.json",
        "links/1/b/00001.exchange.json",
        "newer.run.json",
        "runs/2/fleet.json",
    ]
    for path in folder.rglob("*"):
        if path.is_file():
            for url in ("memory://bucket/store", "fragile://bucket/store"):
                with fsspec.open(f"{url}/{path.relative_to(folder)}", "wb") as file:
                    file.write(path.read_bytes())
    for place in ("memory://bucket/store", "memory://bucket/store/", f"file://{folder}", "fragile://bucket/store"):
        for _ in ("read", "from the index"):
            assert judge_store(Store(place), Policy(), NOW) == local, place
    assert Store(f"file://localhost{folder}").files == Store(folder).files == LocalFiles(folder)
    Fragile.silent = True  # a driver that tells no size and no time
    assert judge_store(Store("fragile://bucket/store"), Policy(), NOW) == local


def test_records_are_added_at_a_url_and_the_index_is_in_the_users_cache(
    tmp_path: Path, fragile: type[Fragile], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store("memory://bucket/x")
    names = [store.add(json_text(record(number))) for number in (0, 1, 1)]
    assert names[0].startswith("memory://bucket/x/records/")
    assert len({*names}) == 2, "the same record is kept once"
    first = load(store)
    assert [seen.host for seen in first.runs] == ["sim-0000", "sim-0001"]
    assert load(Store("memory://bucket")).runs[0].path == first.runs[0].path.replace("records", "x/records")
    (index, _) = sorted((tmp_path / "cache").rglob("index.sqlite"), key=lambda path: path.stat().st_mtime_ns)
    assert index.parent.stat().st_mode & 0o077 == 0, "names of machines are for the user alone"
    with monkeypatch.context() as patch:
        patch.setattr(RemoteFiles, "texts", lambda *_: pytest.fail("everything is in the index"))
        assert load(Store("memory://bucket/x")).runs == first.runs
    with fsspec.open(names[0], "wb") as file:
        file.write(json_text(replace(record(0), harness="0.2.0")).encode())
    assert {seen.record.harness for seen in load(store).runs} == {"0.1.0", "0.2.0"}
    assert load(Store("memory://bucket/empty")).runs == ()
    with pytest.raises(ValueError, match="is not JSON"):
        store.add("{")


def test_no_more_is_read_of_a_file_than_a_record_can_have(
    fragile: type[Fragile], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = json_text(record()).encode()
    most = len(whole) + 10
    monkeypatch.setattr("harness.fleet.remote_files.MOST_BYTES", most)
    monkeypatch.setattr("harness.fleet.files.MOST_BYTES", most)
    files = fsspec.filesystem("fragile")
    for name, content in (("fits", whole), ("huge", b" " * 10 * most), ("empty", b"")):
        files.pipe_file(f"/s/{name}.run.json", content)
    found = load(Store("fragile://s"))
    assert [(each.path, each.why) for each in found.left_out] == [
        ("empty.run.json", "is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("huge.run.json", f"has {10 * most:,} bytes, more than a record can have"),
    ]
    assert [seen.host for seen in found.runs] == ["sim-0000"]
    assert {path.rpartition("/")[2]: (start, end) for path, start, end in Fragile.asked} == {
        "fits.run.json": (0, len(whole) + 1),
        "huge.run.json": (0, most + 1),
    }
    Fragile.silent = True
    Fragile.asked.clear()
    found = load(Store("fragile://s"))
    assert [each.path for each in found.left_out] == ["empty.run.json", "huge.run.json"]
    assert {end for _, _, end in Fragile.asked} == {most + 1}


def test_what_cannot_be_read_is_named_and_tried_again_and_an_error_of_the_driver_is_no_verdict(
    fragile: type[Fragile],
) -> None:
    store = Store("fragile://user:secret@s/x")
    names = [store.add(json_text(record(number))).rpartition("/")[2] for number in (0, 1)]
    assert store.name == "fragile://s/x"
    for error in (PermissionError("Access Denied"), FileNotFoundError("gone")):
        fragile.fails[names[0]] = error
        for _ in ("first", "again"):
            found = load(store)
            assert [(each.path, each.why) for each in found.left_out] == [(f"records/{names[0]}", str(error))]
            assert len(found.runs) == 1
    fragile.fails[names[0]] = TimeoutError("the server\ndid not answer")
    with pytest.raises(StoreError, match=r"^store fragile://s/x: the server did not answer$"):
        load(store)
    fragile.fails.clear()
    assert len(load(store).runs) == 2
    for what, use in (("find", lambda: load(store)), ("write", lambda: store.add(json_text(record(2))))):
        for failed, said in (
            (ConnectionError("Could not connect to the endpoint URL"), "Could not connect to the endpoint URL"),
            (PermissionError("Access Denied"), "Access Denied"),
            (KeyError(), "KeyError"),
        ):
            fragile.fails[what] = failed
            with pytest.raises(StoreError, match=rf"^store fragile://s/x: {said}$"):
                use()


def test_a_url_without_its_driver_is_one_line_that_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"class": "no_such_driver.FileSystem", "err": "Install no_such_driver to access it"}
    monkeypatch.setitem(known_implementations, "needs", known)
    with pytest.raises(StoreError, match=r"^store needs://b/x: Install no_such_driver to access it$"):
        Store("needs://b/x")
    with pytest.raises(StoreError, match=r"^store unheard://b/x: Protocol not known: unheard$"):
        Store("unheard://b/x")
    with pytest.raises(StoreError, match=r"^store file://fleet: accepted: file:///FOLDER"):
        Store("file://fleet")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setattr("harness.extras.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"fsspec is not installed; run: .*\[fleet\]"):
        Store("memory://b/x")
    assert Store("file:///nowhere").name == "/nowhere", "a folder needs no fsspec"


class Bringing:
    """An engine that brings the records of three machines, of which one is not idle."""

    name = "made up"
    needs_folder = False

    def machines(self) -> list[Asked]:
        return [Asked("sim-0001"), Asked("sim-0002"), Asked("away", "not idle")]

    def addresses(self, machines: Sequence[str]) -> dict[str, str]:
        raise NotImplementedError

    def run(self, machines: Sequence[str], work: MachineRun) -> Generator[Done, None, None]:
        for name in machines:
            yield Done(name, json_text(record(int(name[-1]))))


def test_what_an_engine_brings_is_kept_at_a_url_as_soon_as_it_comes_and_a_run_is_resumed(
    fragile: type[Fragile],
) -> None:
    store, engine, work = Store("fragile://bucket/x"), Bringing(), MachineRun((), Path("unused"), 60.0)

    def counts() -> tuple[int, int, int]:
        found = judge_store(store, Policy(), NOW).counts
        return found.asked, found.reached, found.proven

    files, run = start(engine, (), store, NOW)
    going = carry_out(engine, work, run, files)
    assert next(going).machine == "sim-0001"
    going.close()
    assert counts() == (3, 1, 1)
    files, rest = resume(engine, store)
    assert (files.name.startswith("fragile://bucket/x/runs/20261102T000000Z-"), len(rest.outcomes)) == (True, 1)
    fragile.fails["write"] = PermissionError("Access Denied")
    with pytest.raises(StoreError, match=r"^store fragile://bucket/x/runs/.*: Access Denied; the run has ended, and"):
        list(carry_out(engine, work, rest, files))
    fragile.fails.clear()
    assert [each.machine for each in carry_out(engine, work, rest, files)] == ["sim-0002"]
    assert counts() == (3, 2, 2)
    other, _ = start(engine, (), store, NOW)
    assert other.name != files.name, "two runs in one second meet nowhere"
    assert not Path("unused").exists()


def test_where_there_are_folders_those_in_the_store_are_made_and_the_store_is_not(
    tmp_path: Path, fragile: type[Fragile]
) -> None:
    place = f"simplecache::file://{tmp_path}/store"
    with pytest.raises(StoreError, match="No such file or directory"):
        start(Bringing(), (), Store(place), NOW)
    (tmp_path / "store").mkdir()
    files, run = start(Bringing(), (), Store(place), NOW)
    assert len(list(carry_out(Bringing(), MachineRun((), Path("unused"), 60.0), run, files))) == 2
    assert judge_store(Store(place), Policy(), NOW).counts.proven == 2


class Writing(Bringing):
    """An engine whose machines write to a folder that they share."""

    needs_folder = True

    def run(self, machines: Sequence[str], work: MachineRun) -> Generator[Done, None, None]:
        for name in machines:
            save_run(record(int(name[-1])), work.folder / name)
            if work.links:
                for number in LinkPlan.unpacked(work.arguments[-1]).exchanges:
                    keep(Report(name, number, "done"), LocalFiles(work.folder / name))
            yield Done(name)

    def addresses(self, machines: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(machines, "127.0.0.1")


def test_what_machines_write_to_a_shared_folder_comes_to_the_url(tmp_path: Path, fragile: type[Fragile]) -> None:
    store, engine = Store("fragile://bucket/x"), Writing()
    with pytest.raises(StoreError, match="the machines write to a folder; name one that they share with --shared"):
        folder_of(engine, store.files, None)
    files, run = start(engine, (), store, NOW)
    folder = folder_of(engine, files, tmp_path)
    assert folder == tmp_path / files.name.rpartition("/")[2]
    # One machine has finished after nobody waited for it any more.
    save_run(record(2), folder / "sim-0002")
    done = [each.machine for each in carry_out(engine, MachineRun((), folder, 60.0), run, files)]
    assert done == ["sim-0002", "sim-0001"]
    assert judge_store(store, Policy(), NOW).counts.proven == 2
    assert newest_verdict(store, (), Judging())[0] is None
    files, links = start_links(engine, LinkOptions(), store, NOW)
    folder = folder_of(engine, files, tmp_path)
    assert list(carry_out_links(engine, LinkOptions(), files, links, Judging(), (), folder)) == [
        "sim-0001: done",
        "sim-0002: done",
    ]
    found = judge_store(store, Policy(), NOW).links
    assert found is not None
    assert (found.asked, found.measured, found.left_out) == (1, 1, (("away", "not idle"),))
