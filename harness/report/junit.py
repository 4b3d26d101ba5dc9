"""Writes a run as JUnit XML for CI systems: a test case for each check, also for those that never ran.

FAIL is a ``failure``, UNKNOWN and a check without a result an ``error``, SKIP ``skipped``; a WARN passes, with a
note in ``system-out``. The form follows the JUnit schema of Jenkins and of pytest (``testsuites/testsuite/testcase``).
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from harness.plural import plural
from harness.records import CheckResult, RunRecord, Verdict
from harness.report.card_verdicts import card_verdicts
from harness.report.printable import one_line, printable
from harness.report.terminal import finding_line
from harness.report.verdicts import command_name, not_run

#: Findings written of one check; ``run.json`` has all of them.
MOST_FINDINGS = 200


def junit_xml(record: RunRecord) -> str:
    """Write ``record`` as a document."""
    cases = [_case(record, result) for result in record.results]
    cases += [_without_result(record, check) for check in not_run(record)]
    totals = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": str(sum(case.find("error") is not None for case in cases)),
        "skipped": str(sum(case.find("skipped") is not None for case in cases)),
        "time": f"{record.elapsed_s:.3f}",
    }
    root = ET.Element("testsuites", {"name": "harness", **totals})
    suite = ET.SubElement(
        root, "testsuite", {"name": command_name(record), **totals, "timestamp": printable(record.started_at)}
    )
    _properties(suite, record)
    suite.extend(cases)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _properties(suite: ET.Element, record: RunRecord) -> None:
    actions = card_verdicts(record)
    facts = {
        "verdict": str(record.verdict),
        "complete": str(record.complete).lower(),
        "harness": record.harness,
        "level": record.level,
        "devices": record.spec,
        "described_machine": str(record.described).lower(),
        **{(" -> " if each.pair else ", ").join(each.labels): each.action for each in actions},
    }
    element = ET.SubElement(suite, "properties")
    for name, value in facts.items():
        ET.SubElement(element, "property", {"name": name, "value": one_line(value)})


def _case(record: RunRecord, result: CheckResult) -> ET.Element:
    case = ET.Element(
        "testcase",
        {"classname": _class(record), "name": one_line(result.check), "time": f"{result.elapsed_s:.3f}"},
    )
    verdict, body = result.verdict, _text(result)
    if verdict is Verdict.FAIL:
        kind = result.findings[0].kind if result.findings else "FAIL"
        _end(case, "failure", result.reason, body, kind)
    elif verdict is Verdict.UNKNOWN:
        _end(case, "error", result.reason, body, "UNKNOWN")
    elif verdict is Verdict.SKIP:
        _end(case, "skipped", result.reason, None)
    elif result.exercised.nothing:  # must not look like a pass
        _end(case, "error", f"{verdict}, but nothing was exercised", body, "UNKNOWN")
    else:
        ET.SubElement(case, "system-out").text = f"{verdict}: {body}"
    return case


def _without_result(record: RunRecord, check: str) -> ET.Element:
    case = ET.Element("testcase", {"classname": _class(record), "name": one_line(check), "time": "0"})
    _end(case, "error", "the run ended before this check had a result", None, "UNKNOWN")
    return case


def _end(case: ET.Element, tag: str, message: str, text: str | None, kind: str | None = None) -> None:
    facts = {"message": one_line(message)} if kind is None else {"message": one_line(message), "type": kind}
    ET.SubElement(case, tag, facts).text = text


def _text(result: CheckResult) -> str:
    lines = [result.reason, f"exercised: {'; '.join((str(result.exercised), *result.scope))}"]
    lines += [finding_line(finding) for finding in result.findings[:MOST_FINDINGS]]
    if len(result.findings) > MOST_FINDINGS:
        lines.append(f"and {plural(len(result.findings) - MOST_FINDINGS, 'more finding')}, in run.json")
    lines += [f"accepted as a known failure: {result.accepted_as}"] if result.accepted_as is not None else []
    lines += [f"next: {result.next_step}"] if result.next_step else []
    lines += [f"replay: {result.replay}"] if result.replay else []
    return "\n".join(map(one_line, lines))


def _class(record: RunRecord) -> str:
    return f"harness.{one_line(record.spec) or 'validate'}"
