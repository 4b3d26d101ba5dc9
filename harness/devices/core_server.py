"""A TensorFlow server on one CPU core: the program of each device of ``cores:N``.

    python -I -S core_server.py CPU LIBRARY PARENT

It only uses Python's standard library and TensorFlow's C interface (``tensorflow/c/c_api.h``), and starts in a second:
importing TensorFlow for Python would take much longer. It writes its address to stdout, and TensorFlow's log to stderr.

It never outlives its parent, which it notices in two ways: stdin, a pipe that the parent keeps open, closes; and the
parent's id changes, even if another child has inherited the pipe. (``PR_SET_PDEATHSIG`` would end it with the thread
that started it.)
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import runpy
import select
import sys
import threading
from pathlib import Path

#: Seconds between checks of the parent's id.
TICK_S = 0.5
#: Time limit of the start, in seconds, if nobody ends it: longer than its parent's.
LAST_RESORT_S = 360.0
#: The job of the servers in device names.
JOB = "core"


def main() -> None:
    """Serve until the parent ends."""
    cpu, library, parent = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    _close_inherited()
    os.sched_setaffinity(0, {cpu})  # before any thread starts: it is inherited, and set for one thread alone
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    # While the library is loaded, Python's lock may be held, and the thread above waits for it.
    faulthandler.dump_traceback_later(LAST_RESORT_S, exit=True)
    server = Server(library, server_definition())
    # Its folder is not on the path, since a random.py there would take the place of Python's own.
    loopback = runpy.run_path(str(Path(__file__).with_name("loopback.py")))
    loopback["restrict_listening"]()  # it does not serve before start()
    server.start()
    os.write(1, f"{server.address()}\n".encode())
    faulthandler.cancel_dump_traceback_later()
    os.dup2(2, 1)
    threading.Event().wait()


def _close_inherited() -> None:
    """Close inherited descriptors: a socket of the parent would stay open here."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) > 2:
            with contextlib.suppress(OSError):  # the folder's own descriptor is closed already
                os.close(int(entry.name))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        ready, _, _ = select.select([0], [], [], TICK_S)
        if ready and not os.read(0, 1):
            break
    os._exit(0)


class Server:
    """TensorFlow's server, through the C interface."""

    def __init__(self, library: str, definition: bytes) -> None:
        """Make the server from a serialised ``ServerDef``: it listens, and serves after :meth:`start`.

        Raises:
            OSError: the library cannot be loaded.
            RuntimeError: TensorFlow refuses.
        """
        self._library = ctypes.CDLL(library)
        pointer = ctypes.c_void_p
        for name, result, arguments in (
            ("TF_NewStatus", pointer, []),
            ("TF_GetCode", ctypes.c_int, [pointer]),
            ("TF_Message", ctypes.c_char_p, [pointer]),
            ("TF_NewServer", pointer, [ctypes.c_char_p, ctypes.c_size_t, pointer]),
            ("TF_ServerStart", None, [pointer, pointer]),
            ("TF_ServerTarget", ctypes.c_char_p, [pointer]),
        ):
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments
        self._status = self._library.TF_NewStatus()
        self._server = self._library.TF_NewServer(definition, len(definition), self._status)
        self._check()

    def start(self) -> None:
        """Start serving."""
        self._library.TF_ServerStart(self._server, self._status)
        self._check()

    def address(self) -> str:
        """Give host and port."""
        target: bytes = self._library.TF_ServerTarget(self._server)
        return target.decode().removeprefix("grpc://")

    def _check(self) -> None:
        if self._library.TF_GetCode(self._status):
            message = self._library.TF_Message(self._status).decode(errors="replace")
            raise RuntimeError(f"TensorFlow's server did not start: {message}")


def server_definition(job: str = JOB, address: str = "127.0.0.1:0", config: bytes | None = None) -> bytes:
    """Serialise a ``ServerDef`` of a cluster with one task, by default on a port that the kernel picks.

    ``config``: a serialised ``ConfigProto``; by default one thread, and no GPU. This needs no protocol buffer library.
    The field numbers are from ``tensorflow_server.proto``, ``cluster.proto`` and ``config.proto``.
    """
    task = number_field(1, 0) + bytes_field(2, address.encode())
    jobs = bytes_field(1, job.encode()) + bytes_field(2, task)
    no_gpu = bytes_field(1, b"GPU") + number_field(2, 0)
    # device_count, intra- and inter-op threads
    one_core = bytes_field(1, no_gpu) + number_field(2, 1) + number_field(5, 1)
    cluster = bytes_field(1, bytes_field(1, jobs))
    own = bytes_field(2, job.encode()) + number_field(3, 0)
    return cluster + own + bytes_field(4, one_core if config is None else config) + bytes_field(5, b"grpc")


def bytes_field(field: int, value: bytes) -> bytes:
    """Serialise a text or a message as a field."""
    return bytes([field << 3 | 2]) + _varint(len(value)) + value


def number_field(field: int, value: int) -> bytes:
    """Serialise a number of 0 or more as a field."""
    return bytes([field << 3]) + _varint(value)


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


if __name__ == "__main__":
    main()
