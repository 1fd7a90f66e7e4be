"""Rows as a beads export writes them, and what is read from them."""

import json
from typing import Any

from coordd.config.settings import Source
from coordd.domain.work import Snapshot
from coordd.sources.beads import Rows


def a_row(id: str = "p-1", **fields: Any) -> dict[str, Any]:
    """A row as an export writes it; a field set to `...` is left out."""
    row = {
        "id": id,
        "title": "Tidy the parser",
        "description": "Split the long function.",
        "status": "open",
        "priority": 1,
        "issue_type": "task",
        "owner": "someone",
        "created_at": "2026-01-21T11:28:03.388322-05:00",
        "created_by": "someone",
        "updated_at": "2026-01-21T11:44:06.630318123Z",
        "dependency_count": 0,
        "comments": [{"id": 1, "text": "…"}],
    } | fields
    return {key: value for key, value in row.items() if value is not ...}


def needs(target: Any, type: Any = "blocks", **fields: Any) -> dict[str, Any]:
    return {"issue_id": "p-1", "depends_on_id": target, "type": type, "created_at": "2026-01-21T11:28:03Z"} | fields


def lines(*rows: Any) -> bytes:
    return b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows)


def read(*rows: Any, **options: Any) -> Snapshot:
    return Rows(Source(name="b", kind="beads", path="issues.jsonl", **options)).read(lines(*rows))
