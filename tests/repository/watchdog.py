"""A pytest plug-in that keeps a session from hanging.

A test that takes longer than ``faulthandler_timeout`` ends its process: C++ cannot be interrupted by signals that
Python handles, but faulthandler's thread needs no Python. Under pytest-xdist a worker that ends, for this reason or by
a crash, fails its test and ends the session; without that, the other workers can wait for ever (``--dist loadfile``).
"""

from __future__ import annotations

import faulthandler
import sys

import pytest

SESSION_LIMIT = "session_limit_s"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(SESSION_LIMIT, "seconds after which a session with pytest-xdist is ended", default="7200")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # xdist reads this when it is configured, after this hook. A number on the command line wins.
    if getattr(config.option, "maxworkerrestart", "no xdist") is None:
        config.option.maxworkerrestart = "0"


def pytest_sessionstart(session: pytest.Session) -> None:
    # The process that hands out the tests runs none, so that faulthandler's one timer is free.
    if session.config.pluginmanager.hasplugin("dsession"):
        limit_s = float(session.config.getini(SESSION_LIMIT))
        faulthandler.dump_traceback_later(limit_s, exit=True, file=sys.__stderr__ or sys.stderr)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.pluginmanager.hasplugin("dsession"):
        faulthandler.cancel_dump_traceback_later()
