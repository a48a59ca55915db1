"""Builds and runs the Heardlog server."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def build(folder: Path) -> Path:
    """Returns the server's program: HEARDLOG_BIN, or one that is built into folder."""
    if given := os.environ.get("HEARDLOG_BIN"):
        return Path(given).resolve()
    program = folder / "heardlog"
    command = ["go", "build", "-trimpath", "-tags", "grpcnotrace,validator_novalidatefn"]
    subprocess.run(
        [*command, "-o", str(program), "./cmd/api"],
        cwd=ROOT,
        env={**os.environ, "CGO_ENABLED": "0"},
        check=True,
    )
    return program


class Server:
    """A running server on a free port, with a database in folder.

    Attributes:
        url: Base URL of the API, with ``/v1``.
        root: The same without ``/v1``.
    """

    def __init__(self, program: Path, folder: Path, **settings: str) -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith("HEARDLOG_")}
        env |= {
            "HEARDLOG_ADDR": "127.0.0.1:0",
            "HEARDLOG_LOG_FORMAT": "json",
            "HEARDLOG_STORE": f"sqlite:{folder / 'heardlog.db'}",
        }
        self._settings = {**env, **settings}
        self._program = program
        self._folder = folder
        self.log: list[str] = []
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [str(self._program)],
            cwd=self._folder,
            env=self._settings,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)
            if '"message":"serving"' in line:
                self.root = json.loads(line)["address"]
                break
        else:
            raise RuntimeError("the server did not start:\n" + "".join(self.log))
        self.url = self.root + "/v1"
        stderr = self._process.stderr
        self._reader = threading.Thread(target=lambda: self.log.extend(stderr), daemon=True)
        self._reader.start()

    def stop(self) -> None:
        """Ends the server."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)

    def restart(self) -> None:
        """Ends the server and starts it again on the same address and database."""
        self.stop()
        self._settings["HEARDLOG_ADDR"] = self.root.removeprefix("http://")
        self._start()
