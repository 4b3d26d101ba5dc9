"""Starts Python processes as forks of one that has imported what they need.

That server has imported TensorFlow and not started its runtime, so each fork configures devices of its own, and none
spends seconds on imports. Each fork brings a server of its own, forked before anything else, for what it starts.
Whoever starts forks adopts orphans, and so can wait for them as for children. Where a process must begin with nothing
imported, or the command or its environment is one that a fork cannot take over, Python starts as usual.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import inspect
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Iterator, Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypeAlias

import psutil

#: What a server has imported and cannot take back: the kind of TensorFlow, and how that was set up.
Key: TypeAlias = tuple[str, ...]

_ROOT = Path(__file__).resolve().parents[2]
_SERVE = (
    "import sys; path = sys.path[1:]; sys.path[:] = sys.argv[3:]; import forks; forks.serve(int(sys.argv[1]), path)"
)
_REAL, _FAKE = "tensorflow", "no tensorflow"
_IMPORTS = ("matplotlib.figure", "numpy", "pytest", "pytest_benchmark.session", "rich.console", "scipy.stats", "typer")
_TENSORFLOW_IMPORTS = ("tensorflow", "keras", "hypothesis")
#: Read while TensorFlow is imported.
_READ_AT_IMPORT = ("TF_ENABLE_ONEDNN_OPTS", "TF_CPP_MIN_LOG_LEVEL")
#: Beginnings of names that Python and XLA read once: a process with others than the server's is no fork.
_READ_AT_START = ("PYTHON", "TF_XLA_FLAGS", "XLA_FLAGS")
_SET_NAME, _SET_CHILD_SUBREAPER = 15, 36  # prctl(2)
_SERVER_NAME = "fork-server"
#: Above the numbers that a command may name for descriptors of its own.
_HIGH = 400

_popen = subprocess.Popen
_lock = threading.Lock()
_servers: dict[Key, tuple[socket.socket, int]] = {}
#: What the servers that this process started say.
_log = os.memfd_create("forks")
#: Whether this process is itself a fork, which has one server and starts no other.
_is_fork = False


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """Make every Python process that this one starts a fork."""
    before = subprocess.Popen
    subprocess.Popen = Fork  # type: ignore[misc]
    try:
        yield
    finally:
        subprocess.Popen = before  # type: ignore[misc]


def be_a_starter() -> None:
    """Let this process, itself a fork, start servers and forks as one that is none: a worker of pytest-xdist does."""
    global _is_fork
    _is_fork = False
    subprocess.Popen = _popen  # type: ignore[misc]
    gc.unfreeze()  # tests look at what the measurements freeze


def children(recursive: bool = False) -> list[psutil.Process]:
    """The processes that this one started or adopted, without servers of forks and without those that have ended."""
    _reap_servers()
    found = []
    for child in psutil.Process().children(recursive):
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.name() != _SERVER_NAME and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return found


def _reap_servers() -> None:
    """Wait for the servers of forks that have ended, which this process adopted."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess, ChildProcessError):
            if child.name() == _SERVER_NAME:
                os.waitpid(child.pid, os.WNOHANG)


def _name_process(name: str) -> None:
    ctypes.CDLL(None).prctl(_SET_NAME, name.encode(), 0, 0, 0)


class Fork(subprocess.Popen[Any]):
    """``subprocess.Popen``, of which the process is a fork wherever that is the same."""

    def _execute_child(self, *arguments: Any) -> None:
        bound = inspect.signature(_popen._execute_child).bind(self, *arguments).arguments  # type: ignore[attr-defined]
        environment = os.environ.copy() if bound["env"] is None else {**bound["env"]}
        server = _server(_key(environment)) if _can_be_forked(bound) else None
        if server is None:
            _popen._execute_child(self, *arguments)  # type: ignore[attr-defined]
            return
        streams = {0: bound["p2cread"], 1: bound["c2pwrite"], 2: bound["errwrite"]}
        descriptors = {number: number if own == -1 else own for number, own in streams.items()}
        descriptors |= {number: number for number in bound["pass_fds"]}
        request = {
            "arguments": [*map(os.fspath, bound["args"][1:])],
            "environment": environment,
            "folder": os.fspath(bound["cwd"] or Path.cwd()),
            "new_session": bound["start_new_session"],
            "descriptors": [*descriptors],
        }
        body = json.dumps(request).encode()
        with _lock:
            _reap_servers()
            socket.send_fds(server, [len(body).to_bytes(8, "big")], [*descriptors.values()])
            server.sendall(body)
            self.pid = int.from_bytes(_receive(server, 8), "big")
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(bound[name] for name in pipes))  # type: ignore[attr-defined]


def _can_be_forked(bound: Mapping[str, Any]) -> bool:
    args, options = bound["args"], ("preexec_fn", "executable", "shell", "gid", "gids", "uid")
    return (
        isinstance(args, (list, tuple))
        and args[0] == sys.executable
        and _parse([*map(os.fspath, args[1:])]) is not None
        and not any(bound[option] for option in options)
        and bound.get("process_group") in (None, -1)
    )


def _parse(arguments: list[str]) -> tuple[bool, str, str, list[str]] | None:
    """Whether Python is unbuffered, how it is given what it runs, what that is, and its arguments."""
    unbuffered = arguments[:1] == ["-u"]
    rest = arguments[unbuffered:]
    if rest and rest[0].startswith("-m") and len(rest[0]) > 2:
        rest = ["-m", rest[0][2:], *rest[1:]]
    if len(rest) > 1 and rest[0] in ("-c", "-m"):
        return unbuffered, rest[0], rest[1], rest[2:]
    return (unbuffered, "file", rest[0], rest[1:]) if rest and not rest[0].startswith("-") else None


def _key(environment: Mapping[str, str]) -> Key | None:
    """Which server has what a process with this environment would import; ``None``: Python itself has to start."""

    def settings(of: Mapping[str, str]) -> dict[str, str]:
        return {name: text for name, text in of.items() if name.startswith(_READ_AT_START) and name != "PYTHONPATH"}

    folders = [Path(entry) for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if settings(environment) != settings(os.environ) or any((each / "sitecustomize.py").exists() for each in folders):
        return None
    if any((each / "tensorflow.py").exists() for each in folders):
        return (_FAKE,)
    return (_REAL, *(environment.get(name, "") for name in _READ_AT_IMPORT))


def _server(key: Key | None) -> socket.socket | None:
    """The connection to the server with this key, which is started where this process may."""
    if key is None:
        return None
    with _lock:
        if key not in _servers and not _is_fork:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            _adopt_orphans()
            path = [str(Path(__file__).parent), str(_ROOT), *sys.path]
            read = dict(zip(_READ_AT_IMPORT, key[1:], strict=False))
            environment = {**os.environ, **{name: text for name, text in read.items() if text}}
            with theirs:
                command = [sys.executable, "-c", _SERVE, str(theirs.fileno()), key[0], *path]
                options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": _log, "stderr": _log}
                server = _popen(command, env=environment, pass_fds=[theirs.fileno()], **options)
            server.returncode = 0  # it ends with this process, and nobody waits for it
            _servers[key] = ours, server.pid
            atexit.register(ours.close)  # which ends it
    return _servers[key][0] if key in _servers else None


def _adopt_orphans() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def serve(descriptor: int, path: list[str]) -> None:
    """Import, and fork a process for each request, until the other end is closed; ``path``: Python's own."""
    import harness

    _name_process(_SERVER_NAME)
    kind = sys.argv[2]
    for name in (*_IMPORTS, *(_TENSORFLOW_IMPORTS if kind == _REAL else ())):
        importlib.import_module(name)
    for module in pkgutil.walk_packages(harness.__path__, "harness."):
        # pytest imports the plug-in itself, to rewrite its assertions.
        if not module.name.startswith(("harness.pytest_plugin", "harness.__main__")):
            importlib.import_module(module.name)
    ours = {str(_ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    key = (kind, *(os.environ.get(name, "") for name in _READ_AT_IMPORT)) if kind == _REAL else (kind,)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _answer(socket.socket(fileno=descriptor), key, [entry for entry in path if entry not in ours])


def _answer(connection: socket.socket, key: Key, path: list[str]) -> None:
    """Fork a process for each request."""
    while True:
        size, descriptors, _, _ = socket.recv_fds(connection, 8, 16)
        if not size:
            return
        request = json.loads(_receive(connection, int.from_bytes(size, "big")))
        (read_end, write_end), (go, told) = os.pipe(), os.pipe()
        child = os.fork()
        if not child:
            if os.fork():
                os._exit(0)
            # Its starter may end its group as soon as it knows its number.
            if request["new_session"]:
                os.setsid()
            os.write(write_end, os.getpid().to_bytes(8, "big"))
            connection.close()
            os.close(read_end)
            os.close(write_end)
            os.close(told)
            os.read(go, 1)  # the process begins when its starter knows its number
            os.close(go)
            _become(request, descriptors, key, path)
        os.waitpid(child, 0)  # from now on the process is an orphan, which its starter adopts
        connection.sendall(os.read(read_end, 8))
        for each in (read_end, write_end, go, told, *descriptors):
            os.close(each)


def _become(request: dict[str, Any], descriptors: list[int], key: Key, path: list[str]) -> None:
    """Become the process that ``subprocess.Popen`` would have started."""
    _name_process("python")
    parsed = _parse(request["arguments"])
    assert parsed is not None
    unbuffered, how, what, arguments = parsed
    _bring_server(descriptors, key, path)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    first = {"-c": "", "-m": request["folder"], "file": str(Path(what).parent)}[how]
    sys.path[:] = [first, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *path]
    importlib.invalidate_caches()
    held = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _HIGH) for each in descriptors]
    for each in descriptors:
        os.close(each)
    for own, number in zip(held, request["descriptors"], strict=True):
        os.dup2(own, number)
        os.close(own)
    _open_streams(unbuffered)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # which a test within the process that starts servers may ignore
    status = _run(how, what, arguments)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    _flush()
    os._exit(status)


def _open_streams(unbuffered: bool) -> None:
    text: dict[str, Any] = {"encoding": sys.stdout.encoding, "errors": sys.stdout.errors}
    out = os.fdopen(1, "wb", 0 if unbuffered else -1, closefd=False)
    err = os.fdopen(2, "wb", closefd=False)
    stdin = os.fdopen(0, closefd=False, **text)
    stdout = TextIOWrapper(out, line_buffering=out.isatty(), write_through=unbuffered, **text)
    stderr = TextIOWrapper(err, sys.stderr.encoding, "backslashreplace", line_buffering=True)
    for name, stream in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _bring_server(descriptors: list[int], key: Key, path: list[str]) -> None:
    """Fork a server from this process, which has started nothing yet, for what it will start."""
    global _is_fork
    _adopt_orphans()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    server = os.fork()
    if not server:
        ours.close()
        for each in descriptors:
            os.close(each)
        _name_process(_SERVER_NAME)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        theirs.sendall(b"!")
        _answer(theirs, key, path)
        os._exit(0)
    theirs.close()
    # Only then it has its name, by which others know it, and ^C, which reaches the whole group, does not end it.
    assert _receive(ours, 1) == b"!"
    high = fcntl.fcntl(ours.detach(), fcntl.F_DUPFD_CLOEXEC, _HIGH)
    _servers.clear()
    _servers[key] = socket.socket(fileno=high), server
    _is_fork = True
    subprocess.Popen = Fork  # type: ignore[misc]


def _run(how: str, what: str, arguments: list[str]) -> int:
    """Run the code, module or file as Python does, and return the exit status."""
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    try:
        if how == "-m":
            sys.argv = ["-m", *arguments]
            sys.modules.pop(what, None)  # the server imported it under its name
            runpy._run_module_as_main(what)  # type: ignore[attr-defined]
        else:
            name, text = ("<string>", what) if how == "-c" else (what, Path(what).read_text(encoding="utf-8"))
            if how == "file":
                main.__file__ = what
            sys.argv = ["-c" if how == "-c" else what, *arguments]
            exec(compile(text, name, "exec"), main.__dict__)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return (ended.code or 0) & 0xFF
        print(ended.code, file=sys.stderr)
        return 1
    except BaseException as error:  # noqa: BLE001 - the border of a process
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        if isinstance(error, KeyboardInterrupt):
            _flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return 1
    return 0


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def _receive(connection: socket.socket, size: int) -> bytes:
    body = b""
    while len(body) < size:
        chunk = connection.recv(size - len(body))
        if not chunk:
            said = os.pread(_log, 1_000_000, 0).decode(errors="replace")
            raise RuntimeError(f"the server of forks has ended: {said[-4000:]}")
        body += chunk
    return body
