"""What TensorBoard shows of results: curves and texts, in the form that its plug-ins read."""

from __future__ import annotations

from pathlib import Path

import pytest

import harness
from harness.devices.device import Devices
from harness.lazy import tf
from harness.speed.record import Interval, SpeedupRecord


def _read(folder: Path) -> dict[str, tuple[str, int, float | str]]:
    """The last value of each tag, with its plug-in and step."""
    found: dict[str, tuple[str, int, float | str]] = {}
    for file in sorted(folder.glob("events.out.*")):
        for record in tf.data.TFRecordDataset(str(file)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                array = tf.make_ndarray(value.tensor)
                shown = float(array) if array.shape == () else "\n".join(text.decode() for text in array)
                found[value.tag] = (value.metadata.plugin_data.plugin_name, event.step, shown)
    return found


def test_speedups_profiles_traces_and_verifications_are_curves_and_texts(devices: Devices, tmp_path: Path) -> None:
    some = devices[:2]

    @tf.function  # type: ignore[untyped-decorator]
    def split(x: tf.Tensor) -> tf.Tensor:
        results = []
        for device, part in zip(some, tf.split(x, 2), strict=True):
            with tf.device(device.name):
                results.append(tf.matmul(part, part, transpose_b=True))
        return tf.concat(results, 0)

    x = tf.ones((8, 4))
    times = (2_000_000, 4_000_000)
    speedup = SpeedupRecord(
        ("CPU:0", "CPU:1"), "core", "2 CPU cores", True, Interval(1.6, 1.5, 1.7, 0.95), 0.8, times, times, "pairs",
        0.01, 1.0, 1.0, warnings=("only 3 pairs",),
    )  # fmt: skip
    profile = harness.profile(split, x, devices=some, calls=2, folder=tmp_path / "kept")
    assert profile.calls == 2
    assert [times.device for times in profile.listed] == list(some.names)
    assert any((tmp_path / "kept").rglob("*.xplane.pb"))
    assert repr(profile).startswith(f"<Profile of split on {some.spec}: 2 calls, ")
    shown = profile._repr_html_()
    assert all(f">{device.parsed.short}<" in shown for device in some)

    verified = harness.verify(split, inputs={"x": x}, devices=some)
    harness.write_summaries(tmp_path / "logs", speedup, profile, harness.trace(split, x), verified, step=7)
    found = _read(tmp_path / "logs")
    assert {step for _, step, _ in found.values()} == {7}
    assert found["harness/speedup/2 CPU cores"][0] == "scalars"
    assert found["harness/speedup/2 CPU cores"][2] == pytest.approx(1.6)
    assert found["harness/speedup/2 CPU cores, upper"][2] == pytest.approx(1.7)
    assert "only 3 pairs" in str(found["harness/speedup/2 CPU cores, warnings"][2])
    first, second = (device.parsed.short for device in some)
    assert found[f"harness/placement/forward ops of {second}"] == ("scalars", 7, 1.0)
    assert float(found[f"harness/placement/graph, forward ops of {first}"][2]) >= 1
    plugin, _, table = found["harness/placement/ops by device"]
    assert plugin == "text"
    assert f"    │ {second}" in str(table)
    assert found["harness/verification/passed"][2] == float(verified.passed)
    assert str(found["harness/verification/findings"][2]).startswith(str(verified.verdict))
    assert float(found[f"harness/memory peak in bytes/{first}"][2]) > 0
    assert found["harness/profile/split, ms of a call"][2] == pytest.approx(profile.wall_ns / 2e6)


def test_what_cannot_be_written_or_profiled_is_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    trace = harness.Trace((), ())
    for results, folder, words in (
        (
            (3,),
            tmp_path,
            "a result is of type int, which is not written; accepted: SpeedupRecord, Profile, Trace, Verification",
        ),
        ((), tmp_path, "no result to write"),
        ((trace,), file / "logs", "cannot be written: Not a directory"),
    ):
        with pytest.raises(harness.UsageError, match=words):
            harness.write_summaries(folder, *results)
    with pytest.raises(harness.UsageError, match="calls=0; accepted: a whole number of 1 or more"):
        harness.profile(lambda: None, calls=0)
    with pytest.raises(harness.UsageError, match="is not callable"):
        harness.profile(None)  # type: ignore[arg-type]
