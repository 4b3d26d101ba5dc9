"""Runs the notebook of docs/ in one process, as Jupyter does. ``python tests/repository/notebooks.py`` rewrites it."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import linecache
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "guides" / "notebook.ipynb"


def run(cells: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Run the code cells, and return the outputs of each."""
    # Cells are numbered as IPython does; what it keeps of them is all that the harness asks for.
    numbers: dict[str, int] = {}
    shell = SimpleNamespace(compile=SimpleNamespace(_filename_map=numbers))
    sys.modules["IPython"] = SimpleNamespace(version_info=(9, 0, 0), get_ipython=lambda: shell)  # type: ignore[assignment]
    main = sys.modules["__main__"] = ModuleType("__main__")
    found = []
    for number, cell in enumerate((each for each in cells if each["cell_type"] == "code"), start=1):
        source, file = "".join(cell["source"]), f"<ipython-input-{number}>"
        numbers[file] = number
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        tree = ast.parse(source)
        last = tree.body[-1]
        shown = ast.Expression(last.value) if isinstance(last, ast.Expr) else None
        if shown is not None:
            tree.body.pop()
        printed, value = io.StringIO(), None
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, file, "exec"), vars(main))
            if shown is not None:
                value = eval(compile(shown, file, "eval"), vars(main))
        found.append(_outputs(printed.getvalue(), value, number))
    return found


def _outputs(printed: str, value: Any, number: int) -> list[dict[str, Any]]:
    outputs: list[dict[str, Any]] = []
    if printed:
        outputs.append({"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        outputs.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return outputs


def main() -> None:
    """Rewrite the outputs of the notebook, or with ``--print`` print them as JSON."""
    document = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    outputs = run(document["cells"])
    if "--print" in sys.argv:
        sys.stdout.write(json.dumps(outputs))
        return
    code = (cell for cell in document["cells"] if cell["cell_type"] == "code")
    for number, (cell, found) in enumerate(zip(code, outputs, strict=True), start=1):
        cell["execution_count"], cell["outputs"] = number, found
    NOTEBOOK.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
