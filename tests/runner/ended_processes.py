"""Whether processes have ended, and waiting until they have."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil


def is_gone(pid: int) -> bool:
    """Whether no process of this id lives."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def wait_until(true: Callable[[], bool], limit_s: float = 300) -> bool:
    """Wait until ``true()`` holds; false when it does not within ``limit_s`` seconds."""
    deadline = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
