"""The lines that messages name: by their way from the working directory, so that editors and terminals open them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.evidence import places


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    caches = (places.place, places.in_users)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def test_a_line_is_named_by_its_way_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert places.place(str(tmp_path / "src" / "model" / "__init__.py"), 20) == "src/model/__init__.py:20"
    assert places.place(str(tmp_path.parent / "model.py"), 20) == "model.py:20"
    installed = tmp_path / ".venv" / "lib" / "site-packages" / "layers" / "core.py"
    assert places.place(str(installed), 3) == "layers/core.py:3"


def test_a_cell_of_a_notebook_is_named_and_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {"/tmp/ipykernel_7/1234.py": 3, "<ipython-input-4-0a1b>": 4}
    shell = SimpleNamespace(compile=SimpleNamespace(_filename_map=numbers))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert places.place("/tmp/ipykernel_7/1234.py", 12) == "In[3]:12"
    assert places.in_users("__main__", "<ipython-input-4-0a1b>")
    assert not places.in_users("__main__", "<string>")
