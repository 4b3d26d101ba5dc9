"""Judges where the ops of a trace ran."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from harness.devices.device import Device, Devices
from harness.devices.name import DeviceName
from harness.evidence.arithmetic import (
    JOINS,
    MOVEMENT,
    PYTHON,
    SPLITS,
    TABLES,
    computes,
    floats,
    gradients_elsewhere,
    moved,
    proven,
)
from harness.evidence.op import Op
from harness.evidence.op_types import has_kernel
from harness.evidence.roles import LOOKUPS
from harness.evidence.trace import Trace
from harness.judgement.accounting import Account, checks_of
from harness.judgement.belongings import SLOT_AWAY, Belongings
from harness.judgement.diagnosis.wording import listed
from harness.judgement.members import crowded
from harness.judgement.out_of_place import judge_branches, judge_shards
from harness.judgement.outside import judge_outside, judge_python
from harness.judgement.provenance import SLICES, Provenance
from harness.judgement.strays import Misplaced, first_of, lines, named, stray
from harness.judgement.undivided import judge_undivided
from harness.judgement.updates_away import Updates
from harness.judgement.waiting import judge_waiting
from harness.judgement.wiring import Wiring
from harness.records import Finding

#: So many types of ops are named of what a device did that counts as unused.
_SHOWN = 3

_MERGED = "none: TensorFlow's graph optimizer merged it into an op on another device"
_TABLE = (
    "TensorFlow runs a lookup in a hash table on the table's device, the host, whatever the scope; look up before the "
    "scope, or keep the values in a variable and use tf.gather"
)


def judge_placement(
    trace: Trace,
    devices: Devices,
    mode: str,
    *,
    rows: int | None = None,
    on_host: bool = True,
    program: str | None = None,
    slots_named: bool = False,
) -> list[Finding]:
    """Findings of the kinds ``op-placement``, ``gradient-placement`` and ``unused-device``.

    ``rows`` is the size of the batch, where there is one: fewer rows than devices leave devices out. ``on_host`` says
    that what several devices made is joined on the host, as programs do that share out a batch; a strategy splits and
    joins by rules of its own. ``program`` is the line where the program begins. ``slots_named``: a finding names the
    slots of optimizers that are away from their variables, so that none of this function does.
    """
    wiring = Wiring(trace)
    account = Account(Provenance(wiring), devices, trace)
    misplaced = [*_elsewhere(wiring, devices), *(judge_shards(wiring, devices, trace) if on_host else ())]
    misplaced = [each for each in misplaced if each.op.device != each.expected]
    away: list[Misplaced] = []
    if on_host and len(devices) > 1:
        belongings = Belongings(account, devices)
        known = {each.op.name for each in misplaced}
        branches = [*judge_branches(account, devices), *judge_undivided(account, devices), *crowded(account)]
        branches = [each for each in branches if each.op.name not in known]
        misplaced += [each for each in branches if each.op.device != each.expected]
        known |= {each.op.name for each in branches}
        updates = Updates(belongings)
        own = (*updates.misplaced(), *updates.of_all(), *belongings.misplaced_terms(), *belongings.misplaced_copies())
        first = {each.op.name: each for each in reversed(own) if each.op.name not in known}
        misplaced += reversed(first.values())
        away = [each for each in belongings.misplaced_variables() if not (slots_named and each.cause == SLOT_AWAY)]
        away += belongings.misplaced_sums()
    return [
        *_merge("op-placement", misplaced, trace, mode),
        *_merge("gradient-placement", _gradients_elsewhere(trace), trace, mode),
        # Variables of a device that does nothing are away from their user because of that.
        *_unused(account, devices, mode, rows, program, chosen=not on_host),
        *_merge("variable-placement", away, trace, mode),
        *judge_outside(account, devices, mode),
        *judge_python(account, devices, mode),
        *(judge_waiting(account, mode) if on_host else ()),
    ]


def judge_updates(trace: Trace, devices: Devices, mode: str) -> list[Finding]:
    """Findings of the kind ``op-placement`` on updates of variables alone, for programs that name a pattern."""
    account = Account(Provenance(Wiring(trace)), devices, trace)
    return _merge("op-placement", Updates(Belongings(account, devices)).misplaced(), trace, mode)


def _merge(kind: str, misplaced: Iterable[Misplaced], trace: Trace, mode: str) -> list[Finding]:
    """One finding for ops with the same fault, naming the first of them."""
    groups: dict[str, list[Misplaced]] = defaultdict(list)
    for each in misplaced:
        groups[each.cause].append(each)
    findings = []
    for cause, group in groups.items():
        ops = [each.op for each in group]
        devices = [op.device for op in ops if op.device is not None]
        found = named(devices) if devices else _MERGED
        share = max((each.share for each in group if each.share is not None), default=None)
        findings.append(
            stray(
                kind,
                cause,
                first_of(ops),
                mode,
                devices=[op.device for op in ops],
                expected=named(each.expected for each in group),
                wanted=(each.expected for each in group),
                found=found if share is None else f"{share:.0%} of a shard's work on {found}",
                place=lines(trace, ops),
            )
        )
    return findings


def _elsewhere(wiring: Wiring, devices: Devices) -> Iterator[Misplaced]:
    """Ops that ran elsewhere than their scope asked (FAULTS P05, P06, P11)."""
    there = {device.parsed for device in devices}
    busy = {op.device for op in wiring.ops if computes(op) and floats(wiring.dtypes(op))}
    for op in wiring.ops:
        if op.requested is None or not moved(op):
            continue
        if computes(op) or (op.role == "forward" and op.type in JOINS | SPLITS | PYTHON | TABLES):
            if wiring.rearranged(op):
                continue
            message = "the op did not run on the device that its scope requests; soft placement moves ops silently"
            if op.unit is not None:
                message = "XLA compiled the function for one device and ignored the device scopes inside"
            elif op.type in PYTHON:
                message = "a Python function runs on the host, whatever its device scope; write it with TensorFlow ops"
                if not floats(op.dtypes) and not wiring.is_read(op):
                    continue  # one that prints or counts
            elif op.type in LOOKUPS:
                continue  # judged by their share of a shard's work
            elif op.type in TABLES:
                kinds = {op.device and op.device.kind, op.requested.kind}
                if kinds != {"CPU", "GPU"} or "string" in wiring.dtypes(op) or not floats(op.dtypes):
                    continue  # texts and indices are on the host
                message = _TABLE
            elif asked := [device for device in there if device.matches(op.requested)]:
                dtypes = wiring.dtypes(op)
                if "string" in dtypes or (busy.intersection(asked) and not floats(dtypes)):
                    continue  # texts are on the host wherever they are asked for; integers are indices beside numbers
                if not has_kernel(op.type, kind := asked[0].kind or "", dtypes):
                    message = (
                        f"TensorFlow has no {kind} kernel for the op and its types, so soft placement moved it; run "
                        "the op in a CPU scope"
                    )
            yield Misplaced(op, op.requested, message)


def _gradients_elsewhere(trace: Trace) -> Iterator[Misplaced]:
    message = "backward ops are not on the devices of their forward ops; wrap the step in harness.colocate_gradients()"
    for op, forward in gradients_elsewhere(trace):
        if forward.device is not None:
            yield Misplaced(op, forward.device, message)


def gradient_ops(trace: Trace) -> int:
    """Backward ops of which it is proven that they, and the forward ops that they belong to, ran where."""
    by_name = {op.name: op for op in trace.ops}
    return sum(
        1
        for op in proven(trace)
        if op.role == "gradient"
        and (forward := by_name.get(op.forward or "")) is not None
        and forward.device is not None
    )


def _unused(
    account: Account, devices: Devices, mode: str, rows: int | None, program: str | None, *, chosen: bool
) -> list[Finding]:
    """``chosen``: the caller says what each device is for, such as a stage, and be it a small one."""
    trace, wiring = account.trace, account.wiring
    used = set(account.used)
    if chosen:
        checks = checks_of(wiring, unread=False)
        used |= {account.places[op.name] for op in wiring.ops if op.name in account.places and op.name not in checks}
    if not account.work or len(used & {device.parsed for device in devices}) < len(devices):
        asked = _asked_for_host_data(wiring, bool(used))
        used |= {device.parsed for device in devices if any(device.parsed.matches(place) for place in asked)}
    if not used:
        return []
    expected = len(devices) if rows is None or account.shares_out_columns else min(len(devices), max(rows, 1))
    idle = [device for device in devices if device.parsed not in used]
    missing = expected - (len(devices) - len(idle))
    if missing <= 0:
        return []
    ran = ", ".join(sorted({device.short for device in used}))
    idle_names = listed([device.parsed.short for device in idle])
    places = {device.parsed for device in idle}
    little = sorted({op.type for op in proven(trace) if op.role == "forward" and op.device in places})
    message = f"no op of the program ran on {idle_names}"
    if little:
        message = f"{idle_names} did next to nothing of the devices' common work, only {listed(little[:_SHOWN])}"
    return [
        stray(
            "unused-device",
            message,
            idle_names,
            mode,
            devices=[device.parsed for device in idle],
            wanted=[device.parsed for device in idle],
            expected=f"ops on {expected} of {len(devices):,} devices",
            found=f"ops on {ran} only",
            place=_lines_of_parts(trace, wiring) or program,
        )
    ]


def _lines_of_parts(trace: Trace, wiring: Wiring) -> str | None:
    """Where the parts of a batch are worked on: those lines that do it outside of all scopes, if there are some."""
    ops = (op for cut in Provenance(wiring).cuts() for op in cut.ops)
    work = [op for op in ops if op.role == "forward" and op.type not in SLICES and computes(op)]
    return lines(trace, [op for op in work if op.requested is None] or work)


def _asked_for_host_data(wiring: Wiring, others: bool) -> set[DeviceName]:
    """Where a program works on integers or texts, which live on the host wherever their op is, if that is its work.

    It is, where nothing else is computed at all, or on the parts that a batch of them was cut into. Else they are
    indices.
    """
    asked: set[DeviceName] = set()
    for ops in (cut.ops for cut in Provenance(wiring).cuts()) if others else (wiring.ops,):
        work = [op for op in ops if op.role == "forward" and op.type not in MOVEMENT | SLICES]
        if not any(computes(op) for op in work):
            places = [op.device if op.requested is None or op.requested.index is None else op.requested for op in work]
            asked |= {place for place in places if place is not None}
    return asked


#: What may come of it, and what to do.
_MIXED_UP = "TensorFlow can mix up their arguments; give each thread a GPU of its own, or call a tf.function"


def judge_sharing(trace: Trace, mode: str) -> Iterator[Finding]:
    """Threads that ran eager ops on one GPU at the same time, which TensorFlow mixes up (tensorflow 123980)."""
    by_device: dict[DeviceName, list[Op]] = defaultdict(list)
    for op in trace.ops:
        if trace.shared.get(op.name) and op.device is not None:
            by_device[op.device].append(op)
    for device, ops in by_device.items():
        yield stray(
            "shared-gpu",
            f"threads ran eager ops on {device.short} at the same time; {_MIXED_UP}",
            first_of(ops),
            mode,
            devices=[device],
            expected="eager ops of one thread at a time",
            found="eager ops of several threads at a time",
            place=lines(trace, ops),
        )


def hint_of_sharing(trace: Trace) -> str:
    """What to think of first where a program fails that ran well before, and whose threads share a GPU."""
    return f"the program's threads ran eager ops on one GPU, where {_MIXED_UP}" if trace.shared else ""


def removed(device: Device, trace: Trace) -> bool:
    """Whether the program asked this device for work that TensorFlow left out of the graph, as nothing reads it."""
    return any(_left_out(device, trace.ops))


def _left_out(device: Device, ops: Iterable[Op]) -> Iterator[Op]:
    """The work that the program asked this device for, and that did not run."""
    for op in ops:
        if op.role != "forward" or op.device is not None or not computes(op):
            continue
        if op.requested is not None and op.requested.index is not None and device.parsed.matches(op.requested):
            yield op


def judge_variables(
    made: Sequence[Any], trace: Trace, devices: Devices, mode: str, program: str | None
) -> list[Finding]:
    """Variables that came into being during the first parallel call: they are where that call happened to be."""
    trained = [variable for variable in made if getattr(variable, "trainable", False)]
    if len(devices) < 2 or not trained:
        return []
    places = [DeviceName.parse(variable.device) for variable in trained if variable.device]
    more = f" and {len(trained) - 1} more" if len(trained) > 1 else ""
    return [
        stray(
            "variable-placement",
            "a variable is created in the first call of the program, on the device of this call; create the variable, "
            "or build the model, before the first call",
            f"variable {trained[0].name}{more}",
            mode,
            devices=places,
            expected="variables created before the call, on devices chosen for them",
            found=f"created by the first call, on {named(places) if places else 'the default device'}",
            place=lines(trace, [op for op in trace.ops if op.type == "VarHandleOp"]) or program,
        )
    ]
