"""Names lost hosts of a cluster in error messages: TensorFlow's own have at most a task number."""

from __future__ import annotations

from harness.devices.hosts import Host, Silence, silent
from harness.devices.kinds.cluster import ClusterSpec
from harness.devices.runtime import configured
from harness.devices.spec import parse_spec
from harness.errors import HostUnreachable, InvalidSpec


def lost_hosts(spec: str | None = None) -> tuple[Silence, ...]:
    """Find the hosts of this process's cluster that no longer answer; empty without a cluster.

    ``spec``: the device spec of another process, whose listed hosts are checked instead.
    """
    return silent(_hosts(spec))


def require_hosts() -> None:
    """Check all hosts of this process's cluster, before a call that would wait forever for a lost one.

    Raise HostUnreachable if one of them does not answer.
    """
    state = configured()
    if state is not None and (quiet := lost_hosts()):
        raise HostUnreachable(str(state.request), [str(each) for each in quiet])


def naming_hosts(message: str, error: BaseException | None = None, spec: str | None = None) -> str:
    """Add the lost hosts to ``message``; if there are none, the addresses of the tasks that ``error`` names."""
    if isinstance(error, HostUnreachable):
        return message  # already named
    if lost := [str(each) for each in lost_hosts(spec)]:
        return f"{message}; {'; '.join(lost)}"
    named = [f"/job:{host.job}/task:{host.task} is {host.address}" for host in _hosts(spec) if _names(error, host)]
    return f"{message}; {', '.join(named)}" if named else message


def _names(error: BaseException | None, host: Host) -> bool:
    text = f"{error} "
    return any(f"{host.task_name}{after}" in text for after in ("/", " ", ":", ",", "\n", '"'))


def _hosts(spec: str | None) -> tuple[Host, ...]:
    if spec is None:
        state = configured()
        return state.plan.hosts if state is not None else ()
    try:
        parsed = parse_spec(spec)
    except InvalidSpec:
        return ()
    return parsed.listed_hosts() if isinstance(parsed, ClusterSpec) else ()
