"""``configure("cores:2")`` on the real TensorFlow: each function below is a process of its own, and says much in it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import forks
import pytest
from core_processes import TWO_CORES, listening_ports
from ended_processes import is_gone, wait_until

from harness.devices.cores import usable_cores
from harness.errors import DevicesAlreadyConfigured, DevicesUnavailable

FreshProcess = Callable[..., CompletedProcess[str]]


def two_cores() -> None:
    import psutil
    import tensorflow as tf

    from harness.devices.fingerprint import fingerprint
    from harness.devices.runtime import configure, current, server_process

    with pytest.raises(DevicesUnavailable, match="one per device"):
        configure(f"cores:{len(usable_cores()) + 1}")
    devices = configure("cores:2")
    names = tuple(f"/job:core/replica:0/task:{task}/device:CPU:0" for task in range(2))
    cpus = usable_cores()[:2]
    assert devices.names == names
    assert [(device.kind, device.physical) for device in devices] == [
        ("core", f"/physical_device:CPU:core={cpu}") for cpu in cpus
    ]
    assert devices.host == "/job:localhost/replica:0/task:0/device:CPU:0"
    assert configure("cores:2") is devices is current()
    for other in ("cores:1", "cpu:2", "cpu:1"):
        with pytest.raises(DevicesAlreadyConfigured, match="2 core device"):
            configure(other)
    assert (fingerprint().spec, fingerprint().devices, fingerprint().soft_placement) == ("cores:2", names, False)
    with pytest.raises((tf.errors.OpError, RuntimeError, ValueError)), tf.device(names[1].replace("task:1", "task:2")):
        tf.linalg.matmul(tf.ones([2, 2]), tf.ones([2, 2]))

    # Each server is on its core, with all its threads, and one of them does the work.
    pids = [server_process(device) for device in devices]
    assert len({os.getpid(), *pids}) == 3
    for pid, cpu in zip(pids, cpus, strict=True):
        for status in Path(f"/proc/{pid}/task").glob("*/status"):
            assert f"Cpus_allowed_list:\t{cpu}\n" in status.read_text(encoding="ascii")

    @tf.function
    def work(x):  # type: ignore[no-untyped-def]
        with tf.device(names[0]):
            for _ in range(200):
                x = tf.linalg.matmul(x, x) / 512.0
            return tf.reduce_sum(x)

    matrix = tf.ones([512, 512])
    work(matrix)

    def ticks(pid: int | None) -> dict[str, int]:
        stats = {
            path.parent.name: path.read_text(encoding="ascii") for path in Path(f"/proc/{pid}/task").glob("*/stat")
        }
        return {thread: sum(map(int, text.rpartition(")")[2].split()[11:13])) for thread, text in stats.items()}

    def spent(before: dict[str, int], after: dict[str, int]) -> list[int]:
        return sorted(after[thread] - before.get(thread, 0) for thread in after)

    before = [ticks(pid) for pid in pids]
    for _ in range(3):
        work(matrix)
    after = [ticks(pid) for pid in pids]
    busy, idle = spent(before[0], after[0]), spent(before[1], after[1])
    assert busy[-1] > 10
    assert busy[-1] > 0.8 * sum(busy), "one thread does it"
    assert sum(idle) < 0.2 * sum(busy), "the other device does nothing"

    # A tensor goes from one server to the other without coming by here.
    with tf.device(names[0]):
        made = tf.ones([64, 64])
    with tf.device(names[1]):
        product = tf.linalg.matmul(made, made)
    assert product.backing_device == names[1]
    assert float(product[3, 5]) == 64.0
    ports = [listening_ports(pid) for pid in pids]
    between = [
        connection.raddr.port
        for connection in psutil.Process(pids[1]).net_connections("tcp")
        if connection.status == psutil.CONN_ESTABLISHED
    ]
    assert set(between) & set(ports[0]), "the second server fetches from the first"

    # They listen on every interface, as does this process, and nobody else gets through.
    address = next(
        (
            entry.address
            for entries in psutil.net_if_addrs().values()
            for entry in entries
            if entry.family == socket.AF_INET and not entry.address.startswith("127.")
        ),
        None,
    )
    for port in [*ports[0], *ports[1], *listening_ports(os.getpid())]:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        if address is not None:
            with pytest.raises(TimeoutError):
                socket.create_connection((address, port), timeout=0.5)

    # A variable of the host is read where it is needed, and one that is made on a core lives there.
    on_host = tf.Variable(tf.ones([2, 2]))
    with tf.device(names[1]):
        on_core = tf.Variable(tf.ones([2, 2]))
        assert tf.linalg.matmul(on_host, on_core).backing_device == names[1]
    assert (on_host.device, on_core.device) == (devices.host, names[1])
    with tf.device(names[0]):
        assert float(tf.linalg.matmul(on_core, on_core)[0, 0]) == 2.0
    print("pids", *pids)


def started_by_the_user() -> None:
    import tensorflow as tf

    from harness.devices.runtime import configure

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.constant(1.0)
    with pytest.raises(DevicesAlreadyConfigured, match="not by the harness"):
        configure("cores:1")
    assert forks.children() == []


def own_profile_behind_a_proxy() -> None:
    import tempfile

    import tensorflow as tf

    from harness.devices.runtime import configure

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.toml"
        path.write_text('schema_version = 1\nspec = "cores:1"\ndeterminism = true\n', encoding="utf-8")
        devices = configure(path)
    assert len(devices) == 1
    with tf.device(devices[0].name):
        assert float(tf.reduce_sum(tf.ones([3]))) == 3.0
    (child,) = forks.children()
    assert child.environ()["TF_DETERMINISTIC_OPS"] == "1"
    assert dict(os.environ)["no_grpc_proxy"] == "example.org,127.0.0.1"


@TWO_CORES
def test_two_cores_are_servers_of_one_thread_each_on_loopback_that_end_without_a_word(
    fresh_process: FreshProcess,
) -> None:
    done = fresh_process(two_cores, new_python=True)
    pids = [int(pid) for pid in done.stdout.splitlines()[-1].split()[1:]]
    assert len(pids) == 2
    assert wait_until(lambda: all(is_gone(pid) for pid in pids))
    assert "Connection reset by peer" not in done.stderr
    assert "Failed to remove" not in done.stderr


def test_a_runtime_that_has_started_takes_no_servers(fresh_process: FreshProcess) -> None:
    fresh_process(started_by_the_user)


def test_a_profile_may_name_cores_and_a_proxy_does_not_come_between(fresh_process: FreshProcess) -> None:
    proxy = "http://127.0.0.1:9"
    fresh_process(
        own_profile_behind_a_proxy, http_proxy=proxy, https_proxy=proxy, no_proxy="example.org", no_grpc_proxy=""
    )
