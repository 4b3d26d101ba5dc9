"""Which hosts an error is about, without TensorFlow."""

from __future__ import annotations

import socket

import pytest

from harness.devices import lost
from harness.devices.address import Address
from harness.devices.hosts import Host, Silence
from harness.devices.lost import lost_hosts, naming_hosts

_HOSTS = tuple(Host("worker", task, Address("h", 100 + task)) for task in (1, 11))


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(lost, "_hosts", lambda _: _HOSTS)
    monkeypatch.setattr(lost, "silent", lambda *_: ())
    return monkeypatch


def test_hosts_that_are_silent_are_named(answering: pytest.MonkeyPatch) -> None:
    answering.setattr(lost, "silent", lambda hosts, *_: (Silence(hosts[1], "hangs"),))
    error = RuntimeError("at /job:worker/replica:0/task:1/device:CPU:0")
    assert naming_hosts("it failed", error) == "it failed; h:111 (/job:worker/task:11) hangs"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("at /job:worker/replica:0/task:1/device:CPU:0", "it failed; /job:worker/task:1 is h:101"),
        ("at /job:worker/replica:0/task:11: reset", "it failed; /job:worker/task:11 is h:111"),
        ("at /job:worker/replica:0/task:1", "it failed; /job:worker/task:1 is h:101"),
        (
            "/job:worker/replica:0/task:1 to /job:worker/replica:0/task:11",
            "it failed; /job:worker/task:1 is h:101, /job:worker/task:11 is h:111",
        ),
        ("at /job:worker/replica:0/task:111", "it failed"),
        ("shapes differ", "it failed"),
    ],
)
@pytest.mark.usefixtures("answering")
def test_else_the_tasks_that_the_error_names_get_their_addresses(message: str, said: str) -> None:
    assert naming_hosts("it failed", RuntimeError(message)) == said


@pytest.mark.parametrize("spec", ["cpu:2", "auto", "no spec", "cluster:tf_config", "mine.toml"])
def test_other_specs_have_no_hosts_to_lose(spec: str) -> None:
    assert lost_hosts(spec) == ()
    assert naming_hosts("it failed", spec=spec) == "it failed"


def test_a_spec_of_another_process_is_asked_for_its_hosts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    said = naming_hosts("it took longer", spec=f"cluster:127.0.0.1:{port}")
    assert said.startswith(f"it took longer; 127.0.0.1:{port} (/job:worker/task:0) refuses the connection")
