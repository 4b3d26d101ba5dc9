"""JUnit XML of a fleet: a test case for each machine, also for those without a result."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from harness.fleet.verdicts import FleetVerdict, State
from harness.report.printable import one_line


def fleet_junit(found: FleetVerdict) -> str:
    """Write the verdict as a document. An action or a shared fault is a failure, a missing verdict an error."""
    reasons: dict[str, list[str]] = {}
    for each in found.accusations:
        reasons.setdefault(each.machine, []).append(f"{each.action} {each.subject}: {'; '.join(each.reasons)}")
    for cause in found.shared:
        for name in cause.machines:
            reasons.setdefault(name, []).append(f"shared with {cause.common}: {'; '.join(cause.reasons)}")
    failed = sum(each.state in (State.ACTION, State.SHARED) for each in found.machines)
    totals = {
        "tests": str(len(found.machines)),
        "failures": str(failed),
        "errors": str(found.counts.incomplete),
        "skipped": "0",
    }
    root = ET.Element("testsuites", {"name": "harness", **totals})
    suite = ET.SubElement(root, "testsuite", {"name": "harness fleet", **totals})
    for machine in found.machines:
        case = ET.SubElement(suite, "testcase", {"classname": "harness.fleet", "name": one_line(machine.name)})
        texts = [one_line(text) for text in reasons.get(machine.name, ())]
        if machine.state in (State.ACTION, State.SHARED):
            ET.SubElement(case, "failure", {"message": texts[0] if texts else str(machine.state)}).text = "\n".join(
                texts
            )
        elif machine.state in (State.MISSING, State.INCOMPLETE):
            ET.SubElement(case, "error", {"message": f"{machine.state}: {one_line(machine.why)}"})
        elif texts:
            ET.SubElement(case, "system-out").text = "\n".join(texts)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'
