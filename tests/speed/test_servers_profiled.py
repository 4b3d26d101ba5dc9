"""Devices of TensorFlow servers: each server gives a profile of its own, and all are on one axis."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

#: A server on one address of two, as a user would start it. It ends when its stdin does.
SERVER = """
import sys, tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
addresses = sys.argv[2].split(",")
server = tf.distribute.Server({"core": addresses}, job_name="core", task_index=int(sys.argv[1]), start=True)
print("ready", flush=True)
sys.stdin.read()
"""


def profile_on_servers() -> None:
    """Start two servers, profile a program on both, and one that sends its data to and fro; print what was seen."""
    import socket
    import tempfile
    from pathlib import Path

    import tensorflow as tf

    from harness.devices.device import Device
    from harness.speed.timeline.profiling import profile_calls

    sockets = [socket.socket() for _ in range(2)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    servers = [
        subprocess.Popen(
            [sys.executable, "-c", SERVER, str(index), ",".join(addresses)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for index in range(2)
    ]
    try:
        for server in servers:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
        tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({"core": addresses}), protocol="grpc")
        devices = [Device(f"/job:core/replica:0/task:{task}/device:CPU:0", "remote", "a server") for task in range(2)]
        here = "/job:localhost/replica:0/task:0/device:CPU:0"
        variables = []
        for device in devices:
            with tf.device(device.name):
                variables.append(tf.Variable(tf.random.normal([256, 256])))
        large = tf.random.normal([4000, 1000])

        def towers() -> object:
            outputs = []
            for device, variable in zip(devices, variables, strict=True):
                with tf.device(device.name):
                    outputs.append(tf.matmul(tf.matmul(variable, variable), variable))
            with tf.device(here):
                return tf.add_n(outputs)

        def to_and_fro() -> object:
            outputs = []
            for device in devices:
                with tf.device(device.name):
                    outputs.append(tf.negative(large))
            with tf.device(here):
                return tf.add_n(outputs)

        seen = {}
        with tempfile.TemporaryDirectory() as folder:
            for name, program in {
                "graph": tf.function(towers),
                "eager": towers,
                "copies": tf.function(to_and_fro),
            }.items():
                looked = profile_calls(program, devices=devices, calls=3, folder=Path(folder) / "profile")
                seen[name] = {
                    "products": [
                        sum(
                            span.name.startswith("MatMul") and span.name.count("/") == 0 and span.device == each.name
                            for span in looked.spans
                        )
                        for each in devices
                    ],
                    "eager_ops": [each.eager_ops for each in looked.profile.listed],
                    "rows": [(each.device, each.listed) for each in looked.profile.times],
                    "transfer_share": max(each.transfer_ns for each in looked.profile.times) / looked.profile.wall_ns,
                    "inside": all(
                        looked.calls[0][0] <= span.begin_ns and span.end_ns <= looked.calls[-1][1]
                        for span in looked.spans
                        if span.name.startswith("MatMul")
                    ),
                    "unknown": list(looked.profile.unknown),
                    "causes": [cause.kind for cause in looked.profile.causes],
                }
        print(json.dumps(seen))
    finally:
        for server in servers:
            server.kill()
            server.wait()


def test_each_servers_ops_are_its_devices(fresh_process: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    seen = json.loads(fresh_process(profile_on_servers).stdout.splitlines()[-1])
    for name in ("graph", "eager"):
        assert seen[name]["products"] == [2 * 3, 2 * 3], name
        assert seen[name]["inside"], "the servers' clocks and this process' are one"
        assert seen[name]["unknown"] == []
    assert seen["graph"]["eager_ops"] == [0, 0]
    assert min(seen["eager"]["eager_ops"]) >= 2 * 3
    assert [listed for _, listed in seen["graph"]["rows"]] == [True, True, False], "the host joins, and is no device"
    assert seen["copies"]["transfer_share"] > seen["graph"]["transfer_share"]
    assert "host-copies" in seen["copies"]["causes"]
