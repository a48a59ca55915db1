"""The programs of docs/guides/python.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from harness.server import ROOT


def program(heading: str, number: int = 0) -> str:
    """Returns a program of the page, by the heading above it; an empty one is the beginning."""
    page = (ROOT / "docs" / "guides" / "python.md").read_text()
    section = re.split(r"^## ", page, flags=re.M)
    for part in section if heading else section[:1]:
        if part.startswith(heading):
            return re.findall(r"^```python\n(.*?)^```", part, re.M | re.S)[number]
    raise KeyError(heading)


def run(heading: str, **settings: str) -> str:
    """Runs a program of the page as it stands there, and returns what it prints."""
    return run_text(program(heading), **settings)


def run_text(text: str, **settings: str) -> str:
    """Runs a program with settings of the environment, and returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
