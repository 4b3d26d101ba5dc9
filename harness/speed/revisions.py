"""Checks out revisions of a git repository, each in a temporary work tree."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from harness.errors import UsageError


@contextlib.contextmanager
def worktrees(revisions: tuple[str, ...], below: Path, repository: Path) -> Iterator[tuple[Path, ...]]:
    """Check out each revision in a folder ``below``; yields the folders.

    Raises:
        UsageError: git, the repository or a revision is missing.
    """
    commits = [
        _git(repository, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}") for name in revisions
    ]
    made: list[Path] = []
    try:
        for index, commit in enumerate(commits):
            folder = below / f"revision-{index}-{commit[:12]}"
            made.append(folder)
            _git(repository, "worktree", "add", "--quiet", "--detach", str(folder), commit)
        yield tuple(made)
    finally:
        for folder in made:
            with contextlib.suppress(UsageError):  # it was not made
                _git(repository, "worktree", "remove", "--force", str(folder))


def _git(repository: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=False, timeout=600
        )
    except OSError as error:
        raise UsageError(f"git cannot be started: {error.strerror or error}; comparing revisions needs it") from error
    if done.returncode != 0:
        output = " ".join(done.stderr.split())
        raise UsageError(f"git {' '.join(arguments)}: {output}; accepted: revisions of the repository in {repository}")
    return done.stdout.strip()
