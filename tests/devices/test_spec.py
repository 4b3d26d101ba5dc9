from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.devices.address import Address
from harness.devices.kinds.auto import AutoSpec
from harness.devices.kinds.cluster import ClusterSpec
from harness.devices.kinds.cores import CoresSpec
from harness.devices.kinds.cpu import CpuSpec
from harness.devices.kinds.gpu import GpuSpec
from harness.devices.kinds.kind import MAX_COUNT
from harness.devices.kinds.logical_gpu import LogicalGpuSpec
from harness.devices.spec import ProfileFile, ShippedProfile, Spec, accepted_specs, parse_spec, spec_forms
from harness.errors import InvalidSpec, UsageError


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("auto", AutoSpec()),
        ("cpu:1", CpuSpec(1)),
        ("cpu:12", CpuSpec(12)),
        (f"cpu:{MAX_COUNT}", CpuSpec(MAX_COUNT)),
        ("gpu", GpuSpec()),
        ("gpu:3", GpuSpec(3)),
        ("gpu:2x4096", LogicalGpuSpec(2, 4096)),
        ("cores:2", CoresSpec(2)),
        ("cluster:a:1", ClusterSpec((Address("a", 1),))),
        ("cluster:10.0.0.1:8470,n-2.lan:65535", ClusterSpec((Address("10.0.0.1", 8470), Address("n-2.lan", 65535)))),
        ("cluster:[fd00::1]:8470", ClusterSpec((Address("[fd00::1]", 8470),))),
        ("cluster:tf_config", ClusterSpec(resolver="tf_config")),
        ("cluster:slurm", ClusterSpec(resolver="slurm")),
        ("cluster:kubernetes", ClusterSpec(resolver="kubernetes")),
        ("@cpu-4", ShippedProfile("cpu-4")),
        ("mine.toml", ProfileFile(Path("mine.toml"))),
        ("/some/where/mine.toml", ProfileFile(Path("/some/where/mine.toml"))),
    ],
)
def test_a_spec_of_the_grammar_is_read_and_printed_back(text: str, spec: Spec) -> None:
    assert parse_spec(text) == spec
    assert str(parse_spec(text)) == text


def test_a_path_object_names_a_profile_file() -> None:
    assert parse_spec(Path("mine.toml")) == ProfileFile(Path("mine.toml"))
    with pytest.raises(InvalidSpec, match=r"ends in \.toml"):
        parse_spec(Path("cpu:2"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("cpu", "say how many"),
        ("cpu:0", "at least 1 device is needed"),
        ("cpu:-1", "unknown"),
        ("cpu:2.0", "unknown"),
        ("cpu:2x100", "unknown"),
        (f"cpu:{MAX_COUNT + 1}", "at most"),
        ("gpu:0", "at least 1 device is needed"),
        ("gpu:0x100", "at least 1 device is needed"),
        ("gpu:2x0", "1 MiB or more"),
        ("gpu:2x", "unknown"),
        ("gpu:2x4096MiB", "lower case"),
        ("CPU:4", "lower case"),
        (" cpu:4", "without spaces"),
        ("cpu:4\n", "without spaces"),
        ("cpu:٣", "unknown"),
        ("cores", "say how many CPU cores"),
        ("core:2", "say how many CPU cores"),
        ("cores:0", "at least 1 device is needed"),
        ("cores:2x1", "unknown"),
        ("cluster", "list the hosts"),
        ("cluster:", "list the hosts"),
        ("cluster:a", "host 'a' has no port"),
        ("cluster:[::1]", "has no port"),
        ("cluster:slurm2", "a resolver can be named instead of hosts: tf_config, slurm, kubernetes"),
        ("cluster:a:", "port '' of host 'a' is not a number from 1 to 65535"),
        ("cluster:a:x", "port 'x' of host 'a'"),
        ("cluster:a:0", "port '0' of host 'a'"),
        ("cluster:a:65536", "port '65536' of host 'a'"),
        ("cluster:a:٣", "is not a number"),
        ("cluster::1", "'' of ':1' is not a host"),
        ("cluster:a b:1", "'a b' of 'a b:1' is not a host"),
        ("cluster:fd00::1:8470", "'fd00::1' of 'fd00::1:8470' is not a host"),
        ("cluster:a:1,", "the list of hosts has an empty entry"),
        ("cluster:a:1,,b:1", "the list of hosts has an empty entry"),
        ("cluster:a:1,b:1,a:1", "host a:1 is listed twice"),
        ("cluster:a:1,A:01", "host a:1 is listed twice"),
        ("cluster:grpc://a:1", "is not a host"),
        ("cluster:" + ",".join(f"a:{1 + index}" for index in range(MAX_COUNT + 1)), "hosts are supported"),
        ("tpu:2", "unknown"),
        ("@", "profile name"),
        ("@../secrets", "profile name"),
        ("@cpu-4.toml", "without .toml"),
        ("some/where/mine", "unknown"),
        ("/GPU:0", "names one device, and a spec says how many; gpu:1 takes the first GPU"),
        ("/device:GPU:3", "gpu:1 takes the first GPU, gpu:4 the first 4"),
        ("/job:localhost/replica:0/task:0/device:CPU:1", "cpu:2 the first 2"),
        ("GPU:2", "without spaces; did you mean 'gpu:2'?"),
        ("gpus:2", "unknown; did you mean 'gpu:2'?"),
        ("cuda:2", "unknown; did you mean 'gpu:2'?"),
        ("cuda:0", "names one device, and a spec says how many; gpu:1 takes the first GPU"),
        ("GPU:0", "names one device, and a spec says how many; gpu:1 takes the first GPU"),
        (
            "gpu:0,1",
            "gpu:2 takes the first 2 GPUs; CUDA_VISIBLE_DEVICES chooses others",
        ),
        ("/gpu:0,/gpu:1,/gpu:3", "gpu:3 takes the first 3 GPUs"),
        ("cpu:0,1", "names devices, and a spec says how many; cpu:2 takes the first 2 CPUs"),
        ("0,1", "gpu:2 takes the first 2 GPUs"),
        ("CUDA:1", "lower case and without spaces; did you mean 'gpu:1'?"),
        ("cpus:4", "did you mean 'cpu:4'?"),
    ],
)
def test_anything_else_is_refused_in_one_line_that_says_what_is_accepted(text: str, why: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(text)
    message = str(caught.value)
    assert caught.value.spec == text
    assert why in caught.value.why
    assert repr(text) in message
    assert message.endswith(f"; accepted: {accepted_specs()}")
    assert "\n" not in message
    assert isinstance(caught.value, (UsageError, ValueError))


@pytest.mark.parametrize("thing", [None, 4, b"cpu:4", ["cpu:4"]])
def test_what_is_not_a_text_is_refused(thing: Any) -> None:
    with pytest.raises(InvalidSpec, match=f"type {type(thing).__name__}"):
        parse_spec(thing)


def test_every_kind_has_its_own_forms_and_profiles_accept_all_but_other_hosts() -> None:
    assert all(form.meaning for form in spec_forms())
    written = [form.written for form in spec_forms()]
    assert len(set(written)) == len(written)
    assert (
        accepted_specs(in_profile=True)
        == "auto, cpu:N, gpu, gpu:N, gpu:NxM, softgpu:N, softgpu:NxM, softgpu:@NAME, softgpu:FILE.toml or cores:N"
    )
    assert accepted_specs().startswith(
        "auto, cpu:N, gpu, gpu:N, gpu:NxM, softgpu:N, softgpu:NxM, softgpu:@NAME, softgpu:FILE.toml, cores:N, "
        "cluster:HOST:PORT,HOST:PORT, "
    )
