"""Every oddity of the rows of a beads export, one by one. They are made here; their form is that of real ones."""

from typing import Any

import pytest
from beads_rows import a_row, needs, read

from coordd.domain.work import Edge, Problem, Task
from coordd.sources.beads import INFORMATIONAL
from coordd.sources.fields import TEXT_CHARS


def task(**fields: Any) -> Task:
    snapshot = read(a_row(**fields))
    assert snapshot.problems == ()
    return snapshot.tasks[0]


def test_an_open_row_is_a_task_to_do() -> None:
    assert task(design="d", acceptance_criteria="a") == Task(
        id="p-1",
        status="todo",
        raw_status="open",
        digest=task(design="d", acceptance_criteria="a").digest,
        kind="task",
        priority=1,
        text=("Tidy the parser", "Split the long function.", "d", "a"),
    )


@pytest.mark.parametrize(
    ("word", "status", "raw"),
    [
        ("open", "todo", "open"),
        ("in_progress", "progress", "in_progress"),
        ("hooked", "progress", "hooked"),
        ("closed", "done", "closed"),
        ("tombstone", "cancelled", "tombstone"),
        ("blocked", "wait", "blocked"),
        ("deferred", "wait", "deferred"),
        ("pinned", "wait", "pinned"),
        ("in_review", "wait", "in_review"),
        (" Open ", "todo", "open"),
        ("waiting for someone\x1b[31m", "wait", "other"),
        ("", "wait", "other"),
        ("x" * 41, "wait", "other"),
    ],
)
def test_a_status_is_one_of_five_and_its_own_word_is_a_short_token(word: str, status: str, raw: str) -> None:
    found = task(status=word)

    assert (found.status, found.raw_status) == (status, raw)


def test_what_is_in_progress_is_taken_unless_it_is_to_be_resumed() -> None:
    for word in ("in_progress", "hooked"):
        assert read(a_row(status=word)).tasks[0].taken
        assert not read(a_row(status=word), resume_in_progress=True).tasks[0].taken
    assert not task().taken


@pytest.mark.parametrize("mark", ["pinned", "is_template", "ephemeral"])
def test_a_marker_holds_what_is_not_over(mark: str) -> None:
    held = task(**{mark: True})

    assert (held.status, held.raw_status) == ("wait", mark.removeprefix("is_"))
    assert task(**{mark: True, "status": "in_progress"}).status == "wait"
    assert task(**{mark: True, "status": "closed"}).status == "done"
    assert task(**{mark: False}).status == "todo"
    assert not task(**{mark: True, "status": "in_progress"}).taken


@pytest.mark.parametrize(
    ("reason", "failed"),
    [
        ("Won't fix", True),
        ("won’t fix", True),
        ("wontfix", True),
        ("tests FAILED twice", True),
        ("Cancelled by owner", True),
        ("canceled", True),
        ("rejected", True),
        ("abandoned", True),
        ("blocked", True),
        ("error", True),
        ("timeout", True),
        ("aborted", True),
        ("unblocked the pipeline", False),
        ("no errors found", False),
        ("done", False),
        ("", False),
        (None, False),
        (7, False),
    ],
)
def test_a_reason_to_close_tells_failure_by_whole_words(reason: Any, failed: bool) -> None:
    assert task(status="closed", close_reason=reason).failed is failed
    assert not task(status="open", close_reason="failed").failed


def test_kinds_that_no_worker_is_woken_for_are_no_work() -> None:
    assert task(issue_type="epic").is_work is False
    assert task(issue_type="epic").kind == "epic"
    assert task(issue_type="bug").is_work is True
    assert task(issue_type=...).is_work is True
    assert task(issue_type="Weird Kind").kind == "other"
    assert read(a_row(issue_type="spike"), types=("spike",)).tasks[0].is_work is True


def test_rows_that_are_no_issues_are_passed_over() -> None:
    memory = {"_type": "memory", "key": "voice", "value": "…"}

    snapshot = read(memory, a_row(_type="issue"), a_row("p-2", _type=None), {"_type": 4, "id": 3, "title": 5})

    assert [task.id for task in snapshot.tasks] == ["p-1", "p-2"]
    assert snapshot.problems == ()


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("2026-06-08T17:29:37Z", 1_780_939_777_000),
        ("2026-06-08T17:29:37.5Z", 1_780_939_777_500),
        ("2026-06-08T17:29:37.123456789Z", 1_780_939_777_123),
        ("2026-06-08T12:29:37.99614-05:00", 1_780_939_777_996),
        ("0001-01-01T00:00:00+14:00", -62_135_647_200_000),
        (None, None),
    ],
)
def test_the_time_before_which_nothing_happens(written: str | None, ms: int | None) -> None:
    assert task(defer_until=written).not_before_ms == ms


@pytest.mark.parametrize("written", ["2026-06-08T17:29:37", "tomorrow", "2026-13-01T00:00:00Z", 17, ""])
def test_a_time_that_names_no_instant_leaves_the_row_out(written: Any) -> None:
    assert read(a_row(defer_until=written)).problems == (Problem("p-1", "bad_defer_until"),)


@pytest.mark.parametrize(
    ("written", "priority"), [(0, 0), (4, 4), (9, 4), (-3, 0), (..., 2), (None, 2), ("high", 2), (True, 2), (1.5, 2)]
)
def test_a_priority_only_orders_and_never_leaves_a_row_out(written: Any, priority: int) -> None:
    assert task(priority=written).priority == priority


@pytest.mark.parametrize(
    "fields",
    [
        {"labels": ["human"]},
        {"labels": ["ui", " Needs-Human "]},
        {"labels": ["needs_human"]},
        {"labels": ["human-only"]},
        {"labels": ["NO-AGENT"]},
        {"labels": ["no-agents"]},
        {"await_type": "Human"},
        {"metadata": {"needs_human": True}},
        {"metadata": '{"needs_human": true}'},
        {"metadata": {"needs_human": "yes"}},
    ],
)
def test_what_asks_for_a_human(fields: dict[str, Any]) -> None:
    assert task(**fields).needs_human


@pytest.mark.parametrize(
    "fields",
    [
        {"labels": ["humane", "ui"]},
        {"labels": None},
        {"await_type": "timer"},
        {"await_type": 3},
        {"metadata": {"needs_human": False}},
        {"metadata": {"needs_human": "false"}},
        {"metadata": "needs_human"},
        {"metadata": "{}"},
        {"metadata": "lo"},
        {"metadata": "[1, 2]"},
        {"metadata": ["needs_human"]},
        {"metadata": 7},
        {"metadata": None},
    ],
)
def test_what_asks_for_nobody(fields: dict[str, Any]) -> None:
    assert not task(**fields).needs_human


def test_notes_in_the_metadata_stop() -> None:
    assert task(metadata={"intervention_note": "ask first"}).intervention
    assert task(metadata={"intervention_note": ["ask first"]}).intervention
    assert task(metadata='{"blocking_reason": "no access"}').blocked_reason
    assert task(metadata={"blocked_reason": "no access"}).blocked_reason
    blank = task(metadata={"intervention_note": " ", "blocking_reason": "", "blocked_reason": None})
    assert (blank.intervention, blank.blocked_reason) == (False, False)


def test_metadata_cut_in_the_middle_leaves_the_row_out() -> None:
    assert read(a_row(metadata='{"needs_human": tr')).problems == (Problem("p-1", "bad_metadata"),)


def test_dependencies_that_count() -> None:
    snapshot = read(
        a_row(
            dependencies=[
                needs("p-2"),
                needs("p-2"),
                needs("p-3", "parent-child"),
                needs("p-4", "conditional-blocks"),
                needs("p-5", "waits-for"),
                needs("p-6", "waits-for", metadata='{"gate":"any-children"}'),
                needs("p-7", "waits-for", metadata={"gate": "any-children"}),
                needs("p-8", "waits-for", metadata="lo"),
                needs("external:other:thing", "blocks"),
                needs("p-9", "blocks-on"),
                needs("p-9", "Blocked By\x07"),
                needs("p-9", None),
            ]
        )
    )

    assert snapshot.problems == ()
    assert snapshot.edges == (
        Edge("p-1", "p-2", "finish", "blocks"),
        Edge("p-1", "p-3", "parent", "parent-child"),
        Edge("p-1", "p-4", "failure", "conditional-blocks"),
        Edge("p-1", "p-5", "children", "waits-for"),
        Edge("p-1", "p-6", "any_child", "waits-for"),
        Edge("p-1", "p-7", "any_child", "waits-for"),
        Edge("p-1", "p-8", "children", "waits-for"),
        Edge("p-1", "external:other:thing", "finish", "blocks"),
        Edge("p-1", "p-9", "unknown", "blocks-on"),
        Edge("p-1", "p-9", "unknown", "other"),
    )


@pytest.mark.parametrize("type", sorted(INFORMATIONAL))
def test_informational_dependencies_hold_nothing_back(type: str) -> None:
    snapshot = read(a_row(dependencies=[needs("p-2", type)]))

    assert snapshot.edges == ()
    assert len(snapshot.tasks) == 1


@pytest.mark.parametrize("target", ["", "a b", "a\n", "x" * 201, None, 3])
def test_a_dependency_on_what_is_no_id_leaves_the_row_out(target: Any) -> None:
    snapshot = read(a_row(dependencies=[needs("p-2"), needs(target)]))

    assert snapshot.tasks == ()
    assert snapshot.problems == (Problem("p-1", "bad_dependencies"),)


@pytest.mark.parametrize(
    ("fields", "asks"),
    [
        ({"title": "[action] look at this"}, True),
        ({"title": "  [ACTION] look"}, True),
        ({"title": "re: [action] look"}, False),
        ({"title": "[action] look", "status": "closed"}, False),
        ({"title": "[action] look", "status": "in_progress"}, False),
        ({"title": "[action] look", "pinned": True}, False),
        ({"title": "[action] look", "labels": ["human"]}, False),
        ({"title": ...}, False),
    ],
)
def test_a_message_asks_when_it_is_open_and_its_subject_says_so(fields: dict[str, Any], asks: bool) -> None:
    snapshot = read(a_row(issue_type="message", **fields), types=("task", "message"))

    assert snapshot.tasks == ()
    assert [message.asks for message in snapshot.messages] == [asks]


def test_the_digest_is_over_what_makes_it_this_work() -> None:
    base = task(dependencies=[needs("p-2"), needs("p-3", "related")], labels=["a", "b"], external_ref="gh-9")
    same = task(
        dependencies=[needs("p-3", "related", created_by="x"), needs("p-2", created_at="…")],
        labels=["b", "a"],
        external_ref="gh-9",
        status="in_progress",
        priority=4,
        notes="…",
        assignee="x",
        owner="y",
        updated_at="2027-01-01T00:00:00Z",
        comments=[],
        dependency_count=9,
    )

    assert same.digest == base.digest
    for change in (
        {"title": "…"},
        {"description": "…"},
        {"design": "…"},
        {"acceptance_criteria": "…"},
        {"issue_type": "bug"},
        {"labels": ["a"]},
        {"external_ref": "gh-8"},
        {"dependencies": [needs("p-2")]},
        {"dependencies": [needs("p-2", "waits-for"), needs("p-3", "related")]},
    ):
        fields = {"dependencies": [needs("p-2"), needs("p-3", "related")], "labels": ["a", "b"], "external_ref": "gh-9"}
        assert task(**(fields | change)).digest != base.digest


def test_text_that_cannot_be_scanned_whole_leaves_the_row_out_unless_the_work_is_over() -> None:
    assert read(a_row(description="x" * TEXT_CHARS)).problems == (Problem("p-1", "text_too_long"),)
    assert task(title=..., description="x" * TEXT_CHARS).text == ("x" * TEXT_CHARS,)
    assert task(description="x" * TEXT_CHARS, status="closed").text == ()
    message = a_row(title="[action] …", description="x" * TEXT_CHARS, issue_type="message")
    assert read(message).problems == (Problem("p-1", "text_too_long"),)
