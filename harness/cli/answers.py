"""What a worker process sends a command, one message after the other."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.runner.job import Job, WorkerFiles


def messages(job: Job, files: WorkerFiles) -> Generator[dict[str, Any], None, None]:
    """What the worker process sends, until it is done. Raise RefusedByWorker or WorkerFailed if it cannot do it."""
    from harness.errors import RefusedByWorker, WorkerFailed
    from harness.runner.messages import Answer, Refused
    from harness.runner.postmortem import describe_loss
    from harness.runner.process import WorkerProcess

    sys.stdout.flush()
    with WorkerProcess(job, files) as worker:
        while True:
            message, loss = worker.next_message(None)
            if isinstance(message, Refused):
                raise RefusedByWorker(message.error, message.message, message.details)
            if not isinstance(message, Answer):
                what, details = describe_loss(loss or "sent no answer", files)
                raise WorkerFailed(f"the worker process {what}; see {files.log}", details)
            yield message.value
            if message.value.get("complete"):
                files.discard_empty()
                return
