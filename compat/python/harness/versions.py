"""The table of the framework versions that the tests run with.

versions.py write                 writes the table from the locks
versions.py check                 fails if table and locks differ
versions.py compare GROUP RESULT  prints how an environment (pip freeze, on standard input) differs
                                  from the lock of its group
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

COMPAT = Path(__file__).resolve().parents[1]
REQUIREMENTS = COMPAT / "requirements"
PAGE = COMPAT.parents[1] / "docs" / "reference" / "tested-versions.md"
BEGIN, END = "<!-- begin python -->", "<!-- end python -->"


def direct(group: str) -> list[str]:
    """Returns the packages that a group names itself."""
    names = []
    for line in (REQUIREMENTS / f"{group}.in").read_text().splitlines():
        found = re.match(r"[A-Za-z0-9][\w.-]*", line)
        if found:
            names.append(normal(found[0]))
    return names


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    """Returns the versions in a lock or in the output of pip freeze."""
    found = re.findall(r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==([^\s;]+)", text, re.M)
    return {normal(name): version for name, version in found}


def groups() -> list[str]:
    names = (path.stem for path in REQUIREMENTS.glob("*.in"))
    return sorted(name for name in names if name not in ("common", "tools"))


def table() -> str:
    lines = ["| tests | packages |", "| --- | --- |"]
    for group in groups():
        locked = pins((REQUIREMENTS / f"{group}.txt").read_text())
        packages = ", ".join(f"{name} {locked[name]}" for name in direct(group))
        lines.append(f"| `test_{group}.py` | {packages} |")
    return "\n".join(lines)


def main() -> int:
    command = sys.argv[1]
    if command == "compare":
        group, result = sys.argv[2:]
        locked = pins((REQUIREMENTS / f"{group}.txt").read_text())
        newest = pins(sys.stdin.read())
        moved = [
            f"{name} {locked.get(name)} -> {newest.get(name)}"
            for name in sorted(newest)
            if name in locked and newest[name] != locked[name]
        ]
        print(f"{group}: {result} with", ", ".join(moved) or "the locked versions")
        return 0
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    old, after = rest.split(END)
    if command == "write":
        PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}")
        return 0
    if old.strip() != table():
        print(f"{PAGE.name} and the locks differ: run compat/python/harness/versions.py write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
