"""Writes heardlog/models.py from openapi.yaml, and heardlog/_sync from heardlog/_async.

python tools/generate.py          writes the files
python tools/generate.py --check  fails if they are not up to date
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import yaml

SDK = Path(__file__).resolve().parent.parent
SPEC = SDK.parent.parent / "openapi.yaml"
PACKAGE = SDK / "src" / "heardlog"

# The schemas that the client's methods take and return. Those that they refer to follow.
SCHEMAS = [
    "JoinAnswer", "AgentShown", "NewMessage", "LedgerEntry", "HistoryMessage", "Interrupted",
    "EvidenceAnswer", "Policy", "Context", "Recalled", "Fact", "FactSource", "FactBlock",
]  # fmt: skip

TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}

# These stay plain dictionaries.
PLAIN = {"AgentSettings", "Tally", "LedgerEntryTimings", "LedgerEntryFailure", "PolicyNormalise"}

# What makes the synchronous client of the asynchronous one.
SYNC = [
    (r", and may be used in several event loops\.", "."),
    (r"\basyncio\.sleep", "time.sleep"),
    (r"^import asyncio$", "import time"),
    (r"\ban ``async (with|for)``", r"a ``\1``"),
    (r"\basync (def|for|with) ", r"\1 "),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit|iter)__", r"__\1__"),
    (r"\baclose\b", "close"),
    (r"\bAsync(\w+)", r"\1"),
    (r"^(\"\"\"The )asynchronous( client\.).*", r'\1synchronous\2"""'),
]


class Models:
    """The TypedDicts of some schemas."""

    def __init__(self, schemas: dict[str, Any]) -> None:
        self.schemas = schemas
        self.done: dict[str, str] = {}

    def add(self, name: str, schema: dict[str, Any] | None = None) -> str:
        """Writes the class of a schema and returns its name."""
        if name not in self.done:
            self.done[name] = ""  # a schema may refer to itself
            self.done[name] = self.render(name, schema or self.schemas[name])
        return name

    def type(self, schema: dict[str, Any], name: str) -> str:
        """Returns the type of a field. Objects within it become classes named after it."""
        if "$ref" in schema:
            target = schema["$ref"].rsplit("/", 1)[1]
            found = self.schemas[target]
            if found.get("type") == "object" and "properties" in found:
                return "dict[str, Any]" if target in PLAIN else self.add(target)
            return self.type(found, target)
        if len(schema.get("allOf", [])) == 1:
            return self.type(schema["allOf"][0], name)
        if "oneOf" in schema:
            return self.union([self.type(s, name) for s in schema["oneOf"]])
        if "enum" in schema and all(isinstance(v, str) for v in schema["enum"]):
            return "str"  # new words may come
        kind = schema.get("type")
        if isinstance(kind, list):
            return self.union([self.type({**schema, "type": k}, name) for k in kind])
        if kind == "array":
            return f"list[{self.type(schema.get('items') or {}, name)}]"
        if kind == "object":
            if schema.get("properties") and name not in PLAIN:
                return self.add(name, schema)
            extra = schema.get("additionalProperties")
            inner = self.type(extra, name) if isinstance(extra, dict) and extra else "Any"
            return f"dict[str, {inner}]"
        return TYPES.get(kind or "", "Any")

    def union(self, types: list[str]) -> str:
        out = list(dict.fromkeys(types))
        if "Any" in out:
            return "Any"
        return " | ".join(sorted(out, key=lambda t: t == "None"))

    def render(self, name: str, schema: dict[str, Any]) -> str:
        required = [k for k in schema["properties"] if k in schema.get("required", [])]
        optional = [k for k in schema["properties"] if k not in required]
        out, base = "", "TypedDict"
        if required and optional:
            base = f"_{name}"
            out += f"class {base}(TypedDict):\n{self.fields(name, schema, required)}\n\n"
        total = ", total=False" if optional else ""
        out += f"class {name}({base}{total}):\n"
        doc = " ".join((schema.get("description") or "").split())
        if doc:
            lines = textwrap.wrap(f'"""{doc}', 92, break_long_words=False)
            lines[-1] += '"""'
            if len(lines) > 1:
                lines[-1:] = [lines[-1][:-3], '"""']
            out += textwrap.indent("\n".join(lines), "    ") + "\n\n"
        return out + self.fields(name, schema, optional or required)

    def fields(self, name: str, schema: dict[str, Any], fields: list[str]) -> str:
        out = ""
        for field in fields:
            part = schema["properties"][field]
            inner = name + "".join(w.capitalize() for w in field.split("_"))
            doc = " ".join((part.get("description") or "").split())
            for line in textwrap.wrap(doc, 92, break_long_words=False):
                out += f"    # {line}\n"
            out += f"    {field}: {self.type(part, inner)}\n"
        return out


def models() -> str:
    with SPEC.open() as f:
        spec = yaml.load(f, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    found = Models(spec["components"]["schemas"])
    for name in SCHEMAS:
        found.add(name)
    head = (
        '"""What the API takes and returns, as dictionaries.\n\n'
        "Generated from openapi.yaml by tools/generate.py; do not edit. Fields that are not here "
        "may come\nwith a newer server.\n"
        '"""\n\nfrom __future__ import annotations\n\nfrom typing import Any, TypedDict\n\n\n'
    )
    return head + "\n\n".join(found.done[name] for name in sorted(found.done))


def sync(text: str) -> str:
    for pattern, to in SYNC:
        text = re.sub(pattern, to, text, flags=re.M)
    head, _, rest = text.partition("\n")
    return f"{head}\n\n# Generated from heardlog/_async by tools/generate.py; do not edit.\n{rest}"


def formatted(text: str, path: Path) -> str:
    ruff = ["ruff", "format", "--stdin-filename", str(path), "-"]
    text = subprocess.run(ruff, input=text, text=True, capture_output=True, check=True).stdout
    fix = ["ruff", "check", "--quiet", "--select", "I", "--fix", "--stdin-filename", str(path), "-"]
    return subprocess.run(fix, input=text, text=True, capture_output=True, check=True).stdout


def main() -> int:
    files = {PACKAGE / "models.py": models()}
    for source in sorted((PACKAGE / "_async").glob("*.py")):
        files[PACKAGE / "_sync" / source.name] = sync(source.read_text())
    stale = []
    for path, text in files.items():
        text = formatted(text, path)
        if not path.exists() or path.read_text() != text:
            stale.append(path)
            if "--check" not in sys.argv:
                path.write_text(text)
    for path in stale:
        print(path.relative_to(SDK), "was not up to date")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
