"""The format of workplans, fault by fault."""

import tomllib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordd.domain.work import Edge, Message, Plan, Problem, Task
from coordd.sources.fields import TEXT_CHARS, is_id
from coordd.sources.planfile import PlanFile, understand


def plan(text: str, name: str = "p.toml") -> PlanFile:
    return understand(name, tomllib.loads(text))


FULL = """
[workplan]
id = "parser"
title = "A new parser"
body = "Faster."
status = "active"
repo = "org/app"
depends_on = ["lexer", "plan:tools", "lexer/tokens"]

[[task]]
id = "grammar"
title = "Write the grammar"
body = "All of it."
status = "progress"
repo = "org/grammar"
priority = 0
depends_on = ["ast", "lexer/tokens", "plan:lexer", "ast"]
not_before = 2027-01-31T09:00:00.5+01:00
needs_human = true
intervention = "ask first"
blocked_reason = "no access"

[[task]]
id = "ast"

[[message]]
id = "m1"
subject = "[Action] look at the grammar"
body = "Please."
"""


def test_a_full_plan_is_understood() -> None:
    found = plan(FULL)

    assert found.problems == ()
    assert found.plan == Plan("parser", active=True, raw_status="active", repo="org/app")
    grammar, ast = found.tasks
    assert grammar == Task(
        id="parser/grammar",
        status="progress",
        raw_status="progress",
        digest=grammar.digest,
        repo="org/grammar",
        plan="parser",
        priority=0,
        not_before_ms=1_801_382_400_500,
        needs_human=True,
        intervention=True,
        blocked_reason=True,
        text=("A new parser", "Faster.", "Write the grammar", "All of it."),
    )
    assert (ast.id, ast.status, ast.repo, ast.priority, ast.taken) == ("parser/ast", "todo", "org/app", 2, False)
    assert found.edges == (
        Edge("parser", "lexer", "finish", "depends_on", from_plan=True, to_plan=True),
        Edge("parser", "tools", "finish", "depends_on", from_plan=True, to_plan=True),
        Edge("parser", "lexer/tokens", "finish", "depends_on", from_plan=True),
        Edge("parser/grammar", "parser/ast", "finish", "depends_on"),
        Edge("parser/grammar", "lexer/tokens", "finish", "depends_on"),
        Edge("parser/grammar", "lexer", "finish", "depends_on", to_plan=True),
    )
    assert found.messages == (
        Message(
            id="parser/m1",
            asks=True,
            digest=found.messages[0].digest,
            repo="org/app",
            text=("[Action] look at the grammar", "Please."),
        ),
    )


def test_a_plan_has_its_files_name_and_is_a_draft_until_it_says_otherwise() -> None:
    assert plan('[[task]]\nid = "a"', "tools.toml").plan == Plan("tools", active=False, raw_status="draft")
    assert plan("", "tools.toml").plan == Plan("tools", active=False, raw_status="draft")


@pytest.mark.parametrize(
    ("status", "active", "done"),
    [
        ("draft", False, False),
        ("ready", True, False),
        ("active", True, False),
        ("paused", False, False),
        ("done", False, True),
        ("archived", False, False),
    ],
)
def test_what_the_status_of_a_plan_means(status: str, active: bool, done: bool) -> None:
    assert plan(f'[workplan]\nstatus = "{status}"').plan == Plan("p", active=active, raw_status=status, done=done)


@pytest.mark.parametrize("status", ["todo", "progress", "wait", "done", "cancelled"])
def test_a_task_has_one_of_five_statuses(status: str) -> None:
    task = plan(f'[[task]]\nid = "a"\ntitle = "t"\nstatus = "{status}"').tasks[0]

    assert (task.status, task.raw_status) == (status, status)
    assert task.text == (() if status in ("done", "cancelled") else ("t",))


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("id = 3", "bad_id"),
        ('id = "a b"', "bad_id"),
        ('id = "a/b"', "bad_id"),
        ('id = "plan:a"', "bad_id"),
        ('id = "a\\u0007"', "bad_id"),
        (f'id = "{"x" * 199}"', "bad_id"),
        ('title = "no id"', "bad_id"),
    ],
)
@pytest.mark.parametrize("kind", ["task", "message"])
def test_an_item_without_a_fit_id_is_named_by_its_place(kind: str, line: str, code: str) -> None:
    found = plan(f'[[{kind}]]\nid = "good"\n[[{kind}]]\n{line}', "p.toml")

    assert found.problems == (Problem(f"p.toml {kind} 2", code),)
    assert [*(task.id for task in found.tasks), *(message.id for message in found.messages)] == ["p/good"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('status = "doing"', "bad_status"),
        ("status = 1", "bad_status"),
        ("title = 1", "bad_title"),
        ("body = []", "bad_body"),
        ("priority = 5", "bad_priority"),
        ("priority = -1", "bad_priority"),
        ("priority = true", "bad_priority"),
        ('priority = "high"', "bad_priority"),
        ('depends_on = "b"', "bad_depends_on"),
        ("depends_on = [1]", "bad_depends_on"),
        ('depends_on = [""]', "bad_depends_on"),
        ('depends_on = ["a b"]', "bad_depends_on"),
        ('depends_on = ["a/b/c"]', "bad_depends_on"),
        ('depends_on = ["plan:"]', "bad_depends_on"),
        ('depends_on = ["plan:a/b"]', "bad_depends_on"),
        ('depends_on = ["task:a"]', "bad_depends_on"),
        (f'depends_on = ["{"x" * 199}"]', "bad_depends_on"),
        ("not_before = 2027-01-31T09:00:00", "bad_not_before"),
        ("not_before = 2027-01-31", "bad_not_before"),
        ("not_before = 09:00:00", "bad_not_before"),
        ('not_before = "soon"', "bad_not_before"),
        ('needs_human = "yes"', "bad_needs_human"),
        ("intervention = true", "bad_intervention"),
        ("blocked_reason = 1", "bad_blocked_reason"),
        ('repo = ""', "bad_repo"),
        ('repo = "a b"', "bad_repo"),
        ('statsu = "done"', "unknown_key"),
        ("[task.more]\nx = 1", "unknown_key"),
    ],
)
def test_a_fault_leaves_out_its_task_alone(line: str, code: str) -> None:
    found = plan(f'[[task]]\nid = "good"\n[[task]]\nid = "bad"\n{line}')

    assert found.problems == (Problem("p/bad", code),)
    assert [task.id for task in found.tasks] == ["p/good"]
    assert found.edges == ()


def test_a_fault_leaves_out_its_message_alone() -> None:
    for line, code in (("read = 1", "bad_read"), ('to = "x"', "unknown_key"), ('repo = "a b"', "bad_repo")):
        found = plan(f'[[message]]\nid = "good"\n[[message]]\nid = "bad"\n{line}')
        assert found.problems == (Problem("p/bad", code),)
        assert [message.id for message in found.messages] == ["p/good"]


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        ('[workplan]\nstatus = "going"', Problem("p", "bad_status")),
        ("[workplan]\nowner = 1", Problem("p", "unknown_key")),
        ('[workplan]\nrepo = "a b"', Problem("p", "bad_repo")),
        ('[workplan]\ndepends_on = ["a/b/c"]', Problem("p", "bad_depends_on")),
        ('[workplan]\nid = "q"\ntitle = 1', Problem("q", "bad_title")),
        ("[[tasks]]\nx = 1", Problem("p", "unknown_key")),
        ("[[workplan]]", Problem("p", "bad_workplan")),
    ],
)
def test_a_fault_in_the_plan_leaves_out_all_of_it_by_name(frame: str, problem: Problem) -> None:
    found = plan(f'{frame}\n[[task]]\nid = "a"\n[[message]]\nid = "m"\n[[task]]\ntitle = "?"')

    assert (found.plan, found.tasks, found.edges, found.messages) == (None, (), (), ())
    assert found.problems == (
        problem,
        Problem(f"{problem.where}/a", "plan_broken"),
        Problem(f"{problem.where}/m", "plan_broken"),
    )


def test_items_that_are_no_tables_are_faults() -> None:
    assert plan("task = 1").problems == (Problem("p", "bad_task"),)
    assert plan("[message]\nid = 1").problems == (Problem("p", "bad_message"),)
    assert plan("task = [1]").problems == (Problem("p.toml task 1", "bad_id"),)


@pytest.mark.parametrize("name", ["a b.toml", "a:b.toml", "ä\u202e.toml", "\udcff.toml", ".toml"])
def test_a_file_whose_name_is_no_id_needs_one_of_its_own(name: str) -> None:
    found = plan('[[task]]\nid = "a"', name)
    assert [problem.code for problem in found.problems] == ["bad_id"]
    assert found.problems[0].where.isprintable()
    assert found.tasks == ()

    assert [task.id for task in plan('[workplan]\nid = "p"\n[[task]]\nid = "a"', name).tasks] == ["p/a"]


def test_two_tasks_of_one_id_are_both_left_out() -> None:
    found = plan('[[task]]\nid = "a"\n[[task]]\nid = "b"\n[[task]]\nid = "a"\nstatus = "done"\n[[message]]\nid = "a"')

    assert found.problems == (Problem("p/a", "duplicate_id"),)
    assert [task.id for task in found.tasks] == ["p/b"]
    assert [message.id for message in found.messages] == ["p/a"]


@pytest.mark.parametrize(
    ("plan_status", "lines", "asks"),
    [
        ("active", 'subject = "[action] look"', True),
        ("paused", 'subject = " [ACTION] look"', True),
        ("done", 'subject = "[action] look"', True),
        ("draft", 'subject = "[action] look"', False),
        ("archived", 'subject = "[action] look"', False),
        ("active", 'subject = "[action] look"\nread = true', False),
        ("active", 'subject = "[action] look"\narchived = true', False),
        ("active", 'subject = "look [action]"', False),
        ("active", 'body = "[action]"', False),
    ],
)
def test_which_messages_ask(plan_status: str, lines: str, asks: bool) -> None:
    found = plan(f'[workplan]\nstatus = "{plan_status}"\n[[message]]\nid = "m"\n{lines}')

    assert [message.asks for message in found.messages] == [asks]


def test_the_digest_is_over_what_makes_it_this_work() -> None:
    def digest(lines: str, frame: str = "") -> str:
        return plan(f'{frame}\n[[task]]\nid = "a"\n{lines}').tasks[0].digest

    base = digest('title = "t"\nbody = "b"\ndepends_on = ["x", "y"]')
    assert digest('title = "t"\nbody = "b"\ndepends_on = ["y", "x", "x"]\nstatus = "progress"\npriority = 4') == base
    assert digest('title = "t"\nbody = "b"\ndepends_on = ["x", "y"]', '[workplan]\nstatus = "ready"') == base
    assert digest('title = "u"\nbody = "b"\ndepends_on = ["x", "y"]') != base
    assert digest('title = "t"\nbody = "c"\ndepends_on = ["x", "y"]') != base
    assert digest('title = "t"\nbody = "b"\ndepends_on = ["x"]') != base


def test_text_that_cannot_be_scanned_whole_leaves_the_item_out_unless_the_work_is_over() -> None:
    long = "x" * (TEXT_CHARS + 1)
    assert plan(f'[[task]]\nid = "a"\nbody = "{long}"').problems == (Problem("p/a", "text_too_long"),)
    assert plan(f'[[task]]\nid = "a"\nbody = "{long}"\nstatus = "done"').problems == ()
    message = f'[workplan]\nstatus = "active"\n[[message]]\nid = "a"\nsubject = "[action]"\nbody = "{long}"'
    assert plan(message).problems == (Problem("p/a", "text_too_long"),)


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.datetimes() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)
_items = st.dictionaries(
    st.sampled_from(["id", "title", "status", "depends_on", "repo", "not_before", "subject", "read", "odd"]),
    _values | st.sampled_from(["a", "b", "todo", ["a", "plan:b", "b/a"]]),
)


@given(
    st.text(max_size=8),
    st.fixed_dictionaries({}, optional={"workplan": _items | _values, "task": st.lists(_items), "message": _values}),
)
def test_whatever_a_file_holds_it_is_understood_or_named(name: str, content: dict[str, Any]) -> None:
    found = understand(name, content)

    ids = [task.id for task in found.tasks]
    assert len(ids) == len(set(ids))
    assert all(map(is_id, ids))
    assert all(is_id(edge.from_id) and is_id(edge.to_id) for edge in found.edges)
    assert all(problem.where.isprintable() for problem in found.problems)
    msgspec.json.encode(found)
