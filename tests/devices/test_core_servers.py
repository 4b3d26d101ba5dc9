"""Starting the servers, and what is said where one does not start."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from harness.devices.cores import usable_cores
from harness.devices.servers import CoreServers, proxy_exception
from harness.errors import CoreServerFailed, HarnessError


def _servers_of_this_process() -> list[int]:
    found = []
    for child in psutil.Process().children():
        # A fork of another test that ended, and was not waited for yet, has no command line.
        with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
            if any(part.endswith("core_server.py") for part in child.cmdline()):
                found.append(child.pid)
    return found


def test_a_server_that_ends_at_once_is_an_error_with_what_it_said(tmp_path: Path) -> None:
    cpu = usable_cores()[0]
    servers = CoreServers([cpu], tmp_path)
    with pytest.raises(CoreServerFailed) as caught:
        servers.wait(limit_s=300)
    error = caught.value
    assert (error.cpu, error.what) == (cpu, "exited while starting")
    assert "cannot open shared object file" in error.log
    assert error.log in str(error)
    assert isinstance(error, HarnessError)
    assert _servers_of_this_process() == []


def test_a_server_that_hangs_is_an_error_after_the_time_limit(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "libtensorflow_cc.so.2")  # opening it never ends
    servers = CoreServers([usable_cores()[0]], tmp_path)
    assert len(_servers_of_this_process()) == 1
    with pytest.raises(CoreServerFailed, match=r"did not start within 0\.5 s"):
        servers.wait(limit_s=0.5)
    assert _servers_of_this_process() == []


def test_stopping_twice_is_fine(tmp_path: Path) -> None:
    servers = CoreServers([usable_cores()[0]], tmp_path)
    servers.stop()
    servers.stop()
    assert _servers_of_this_process() == []


@pytest.mark.parametrize(
    ("environ", "added"),
    [
        ({}, {}),
        ({"no_proxy": "a"}, {}),
        ({"http_proxy": ""}, {}),
        ({"http_proxy": "http://p"}, {"no_grpc_proxy": "127.0.0.1"}),
        ({"https_proxy": "http://p", "no_proxy": "a,b"}, {"no_grpc_proxy": "a,b,127.0.0.1"}),
        ({"grpc_proxy": "p", "no_grpc_proxy": "127.0.0.1,c", "no_proxy": "a"}, {"no_grpc_proxy": "127.0.0.1,c"}),
    ],
)
def test_this_machine_is_reached_without_a_proxy_and_all_else_as_before(
    environ: dict[str, str], added: dict[str, str]
) -> None:
    assert proxy_exception(environ) == added


def the_definition_of_a_server() -> None:
    import tensorflow as tf

    from harness.devices.core_server import server_definition

    read = tf.train.ServerDef.FromString(server_definition())
    config = tf.compat.v1.ConfigProto(
        device_count={"GPU": 0}, intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
    )
    cluster = tf.train.ClusterSpec({"core": {0: "127.0.0.1:0"}}).as_cluster_def()
    expected = tf.train.ServerDef(
        cluster=cluster, job_name="core", task_index=0, default_session_config=config, protocol="grpc"
    )
    # The number of the task is 0, which a protocol buffer leaves out.
    assert read == expected, (read, expected)


def test_what_is_written_by_hand_is_the_protocol_buffer_that_tensorflow_reads(
    fresh_process: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    fresh_process(the_definition_of_a_server)
