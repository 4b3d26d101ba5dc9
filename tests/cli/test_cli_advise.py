"""``harness advise``: right ways are timed, wrong ones left out, and bad input is one line."""

from __future__ import annotations

import html
import json
import signal
from pathlib import Path

import pytest
from command_line import run, start

from harness.devices.shipped import shipped_folder

pytestmark = pytest.mark.usefixtures("forked_workers")

PROGRAM = """
import keras
import numpy as np
import tensorflow as tf

X = np.random.default_rng(0).standard_normal((8, 6)).astype("float32")

def model():
    layers = [keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dropout(0.5)]
    made = keras.Sequential([*layers, keras.layers.Dense(3)])
    made.compile(optimizer=keras.optimizers.SGD(0.1, momentum=0.9), loss="mse")
    return made, X, X[:, :3]

def rows():
    weight = tf.Variable(tf.ones([6, 6]))
    return (lambda x: tf.tanh(x @ weight)), (X,), (weight,)

def whole_batch():
    return (lambda x: x - tf.reduce_mean(x, axis=0)), (X,)

def scalar():
    return (lambda x: tf.reduce_sum(x)), (X,)

def random():
    return (lambda x: x + tf.random.normal(tf.shape(x))), (X,)

def raises():
    raise ValueError("no data today")

def text(): return "model"
def no_tuple(): return (lambda x: x), X
def other_rows(): return (lambda x, y: x), (X, X[:3])
def no_variable(): return (lambda x: x), (X,), (3,)

def own_step():
    class Model(keras.Sequential):
        def train_step(self, data):
            return {}
    made = Model([keras.layers.Dense(2)])
    made.compile(optimizer="sgd", loss="mse")
    return made, X, X[:, :2]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


def test_each_way_of_a_keras_model_is_verified_and_timed(folder: Path) -> None:
    done = run(folder, "advise", "train.py:model", "--devices", "cpu:2", "--budget", "0.1", "--json")
    assert done.returncode == 0, done.stderr
    advice = json.loads(done.stdout)
    assert advice == json.loads((folder / "harness-report" / "advice.json").read_text())
    assert advice["recommendation"] in html.unescape((folder / "harness-report" / "advice.html").read_text())
    judged = {each["name"]: each["judgement"] for each in advice["ways"]}
    main = {
        "one device": "baseline",
        "make_parallel": "proved",
        "MirroredStrategy": "verified",
        "pipeline with 4 micro-batches": "proved",
    }
    assert {name: judged[name] for name in main} == main
    # Which variants are worth a try depends on the times.
    assert {name.partition(" with ")[0] for name in judged} == {name.partition(" with ")[0] for name in main}
    tried = [each for each in advice["ways"] if not each["reason"].startswith("not tried")]
    assert all(each["judgement"] in ("baseline", "proved", "verified") for each in tried)
    assert all(each["time_ns"] > 0 and each["code"] for each in tried)
    assert all(each["speedup"]["lower"] <= each["speedup"]["upper"] for each in tried[1:])
    assert "with dropout turned off" in advice["ways"][1]["reason"]
    assert (advice["complete"], advice["rows"], advice["step"]) == (True, 8, "a training step")
    assert "one device: building and running" in done.stderr


def test_a_way_that_computes_something_else_is_left_out(folder: Path) -> None:
    done = run(folder, "advise", "train.py:whole_batch", "--devices", "cpu:2", "--budget", "0.1")
    assert done.returncode == 0, done.stderr
    assert "make_parallel: WRONG, left out: The function is not row-wise" in done.stdout
    assert "Stay on one device (CPU:0): no other way computes the same, or can be compared." in done.stdout
    assert "the times say nothing about GPUs" in done.stdout


@pytest.mark.parametrize(("function", "why"), [("scalar", "a scalar per shard"), ("random", "RandomStandardNormal")])
def test_what_cannot_be_compared_says_why(folder: Path, function: str, why: str) -> None:
    done = run(folder, "advise", f"train.py:{function}", "--devices", "cpu:2", "--budget", "0.1")
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("make_parallel: not comparable: "))
    assert why in line


def test_a_batch_that_cannot_be_split_says_so_of_each_way(folder: Path) -> None:
    done = run(folder, "advise", "train.py:model", "--devices", "cpu:2", "--budget", "0.1", "--batch", "1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for way in ("make_parallel", "MirroredStrategy", "pipeline"):
        why = "not comparable: a batch of 1 row cannot be split into 2 parts"
        assert any(line.startswith(way) and line.endswith(why) for line in lines), done.stdout
    assert "Stay on one device (CPU:0)" in done.stdout


def test_times_on_named_cards_are_predicted_of_ways_that_are_verified(folder: Path) -> None:
    # The devices of the project are not those of the cards.
    (folder / "pyproject.toml").write_text('[tool.harness]\ndevices = "cpu:4"\n')
    options = ("--for", "h100-sxm:2", "--memory-per-device", "1 MiB", "--json")
    done = run(folder, "advise", "train.py:rows", *options)
    assert done.returncode == 0, done.stderr
    advice = json.loads(done.stdout)
    ways = {each["name"]: each for each in advice["ways"]}
    assert {name: each["judgement"] for name, each in ways.items()} == {
        "one device": "baseline",
        "CPU": "proved",
        "make_parallel": "proved",
    }
    assert "not predicted: the host of those cards is not known" in ways["CPU"]["reason"]
    for way in (ways["one device"], ways["make_parallel"]):
        low, high = way["time_interval_ns"]
        assert 0 < low < way["time_ns"] < high
        assert way["fits"] is True
    # So little work is slower on two cards: the copies take longer than the products.
    assert 0 < ways["make_parallel"]["speedup"]["lower"] < ways["make_parallel"]["speedup"]["upper"] < 1
    assert 'devices = harness.configure("gpu:2")' in ways["make_parallel"]["code"]
    assert (advice["spec"], advice["cards"], advice["chosen"]) == ("h100-sxm:2", "2 H100 SXM", "one device")
    assert "All times are predicted from the profile of the card, and none was ever measured" in advice["limits"]


def test_an_interrupted_run_prints_what_it_knows(folder: Path) -> None:
    with start(folder, "advise", "train.py:rows", "--devices", "cpu:2", "--budget", "900") as process:
        assert process.stdout is not None
        seen = ""
        while "timing against one device" not in seen:
            line = process.stdout.readline()
            assert line, seen
            seen += line
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait() == 130, rest
    assert "INTERRUPTED after" in rest
    assert "Stay on one device (CPU:0): no other way was timed." in rest
    assert json.loads((folder / "harness-report" / "advice.json").read_text())["complete"] is False


def test_bad_input_is_one_line(folder: Path) -> None:
    for arguments, said in {
        ("train.py:raises",): "train.py:raises raised ValueError: no data today",
        ("train.py:text",): "train.py:text: returned an object of type str",
        ("train.py:no_tuple",): "inputs is of type ndarray, not a tuple",
        ("train.py:other_rows",): "but inputs[0] has 8 rows, inputs[1] has 3 rows",
        ("train.py:no_variable",): "variables has an object of type int, not a tf.Variable",
        ("train.py:own_step",): "the model has a train_step of its own",
        ("absent.py:build",): "there is no file absent.py",
        ("train.py:text", "--batch", "0"): "--batch 0; accepted: 1 or more",
        ("train.py:text", "--devices", "cpux"): "cpux",
        ("train.py:text", "--devices", "cpu:2", "--for", "t4:2"): "--devices cpu:2 cannot be combined with --for t4:2",
        ("train.py:text", "--devices", "auto", "--for", "t4"): "--for t4: how many cards? accepted: CARD:N, such as",
        ("train.py:text", "--memory-per-device", "16XB"): "size '16XB' is not valid",
    }.items():
        done = run(folder, "advise", *arguments, *(() if "--devices" in arguments else ("--devices", "cpu:1")))
        assert done.returncode == 2, done.stdout
        assert said in done.stderr.splitlines()[0], done.stderr


def test_the_command_line_names_other_profiles_than_the_project(folder: Path) -> None:
    card = (shipped_folder("hardware") / "h100-sxm.toml").read_text()
    for name in ("of-the-project", "chosen"):
        (folder / name).mkdir()
        (folder / name / f"card-{name}.toml").write_text(card)
    (folder / "pyproject.toml").write_text('[tool.harness]\nprofiles = "of-the-project"\n')
    for options, name in (((), "of-the-project"), (("--profiles", "chosen"), "chosen")):
        done = run(folder, "advise", "train.py:rows", "--for", "card-chosen", *options)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        known = f"card-{name}, " in done.stderr or f"write card-{name}:1 for one" in done.stderr
        assert known, done.stderr
        assert ("how many cards?" in done.stderr) == (name == "chosen")
