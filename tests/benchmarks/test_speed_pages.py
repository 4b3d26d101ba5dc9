"""The pages about speed show what their commands print. They measure, so they need the machine for themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import SPEED_PAGES, check_transcripts, pages_with_transcripts


@pytest.mark.parametrize("page", SPEED_PAGES)
def test_the_commands_of_a_page_about_speed_print_what_it_shows(page: str, tmp_path: Path) -> None:
    check_transcripts(page, tmp_path)


def test_every_page_about_speed_has_commands() -> None:
    assert set(SPEED_PAGES) <= set(pages_with_transcripts())
