"""Leaves out of a record what identifies a machine: host names, serial numbers, UUIDs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness.records import RunRecord
from harness.runner.messages import plain
from harness.stored import validated

#: What stands in place of an identifier.
_LEFT_OUT = "left out"


def anonymous(record: RunRecord) -> RunRecord:
    """Return ``record`` without names of hosts, serial numbers and UUIDs, wherever they stand in it.

    PCI ids and slots stay: they are the same on all machines of a kind.
    """
    host = record.host
    gpus = record.fingerprint.gpus if record.fingerprint is not None else ()
    words = [
        *((host.name, host.serial, host.boot) if host is not None else ()),
        *(each for card in record.cards for each in (card.serial, card.uuid)),
        *(gpu.uuid for gpu in gpus),
        *_hosts_of(record.spec),
    ]
    bare = replace(
        record,
        host=None if host is None else replace(host, name=None, serial=None, boot=None),
        cards=tuple(replace(card, serial=None, uuid=None) for card in record.cards),
        fingerprint=record.fingerprint
        and replace(record.fingerprint, gpus=tuple(replace(gpu, uuid=None) for gpu in gpus)),
    )
    replaced: RunRecord = validated(substituted(plain(bare), {word: _LEFT_OUT for word in words if word}), RunRecord)
    return replaced


def substituted(content: Any, words: Mapping[str, str]) -> Any:
    """Replace whole words in every text of a JSON value, the longest first."""
    listed = sorted((word for word in words if word), key=lambda word: (-len(word), word))
    if not listed:
        return content
    pattern = re.compile("|".join(rf"(?<![\w-]){re.escape(word)}(?![\w-])" for word in listed))

    def cleaned(value: Any) -> Any:
        if isinstance(value, str):
            return pattern.sub(lambda found: words[found[0]], value)
        if isinstance(value, dict):
            return {key: cleaned(each) for key, each in value.items()}
        return [cleaned(each) for each in value] if isinstance(value, list) else value

    return cleaned(content)


def _hosts_of(spec: str) -> list[str]:
    """List the hosts of ``cluster:HOST:PORT,…``."""
    kind, _, rest = spec.partition(":")
    return [each.rpartition(":")[0] for each in rest.split(",")] if kind == "cluster" else []
