from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.strategies.parts import leaf_at, pack


def test_paths_make_leaves_tuples_dicts_and_nests_of_them() -> None:
    assert pack([("", 1)]) == 1
    assert pack([("0", 1)]) == (1,)
    assert pack([("1", 2), ("0", 1)]) == (1, 2)
    assert pack([("a", 1), ("b.0", 2), ("b.1.c", 3)]) == {"a": 1, "b": (2, {"c": 3})}


def test_each_leaf_is_found_at_its_path() -> None:
    nest = pack([("a", 1), ("b.0", 2), ("b.1.c", 3)])
    assert [leaf_at(nest, path) for path in ("a", "b.0", "b.1.c")] == [1, 2, 3]
    assert leaf_at(4, "") == 4


@pytest.mark.parametrize("paths", [("a", "a"), ("a", "a.b"), ("", "a"), ("0", "2"), ("1",)])
def test_paths_that_make_no_nest_are_refused(paths: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="accepted"):
        pack([(path, 0) for path in paths])
