"""The Jinja environment: everything is escaped, a missing value is an error, invisible characters become escapes."""

from __future__ import annotations

from functools import cache

import jinja2
from markupsafe import Markup

from harness.plural import plural
from harness.report.printable import device_label, one_line, printable
from harness.report.quantities import count, duration

_PACKAGE = "harness.report.html"


def render(template: str, *, package: str = _PACKAGE, **values: object) -> str:
    """Render ``templates/template`` of a package with ``values``. It may use the templates of this package."""
    return _environment(package).get_template(template).render(values) + "\n"


@cache
def _environment(package: str) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(each) for each in dict.fromkeys((package, _PACKAGE))]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(count=count, device=device_label, duration=duration, one_line=one_line, plural=plural)
    return environment


def _shown(value: object) -> object:
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value)
    return value
