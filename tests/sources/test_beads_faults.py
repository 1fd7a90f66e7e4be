"""Rows that cannot be used: each is named, and costs no other."""

import json
from typing import Any

import msgspec
import pytest
from beads_rows import a_row, needs, read
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordd.config.settings import Source
from coordd.domain.errors import SourceFailed
from coordd.domain.work import Edge, Problem
from coordd.sources.beads import Rows
from coordd.sources.fields import ID_CHARS, is_id


def test_an_id_may_have_200_characters_of_any_script() -> None:
    assert [task.id for task in read(a_row("ü" * ID_CHARS)).tasks] == ["ü" * ID_CHARS]
    assert ID_CHARS == 200


def test_a_row_that_is_left_out_keeps_its_dependencies_so_that_its_parent_waits_for_it() -> None:
    snapshot = read(a_row(title=["?"], dependencies=[needs("p-2", "parent-child")]))

    assert snapshot.problems == (Problem("p-1", "bad_title"),)
    assert snapshot.edges == (Edge("p-1", "p-2", "parent", "parent-child"),)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("title", 3),
        ("description", {}),
        ("design", []),
        ("acceptance_criteria", False),
        ("status", 1),
        ("status", None),
        ("status", ...),
        ("issue_type", 5),
        ("labels", "human"),
        ("labels", [1]),
        ("dependencies", "p-2"),
        ("dependencies", ["p-2"]),
        ("dependencies", [{"type": "blocks"}]),
        ("dependencies", [{"depends_on_id": "p-2", "type": 3}]),
        ("pinned", "yes"),
        ("is_template", 1),
        ("ephemeral", "no"),
    ],
)
def test_a_field_of_the_wrong_type_leaves_out_its_row_alone(field: str, value: Any) -> None:
    snapshot = read(a_row(**{field: value}), a_row("p-2"))

    assert snapshot.problems == (Problem("p-1", f"bad_{field}"),)
    assert [task.id for task in snapshot.tasks] == ["p-2"]


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"not json",
        b"[]",
        b"3",
        b"null",
        b'"text"',
        b'{"title": "no id"}',
        b'{"id": 7}',
        b'{"id": null}',
        b'{"id": ""}',
        b'{"id": "a b"}',
        b'{"id": "a\\u0007"}',
        b'{"id": "a\\u202e"}',
        b'{"id": "a\\ud800"}',
        b'{"id": "' + b"x" * 201 + b'"}',
        b'{"id": ' + b"9" * 5000 + b"}",
        b'{"id": "a", "title": "\xff\xfe"}',
        b'{"id": "a", "comments": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"<<<<<<< HEAD",
        b"=======",
        b'{"id": "a"} {"id": "b"}',
        b"\0\0\0\0\0\0",
    ],
)
def test_a_bad_line_is_named_by_its_number_and_the_others_stay(line: bytes) -> None:
    snapshot = read(a_row("p-1"), b"", line, a_row("p-2"))

    assert snapshot.problems == (Problem("line 3", "bad_line"),)
    assert [task.id for task in snapshot.tasks] == ["p-1", "p-2"]


def test_an_id_seen_twice_is_dispatched_in_neither_form() -> None:
    message = a_row("p-4", issue_type="message")
    snapshot = read(
        a_row("p-1"),
        a_row("p-2"),
        a_row("p-1", status="closed", dependencies=[needs("p-2")]),
        a_row("p-3"),
        a_row("p-3", title=1),
        message,
        message,
    )

    assert [task.id for task in snapshot.tasks] == ["p-2"]
    assert snapshot.messages == ()
    assert set(snapshot.problems) == {
        Problem("p-1", "duplicate_id"),
        Problem("p-3", "duplicate_id"),
        Problem("p-3", "bad_title"),
        Problem("p-4", "duplicate_id"),
    }


def test_too_many_problems_fail_the_source() -> None:
    with pytest.raises(SourceFailed) as caught:
        read(*[b"?"] * 1001)

    assert caught.value.detail["cause"] == "too_many_problems"
    assert len(read(*[b"?"] * 1000).problems) == 1000


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
_odd_rows = st.lists(
    st.dictionaries(
        st.sampled_from(["id", "_type", *a_row(), "labels", "dependencies", "metadata", "pinned", "defer_until"]),
        _json | st.sampled_from(["a", "b", "open", "closed", "message", "[action]", [{"depends_on_id": "a"}]]),
    )
    | st.binary(max_size=20).filter(lambda line: b"\n" not in line),
    max_size=6,
)


@given(_odd_rows)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_whatever_the_rows_hold_a_snapshot_comes_out_with_ids_of_its_own(rows: list[Any]) -> None:
    snapshot = Rows(Source(name="b", kind="beads", path="x")).read(
        b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows)
    )

    ids = [task.id for task in snapshot.tasks]
    assert len(ids) == len(set(ids))
    named = [*ids, *(message.id for message in snapshot.messages)]
    assert all(map(is_id, [*named, *(end for edge in snapshot.edges for end in (edge.from_id, edge.to_id))]))
    msgspec.json.encode(snapshot)


@given(st.binary(max_size=200))
def test_whatever_the_bytes_are_nothing_but_a_snapshot_comes_out(data: bytes) -> None:
    Rows(Source(name="b", kind="beads", path="x")).read(data)
