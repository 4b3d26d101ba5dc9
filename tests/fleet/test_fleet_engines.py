"""The engines: what each machine comes to, with stand-ins for ssh and for Slurm's commands."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
import simulated_fleet as simulated

from harness.errors import UsageError
from harness.fleet import asked
from harness.fleet.asked import FleetRun
from harness.fleet.engines.engine import Asked, Done, MachineRun
from harness.fleet.engines.hosts import Hosts
from harness.fleet.engines.slurm import SlurmEngine
from harness.fleet.fleet import judge_store
from harness.fleet.policy import Policy
from harness.fleet.run import carry_out, resume, start
from harness.fleet.store import Store
from harness.fleet.verdicts import State
from harness.records import Host
from harness.report.storage import json_text

NOW = datetime(2026, 11, 2, tzinfo=timezone.utc)
#: Does on this machine what ssh would do on the host; some hosts have a fault of their own.
SSH = """#!/bin/sh
for last; do host=$command; command=$last; done
case "$host" in
  dead) echo "ssh: connect to host dead port 22: No route to host" >&2; exit 255 ;;
  hung) sleep 600 ;;
  noisy) echo hello; exit 0 ;;
  bare) echo "ERROR: No matching distribution found for tf-placement-harness" >&2; exit 1 ;;
  flood) yes ;;
esac
exec sh -c "$command"
"""
#: The harness on a host: it answers with the record of a sound machine, under a name of its own.
PROGRAM = """#!/bin/sh
echo "$HARNESS_NODE $HARNESS_RACK $*" >> {folder}/called
cat {folder}/record.json
"""


def script(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    record = replace(simulated.sound(1, random.Random(1)), host=Host("somebody-else", rack="r1"))
    (tmp_path / "record.json").write_text(json_text(record), encoding="utf-8")
    ssh = script(tmp_path / "ssh", SSH)
    program = script(tmp_path / "program", PROGRAM.format(folder=tmp_path))
    listed = "# ours\none rack=r1\nuser@two # fast\n\ndead\nnoisy\nbare\nflood\n"
    (tmp_path / "hosts").write_text(listed, encoding="utf-8")
    monkeypatch.setattr("harness.fleet.engines.hosts.MOST_BYTES", 100_000)
    return Hosts(tmp_path / "hosts", str(ssh), str(program))


def test_each_host_comes_to_a_result_and_those_without_a_record_say_why(tmp_path: Path, hosts: Hosts) -> None:
    store = Store(tmp_path / "store")
    files, run = start(hosts, ("--level", "quick"), store, NOW)
    folder = files.folder
    outcomes = {each.machine: each.why for each in carry_out(hosts, MachineRun(run.arguments, folder, 60.0, 2), run)}
    assert outcomes["one"] == outcomes["two"] == ""
    assert outcomes["dead"] == "ssh: connect to host dead port 22: No route to host"
    assert "sent no record" in outcomes["noisy"]
    assert outcomes["bare"].endswith("No matching distribution found for tf-placement-harness"), "it cannot install"
    assert outcomes["flood"] == "sent more than a record can have"
    found = judge_store(store, Policy(), NOW)
    states = {each.name: each.state for each in found.machines}
    assert states["one"] is states["two"] is State.PROVEN, "by the name that the engine knows, whatever the record says"
    assert [states[name] for name in ("dead", "noisy", "bare", "flood")] == [State.MISSING] * 4
    assert (found.counts.asked, found.exit_code) == (6, 3)
    called = (tmp_path / "called").read_text(encoding="utf-8").splitlines()
    assert any(line.startswith("one r1 validate --json --report ") and "--level quick" in line for line in called)
    assert asked.load(folder / "fleet.json").complete


def test_a_host_that_hangs_is_ended_at_its_limit(tmp_path: Path, hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.fleet.engines.hosts._GRACE_S", 0.0)
    (tmp_path / "hosts").write_text("hung\n", encoding="utf-8")
    hosts.machines()
    assert list(hosts.run(["hung"], MachineRun((), tmp_path, 0.2))) == [Done("hung", why="no result within 0.2 s")]


def test_an_interrupted_run_keeps_its_results_and_is_resumed_with_the_rest(tmp_path: Path, hosts: Hosts) -> None:
    (tmp_path / "hosts").write_text("one\nhung\ntwo\n", encoding="utf-8")
    store = Store(tmp_path / "store")
    files, run = start(hosts, (), store, NOW)
    folder = files.folder
    going = carry_out(hosts, MachineRun((), folder, 600.0, 1), run)
    assert next(going).machine == "one"
    before = threading.active_count()
    began = time.monotonic()
    going.close()
    assert time.monotonic() - began < 60, "what hangs is ended, and not waited for"
    assert threading.active_count() < before
    assert not asked.load(folder / "fleet.json").complete
    (tmp_path / "ssh").write_text(SSH.replace("hung)", "other)"), encoding="utf-8")
    again = Hosts(hosts.path, str(tmp_path / "ssh"), hosts.program)
    same, left = resume(again, store)
    assert same == files
    done = [each.machine for each in carry_out(again, MachineRun(left.arguments, folder, 60.0), left)]
    assert sorted(done) == ["hung", "two"]
    assert judge_store(store, Policy(), NOW).counts.proven == 3
    with pytest.raises(UsageError, match="no run that was interrupted"):
        resume(again, store)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no host"),
        ("# nothing\n\n", "names no host"),
        ("a\nb\na\n", "line 3: a is named twice"),
        ("a b c\n", r"accepted: \[USER@\]HOST \[rack=NAME\]"),
        ("-oProxyCommand=reboot\n", "accepted:"),
        ("a;b\n", "accepted:"),
        ("a rack=$(b)\n", "accepted:"),
    ],
)
def test_a_file_of_hosts_that_cannot_be_used_is_one_clear_line(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "hosts").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=why):
        start(Hosts(tmp_path / "hosts"), (), Store(tmp_path / "store"), NOW)
    assert not (tmp_path / "store").exists(), "nothing half done"


def test_machines_that_an_engine_leaves_out_are_in_the_denominator(tmp_path: Path) -> None:
    class Engine:
        name = "made up"
        needs_folder = False

        def machines(self) -> list[Asked]:
            return [Asked("a"), Asked("b", "not idle: allocated")]

        def addresses(self, machines: Sequence[str]) -> dict[str, str]:
            raise NotImplementedError

        def run(self, machines: object, work: MachineRun):  # type: ignore[no-untyped-def]
            assert machines == ["a"]
            yield Done("a", json_text(simulated.sound(3, random.Random(3))))

    store = Store(tmp_path)
    files, run = start(Engine(), (), store, NOW)
    folder = files.folder
    list(carry_out(Engine(), MachineRun((), folder, 1.0), run))
    found = judge_store(store, Policy(), NOW)
    assert [(each.name, str(each.state), each.why) for each in found.machines] == [
        ("a", "proven", ""),
        ("b", "no result", "not idle: allocated"),
    ]
    files, _ = start(Engine(), (), store, NOW)
    other = files.folder
    assert other != folder, "two runs in one second have folders of their own"
    assert isinstance(asked.load(other / "fleet.json"), FleetRun)


#: Slurm's commands as shell scripts: three nodes, of which n3 is drained. Jobs are files; n2's job fails.
SLURM = {
    "sinfo": "printf 'n1|idle|none\\nn2|idle|none\\nn3|drained|fan\\n'",
    "sbatch": """
for each; do case "$each" in
  --nodelist=*) node=${each#*=} ;; --wrap=*) job=${each#*=} ;; --output=*) folder=${each#*=} ;;
esac; done
echo "$*" >> "$HERE/submitted"
[ "$node" = n2 ] || { cp "$HERE/record.json" "${folder%/*}/run.json"; }
echo "1${node#n};cluster"
""",
    "squeue": "[ -e $HERE/asked ] || { touch $HERE/asked; echo '11|RUNNING'; echo '12|PENDING'; }",
    "scontrol": "echo 'JobId=12 JobState=NODE_FAIL Reason=None'",
    "scancel": 'echo "$*" >> "$HERE/cancelled"',
}


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in SLURM.items():
        script(tmp_path / name, f"#!/bin/sh\nHERE={tmp_path}\n{text}\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("harness.fleet.engines.slurm._POLL_S", 0.01)
    record = replace(simulated.sound(1, random.Random(1)), host=Host("n1"))
    (tmp_path / "record.json").write_text(json_text(record), encoding="utf-8")
    return tmp_path


def test_slurm_gets_a_job_for_each_idle_node_and_a_node_that_dies_is_a_result(slurm: Path) -> None:
    store, engine = Store(slurm / "store"), SlurmEngine(["--partition=gpu"])
    files, run = start(engine, ("--level", "standard"), store, NOW)
    folder = files.folder
    outcomes = {each.machine: each.why for each in carry_out(engine, MachineRun(run.arguments, folder, 90.0), run)}
    assert outcomes["n1"] == ""
    assert outcomes["n2"] == "no record; its job 12 ended: NODE_FAIL; see slurm.log"
    assert {each.machine: each.why for each in run.outcomes} == {"n3": "not idle: drained (fan)"}
    submitted = (slurm / "submitted").read_text(encoding="utf-8")
    for option in ("--exclusive", "--nodelist=n1", "--nice=10000", "--time=2", "--partition=gpu", "--level standard"):
        assert option in submitted
    assert judge_store(store, Policy(), NOW).counts.asked == 3


def test_a_job_that_slurm_does_not_end_is_a_result_and_so_is_what_a_job_says_last(
    slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.fleet.engines.slurm._GRACE_S", 0.0)
    script(slurm / "squeue", "#!/bin/sh\necho '11|COMPLETING'\n")
    engine = SlurmEngine(wait_s=0.0)
    (hung,) = engine.run(["n1"], MachineRun((), slurm / "a", 0.0))
    assert hung.why == "no result within 0 s; its job 11 is COMPLETING still"
    assert (slurm / "cancelled").read_text(encoding="utf-8") == "11\n"
    script(slurm / "squeue", "#!/bin/sh\n")
    (slurm / "b" / "n2").mkdir(parents=True)
    for said, why in (
        ("harness: error: no space\nbye\n", "no space"),
        ("slurmstepd: error: *** JOB 12 CANCELLED ***\n", "*** JOB 12 CANCELLED ***"),
        ("hello\n", "see slurm.log"),
    ):
        (slurm / "b" / "n2" / "slurm.log").write_text("x" * 100_000 + "\n" + said, encoding="utf-8")
        (lost,) = engine.run(["n2"], MachineRun((), slurm / "b", 60.0))
        assert lost.why == f"no record; its job 12 ended: NODE_FAIL; {why}"
    script(slurm / "scontrol", "#!/bin/sh\necho 'JobState=FAILED ExitCode=124:0'\n")
    (late,) = engine.run(["n2"], MachineRun((), slurm / "b", 60.0))
    assert late.why == "no result within 60 s"


def test_jobs_that_do_not_start_are_cancelled_and_so_is_everything_at_the_end(slurm: Path) -> None:
    script(slurm / "squeue", "#!/bin/sh\necho '11|PENDING'; echo '12|PENDING'\n")
    engine = SlurmEngine(nodes=["n1", "n2"], wait_s=0.0)
    assert [each.why for each in engine.run(["n1"], MachineRun((), slurm / "a", 60.0))] == [
        "its job did not start within 0 s: not idle any more"
    ]
    engine = SlurmEngine(wait_s=600.0)
    script(slurm / "sbatch", '#!/bin/sh\ncase "$*" in *n2*) echo refused >&2; exit 1;; esac; echo 11\n')
    going = engine.run(["n2", "n1"], MachineRun((), slurm / "b", 60.0))
    assert next(going) == Done("n2", why="refused")
    going.close()
    for unknown, why in ((["n9"], "unknown to Slurm"), (["n1", "n1"], "named twice")):
        with pytest.raises(UsageError, match=why):
            SlurmEngine(nodes=unknown).machines()
    assert (slurm / "cancelled").read_text(encoding="utf-8").split() == ["11"]


def test_a_record_is_kept_as_it_was_sent_but_for_its_name(tmp_path: Path, hosts: Hosts) -> None:
    (tmp_path / "hosts").write_text("one\n", encoding="utf-8")
    files, run = start(hosts, (), Store(tmp_path / "store"), NOW)
    folder = files.folder
    list(carry_out(hosts, MachineRun((), folder, 60.0), run))
    kept = json.loads((folder / "one" / "run.json").read_text(encoding="utf-8"))
    sent = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert kept["host"] == {**sent["host"], "name": "one"}
    assert {**kept, "host": None} == {**sent, "host": None}
