"""Watches the verifications of a session, so that none that did not pass goes unnoticed."""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from harness.judgement.verification import Verification
    from harness.records import Exercised, Finding

#: A test that reads one of these knows how a verification ended.
_OUTCOME = frozenset({"verdict", "passed", "reason", "findings"})
#: Where pytest keeps the test that is running, and its phase: ``test_a.py::test_b (setup)``.
_RUNNING = "PYTEST_CURRENT_TEST"


class Watch:
    """Counts verifications, and remembers those that did not pass until their outcome is read."""

    def __init__(self) -> None:
        self.verifications = 0
        #: For which inputs those that passed are proved.
        self.proved: list[str] = []
        self.unpassed = 0
        self.exercised: Exercised | None = None
        #: What the verifications that passed with warnings say.
        self.warned: list[str] = []
        #: The findings of those that passed with warnings, and of those that did not pass.
        self.warnings: list[Finding] = []
        self.failures: list[Finding] = []
        #: All of them where a report wants them: copies, since reading an outcome is noted.
        self.keeps = False
        self.made: list[Verification] = []
        #: The outcomes that no test has read, by an ascending number.
        self._unread: dict[int, str] = {}
        #: Those of them that are from a fixture of several tests: any of these may read them.
        self._shared: set[int] = set()
        self._number = 0

    def observe(self, verification: Any) -> None:
        """Count a verification."""
        self.verifications += 1
        if self.keeps:
            self.made.append(replace(verification))
        proof = verification.proof
        if verification.passed and proof is not None and proof.proved:
            from harness.proof.sentence import reach

            self.proved.append(reach(proof))
        exercised = verification.exercised
        self.exercised = exercised if self.exercised is None else self.exercised + exercised
        if str(verification.verdict) == "WARN":
            messages = (f"[{finding.code} {finding.kind}] {finding.message}" for finding in verification.findings)
            self.warnings += verification.findings
            self.warned.append("; ".join([verification.reason, *messages]))
        if not verification.passed:
            self.unpassed += 1
            self.failures += verification.findings
            self._number += 1
            test, _, phase = os.environ.get(_RUNNING, "").rpartition(" ")
            of_fixture = f" (in a fixture, {phase.strip('()')} of {test})" if test and phase != "(call)" else ""
            self._unread[self._number] = f"{verification.verdict}: {verification.reason}{of_fixture}"
            _note_reading(verification, self._unread, self._number)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Let every test that uses a fixture of a wider scope read its verifications."""
        mark = self._number
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self._shared.update(number for number in self._unread if number > mark)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        """Fail a test that ignores a verification which did not pass."""
        mark = self._number
        try:
            result = yield
        except BaseException:
            self._unread_since(mark)
            raise
        self._refuse_unread(mark)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
        """Fail a test if its fixture made a verification that did not pass, and nobody has read it.

        Any test may read that of a fixture with a wider scope, so it fails the last test.
        """
        result = yield
        self._refuse_unread(0, shared=nextitem is None)
        return result

    def _refuse_unread(self, mark: int, *, shared: bool = False) -> None:
        for outcome in self._unread_since(mark, shared=shared):
            pytest.fail(
                f"a verification did not pass, and the test did not read its result: {outcome}\n"
                "assert result.passed, or call the fixture `verify` without check=False",
                pytrace=False,
            )

    def _unread_since(self, mark: int, *, shared: bool = False) -> list[str]:
        """Return and forget the outcomes since ``mark`` that no test has read, with those that tests share or not."""
        numbers = [number for number in self._unread if number > mark and (shared or number not in self._shared)]
        return [self._unread.pop(number) for number in numbers]

    def reset(self) -> None:
        """Start counting again."""
        self.verifications, self.proved, self.unpassed, self.exercised, self.warned = 0, [], 0, None, []
        self.warnings, self.failures, self.made = [], [], []


def _note_reading(verification: Any, unread: dict[int, str], number: int) -> None:
    """Have ``unread`` lose ``number`` once the outcome of ``verification`` is read."""
    kind: Any = type(verification)

    class Unread(kind):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            if name in _OUTCOME:
                unread.pop(number, None)
            return kind.__getattribute__(self, name)

        # Who prints a verification has asserted nothing.
        def __str__(self) -> str:
            return str(_restore(kind, self.__dict__))

        def __repr__(self) -> str:
            return repr(_restore(kind, self.__dict__))

        def __reduce__(self) -> Any:
            return _restore, (kind, dict(self.__dict__))

    Unread.__name__ = Unread.__qualname__ = kind.__name__
    object.__setattr__(verification, "__class__", Unread)


def _restore(kind: Any, state: dict[str, Any]) -> Any:
    """Make a verification of its own class, whose reading is not noted."""
    verification = object.__new__(kind)
    verification.__dict__.update(state)
    return verification
