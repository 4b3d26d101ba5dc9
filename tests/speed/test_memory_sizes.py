"""Sizes of memory compare with texts, and a text that is no size is refused in one line."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.speed.memory.sizes import Size, parse_size, size_text


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("16GB", 16_000_000_000),
        ("16 GiB", 16 * 2**30),
        (" 1.5 gib ", 3 * 2**29),
        ("500 kB", 500_000),
        ("2TiB", 2**41),
        ("7 B", 7),
        (".5 MiB", 2**19),
        (12, 12),
    ],
)
def test_a_size_is_bytes_or_a_number_with_a_unit(text: object, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["16", "GiB", "16 GX", "-1 GiB", "1e9 B", "1,000 B", "", -1, 1.5, None, True])
def test_anything_else_is_refused_in_one_line(text: object) -> None:
    with pytest.raises(UsageError, match=r"^size .* is not valid; accepted: a number with a unit") as error:
        parse_size(text)
    assert "\n" not in str(error.value)


def test_a_size_compares_with_texts_and_numbers_and_is_written_with_its_unit() -> None:
    size = Size(3 * 2**29, "somewhere")
    assert size < "2 GiB"
    assert size <= "1.5 GiB" <= size
    assert size > "1.5 GB"
    assert size >= 1
    assert size == parse_size("1.5 GiB")
    assert (size == "2 GiB") is False
    assert str(size) == repr(size) == "1.5 GiB"
    assert size.source == "somewhere"
    assert size_text(999) == "999 B"
    with pytest.raises(UsageError, match="size 'much' is not valid"):
        assert size < "much"
