"""The rules on how a training ran: its rows, updates, replicas, the devices of its variables, and its collectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from harness.devices.device import Devices
from harness.devices.name import DeviceName
from harness.distribute.equivalence import CollectiveCount
from harness.distribute.history import History
from harness.distribute.training import Data, row_digests
from harness.plural import plural
from harness.records import Finding


def judge_rows(histories: Sequence[History], data: Data) -> list[Finding]:
    """A finding of the kind ``input`` if the rows of a step, over all processes, are not those of its batch."""
    for step in range(min(len(history.rows) for history in histories)):
        parts = [part for history in histories for part in history.rows[step]]
        given = Counter(digest for part in parts for digest in part)
        want = Counter(row_digests(*data.batch(step)))
        if given == want:
            continue
        lost, extra = (want - given).total(), (given - want).total()
        texts = [f"{plural(lost, 'row')} of the batch went to no replica"] if lost else []
        if extra:
            texts.append(f"the replicas got {plural(extra, 'row')} twice or from outside of the batch")
        message = ", and ".join(texts)
        if len(parts) > 1 and parts[0] and all(part == parts[0] for part in parts):
            message = (
                f"all {len(parts)} replicas were given the same {plural(len(parts[0]), 'row')}: each replica reads "
                "all the data instead of its part; select the part by InputContext.input_pipeline_id"
            )
        elif len(parts) > 1 and all(len(part) == want.total() for part in parts):
            message = (
                f"each of {len(parts)} replicas was given a whole batch of rows, so the batch grows with the number of "
                "devices; divide the batch size by InputContext.num_replicas_in_sync"
            )
        expected = f"the {want.total()} rows of the batch, each once, over {histories[0].replicas} replicas"
        sizes = ", ".join(str(len(part)) for part in parts)
        return [Finding("input", f"step {step}", None, expected, f"{sizes} rows", message, mode=histories[0].loop)]
    return []


def judge_updates(history: History, single: History, worker: str = "") -> Iterator[Finding]:
    """Findings where the optimizer's counter or learning rate is not that of the single-device run."""
    place = f"{worker}, " if worker else ""
    for step, (got, want) in enumerate(zip(history.iterations, single.iterations, strict=False)):
        if got != want:
            why = "it runs once per shard or replica instead of once per step" if got > want else "an update is missing"
            message = f"the optimizer counted {plural(got, 'update')} in {plural(step + 1, 'step')}: {why}"
            yield Finding(
                "update-count",
                f"{place}step {step}",
                None,
                plural(want, "update"),
                plural(got, "update"),
                message,
                mode=history.loop,
            )
            break
    for step, (rate, wanted) in enumerate(zip(history.rates, single.rates, strict=False)):
        if rate != wanted:
            message = f"the learning rate of {worker or 'the optimizer'} is not that of the single-device run"
            yield Finding(
                "value",
                f"{place}learning rate, step {step}",
                None,
                f"{wanted:.4g}",
                f"{rate:.4g}",
                message,
                mode=history.loop,
            )
            break


def judge_sync(history: History) -> Iterator[Finding]:
    """A finding of the kind ``sync`` for each device with differing copies: the first of them, and their number."""
    by_device: dict[str, list[tuple[int, str, float]]] = {}
    for copy in history.different_copies:
        by_device.setdefault(copy.device, []).append((copy.step, copy.variable, copy.difference))
    for device, copies in by_device.items():
        step, variable, difference = min(copies)
        more = "" if len(copies) == 1 else f" and {len(copies) - 1} more"
        yield Finding(
            "sync",
            f"{variable}{more}, step {step}",
            device,
            f"the same bits as on {_short(history.devices[0])}",
            f"{difference:.3g} away",
            "a replica's copy of the variable differs from the first replica's copy: the replica missed an update, or "
            "the program changed only one of the copies",
            mode=history.loop,
        )


def judge_workers(histories: Sequence[History]) -> Iterator[Finding]:
    """A finding of the kind ``sync`` for each process whose variables are not bit by bit those of the first."""
    first = histories[0]
    for number, history in enumerate(histories[1:], start=1):
        for quantity in ("weight", "slot"):
            pairs = {
                (step, name): (got, want)
                for name, array in history.values[quantity].items()
                if name in first.values[quantity]
                for step, (got, want) in enumerate(zip(array, first.values[quantity][name], strict=False))
                if got.tobytes() != want.tobytes()
            }
            if not pairs:
                continue
            step, name = min(pairs)
            got, want = pairs[step, name]
            yield Finding(
                "sync",
                f"{name}, step {step}",
                history.devices[0] if history.devices else None,
                "the bits of worker 0",
                f"{float(abs(got - want).max()):.3g} away",
                f"the values of workers 0 and {number} differ: worker {number} missed an update, or made a different "
                "one",
                mode=history.loop,
            )


def judge_variable_devices(history: History, expected: Sequence[str]) -> Iterator[Finding]:
    """A finding of the kind ``variable-placement`` for each set of wrong devices, with the first variable there."""
    want = [_short(device) for device in expected]
    wrong: dict[tuple[str, ...], list[str]] = {}
    for name, devices in history.variable_devices.items():
        if [_short(device) for device in devices] != want:
            wrong.setdefault(devices, []).append(name)
    for devices, names in wrong.items():
        more = "" if len(names) == 1 else f" and {len(names) - 1} more"
        yield Finding(
            "variable-placement",
            f"{names[0]}{more}",
            devices[0] if devices else None,
            ", ".join(map(_short, expected)),
            ", ".join(map(_short, devices)) or "no device",
            "a variable or slot is not where the strategy keeps its variables: it was created outside strategy.scope()",
            mode=history.loop,
        )


def judge_collectives(counts: Sequence[CollectiveCount], loop: str, devices: Devices, needed: bool) -> list[Finding]:
    """Findings of the kind ``sync``: a device takes no part in the others' collectives, or sends fewer bytes."""
    findings = []
    by_type: dict[str, dict[str, CollectiveCount]] = {}
    for count in counts:
        by_type.setdefault(count.type, {})[count.device] = count
    for type_, by_device in by_type.items():
        if not set(by_device) <= set(devices.names):
            continue
        want = max(by_device.values(), key=lambda count: count.count)
        for name in devices.names:
            got = by_device.get(name)
            if got is None or (got.count, got.size_bytes) != (want.count, want.size_bytes):
                found = "none" if got is None else _amount(got)
                expected = f"{_amount(want)}, as on {_short(want.device)}"
                message = "this device does not run the same collectives in a step as the other devices"
                findings.append(Finding("sync", type_, name, expected, found, message, mode=loop))
    if needed and len(devices) > 1 and not by_type:
        message = "replicas exchange nothing: each trains on its own"
        findings.append(
            Finding("sync", "a step", None, "an all-reduce of gradients", "no collective", message, mode=loop)
        )
    return findings


def judge_collectives_of_workers(counts: Sequence[CollectiveCount], workers: int) -> list[Finding]:
    """Findings of the kind ``sync``: workers that send other numbers of bytes to the same collectives."""
    findings = []
    for loop, type_ in sorted({(count.loop, count.type) for count in counts}):
        own = [count for count in counts if (count.loop, count.type) == (loop, type_)]
        if len({(count.count, count.size_bytes) for count in own}) > 1 or len(own) < workers:
            found = "; ".join(f"{_amount(count)} on {count.device}" for count in own)
            message = "workers run different collectives in a step"
            findings.append(
                Finding("sync", type_, own[0].device, f"the same in all {workers} workers", found, message, mode=loop)
            )
    return findings


def _short(device: str) -> str:
    return DeviceName.parse(device).short


def _amount(count: CollectiveCount) -> str:
    size = "size unknown" if count.size_bytes is None else f"{count.size_bytes:,} bytes in all"
    return f"{plural(count.count, 'collective')} ({size})"
