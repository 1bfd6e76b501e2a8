"""`make scan`: checkov over the templates, with and without a key, against what is accepted.

Two folders of templates are named: as the stacks come, and with `-c kms=true`.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ACCEPTED: Final = Path(__file__).with_name("accepted_findings.txt")
ALWAYS: Final = "always"
WITHOUT_KEY: Final = "without a key"


@dataclass(frozen=True, kw_only=True)
class Accepted:
    check: str
    found: str
    why: str


def accepted() -> tuple[Accepted, ...]:
    lines = ACCEPTED.read_text(encoding="utf-8").splitlines()
    rows = [line.split("|", 2) for line in lines if line and not line.startswith("#")]
    return tuple(Accepted(check=c.strip(), found=f.strip(), why=w.strip()) for c, f, w in rows)


def expected(*, with_key: bool) -> AbstractSet[str]:
    return {one.check for one in accepted() if one.found == ALWAYS or not with_key}


def findings(report: Mapping[str, object]) -> Mapping[str, list[str]]:
    """Check → where it failed. Raises ValueError for a report of nothing, or of a broken scan."""
    summary, results = report.get("summary"), report.get("results")
    if not isinstance(summary, dict) or not isinstance(results, dict):
        raise ValueError("the scan looked at no template")  # noqa: TRY004 -- one kind of error
    if summary["parsing_errors"] or not summary["resource_count"]:
        raise ValueError(
            f"the scan looked at {summary['resource_count']} resources, and could not "
            f"read {summary['parsing_errors']} templates"
        )
    found: dict[str, list[str]] = {}
    for failed in results["failed_checks"]:
        found.setdefault(failed["check_id"], []).append(failed["resource"])
    return found


def verdict(found: Mapping[str, list[str]], *, with_key: bool) -> list[str]:
    """What is found and not accepted, and what is accepted and not found; empty: all is well."""
    means = expected(with_key=with_key)
    new = [f"{check}: {', '.join(at)}" for check, at in sorted(found.items()) if check not in means]
    gone = [f"{check}: accepted, and not found any more" for check in sorted(means - found.keys())]
    return new + gone


def scanned(checkov: Path, templates: Path) -> Mapping[str, list[str]]:
    ran = subprocess.run(
        [
            *(checkov, "-d", templates, "--framework", "cloudformation"),
            # Nothing is asked of anybody: its checks are its own.
            *("--skip-download", "--compact", "--quiet", "-o", "json"),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    try:
        return findings(json.loads(ran.stdout))
    except ValueError as error:
        sys.exit(f"scan: {error}\n{ran.stderr[-2000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.infra.scan", description=__doc__)
    parser.add_argument("checkov", type=Path)
    parser.add_argument("plain", type=Path)
    parser.add_argument("with_key", type=Path)
    asked = parser.parse_args()
    wrong = []
    for folder, with_key in ((asked.plain, False), (asked.with_key, True)):
        found = scanned(asked.checkov, folder)
        wrong += [f"{folder.name}: {one}" for one in verdict(found, with_key=with_key)]
        sys.stdout.write(f"{folder.name}: {sum(map(len, found.values()))} findings\n")
    if wrong:
        sys.exit("\n".join(wrong))
    sys.stdout.write(f"all of them accepted, with reasons: {ACCEPTED.name}\n")


if __name__ == "__main__":
    main()
