"""The task of a worker process that profiles a user's function."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from harness.errors import ReportError
from harness.runner.messages import Answer, plain
from harness.runner.target import Target
from harness.runner.users_error import users_code
from harness.speed.timeline.chrome import chrome_trace
from harness.speed.timeline.picture import draw_timeline

if TYPE_CHECKING:
    from harness.runner.worker import Send

#: Written to the report folder.
TENSORBOARD_FOLDER = "tensorboard"
TRACE_FILE = "timeline.json"
PICTURE_FILES = ("timeline.png", "timeline.svg")


@dataclass(frozen=True)
class Arguments:
    """The task's arguments: a device spec, the function's file and name, how many calls, and the report folder."""

    spec: str
    file: str
    function: str
    calls: int
    folder: str


def run(arguments: dict[str, object], send: Send) -> None:
    """Configure the devices, profile calls of the function, and write the timeline in three forms."""
    from harness.devices.fingerprint import fingerprint
    from harness.devices.runtime import configure
    from harness.speed.timeline.look import profile_calls

    asked = TypeAdapter(Arguments).validate_python(arguments)
    target = Target(Path(asked.file), asked.function)
    folder = Path(asked.folder)
    devices = configure(asked.spec)
    with users_code(target):
        looked = profile_calls(
            target.load(),
            devices=devices,
            calls=asked.calls,
            folder=folder / TENSORBOARD_FOLDER,
            target=str(target),
            spec=asked.spec,
        )
    profile = replace(looked.profile, reason=devices.reason, fingerprint=fingerprint(devices))
    try:
        trace = chrome_trace(looked.spans, looked.calls, profile.devices)
        (folder / TRACE_FILE).write_text(json.dumps(trace), encoding="utf-8")
        draw_timeline(profile, looked.spans, looked.calls, [folder / name for name in PICTURE_FILES])
    except OSError as error:
        raise ReportError(folder, error.strerror or str(error)) from error
    send(Answer({"profile": plain(profile)}))
