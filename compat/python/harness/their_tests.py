"""Runs the tests that a project publishes, with our classes in the place of its own."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

from harness.server import Server


def run(
    project: str,
    package: str,
    files: list[str],
    leave_out: list[str],
    server: Server,
    folder: Path,
) -> int:
    """Runs test files of a package's source distribution, and returns how many tests passed.

    It fails if one of them failed or was skipped.

    Args:
        project: As in theirs.py.
        leave_out: Words in the names of tests that are not about the protocol.
        folder: Where the report is written.
    """
    version = importlib.metadata.version(package)
    where = os.environ.get("HEARDLOG_SDISTS")
    assert where, "HEARDLOG_SDISTS is not set: run scripts/test-python.sh"
    source = Path(where) / f"{package}-{version}"
    assert source.is_dir(), f"{source} is missing: run scripts/test-python.sh"
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "harness.theirs", "-o", "addopts="]
    command += ["-p", "no:cacheprovider", f"--junitxml={report}", *files]
    if leave_out:
        command += ["-k", " and ".join(f"not {word}" for word in leave_out)]
    done = subprocess.run(
        command,
        cwd=source,
        env={
            **os.environ,
            "THEIRS": project,
            "HEARDLOG_URL": server.url,
            "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
        },
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    (suite,) = xml.etree.ElementTree.parse(report).getroot().iter("testsuite")
    assert suite.attrib["skipped"] == "0", done.stdout[-20_000:]
    return int(suite.attrib["tests"])
