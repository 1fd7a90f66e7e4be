"""docs/sources.md and the code say the same."""

import re
import tomllib
from pathlib import Path

import msgspec

from coordd.policy.sensitive import PATTERNS
from coordd.sources.base import CAUSES
from coordd.sources.beads import EDGES, HUMAN_LABELS, INFORMATIONAL, STATUSES, Row
from coordd.sources.planfile import MessageItem, PlanItem, TaskItem, understand

TEXT = (Path(__file__).parents[2] / "docs" / "sources.md").read_text(encoding="utf-8")
# Fields whose value may be anything: they are looked at, and never a fault. Metadata in a string can be.
LENIENT = {"id", "_type", "priority", "external_ref", "close_reason", "await_type"}


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def codes(text: str) -> set[str]:
    """The words in code quotes in the first column of the tables."""
    return {code for row in re.findall(r"^\|([^|]*)\|", text, re.MULTILINE) for code in re.findall(r"`([^`]*)`", row)}


def test_every_cause_is_listed_and_no_other() -> None:
    assert codes(section("When a source cannot be read")) == CAUSES.keys()


def test_every_problem_is_listed_and_no_other() -> None:
    of_plans = {
        field.encode_name for item in (PlanItem, TaskItem, MessageItem) for field in msgspec.structs.fields(item)
    }
    of_beads = {field.encode_name for field in msgspec.structs.fields(Row)} - LENIENT
    fields = {f"bad_{name}" for name in of_plans | of_beads | {"line", "workplan", "task", "message"}}

    assert codes(section("When an item cannot be read")) == fields | {
        "duplicate_id",
        "unknown_key",
        "plan_broken",
        "text_too_long",
    }


def test_every_class_of_sensitive_text_is_listed() -> None:
    assert codes(section("Sensitive text")) == {f"sensitive_text:{name}" for name in PATTERNS}


def test_every_status_label_and_dependency_of_beads_is_listed() -> None:
    words = set(re.findall(r"[\w-]+", section("Beads")))

    assert {*STATUSES, *EDGES, *INFORMATIONAL, *HUMAN_LABELS} <= words


def test_the_example_of_a_plan_is_one_without_a_fault_and_shows_every_key() -> None:
    example = next(block for block in re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL) if "[workplan]" in block)
    content = tomllib.loads(example)
    found = understand("parser.toml", content)

    assert found.problems == ()
    assert [task.id for task in found.tasks] == ["parser/grammar", "parser/ast"]
    assert found.messages[0].asks
    assert content["workplan"].keys() == {field.name for field in msgspec.structs.fields(PlanItem)}
    assert {key for task in content["task"] for key in task} == {f.name for f in msgspec.structs.fields(TaskItem)}
    assert content["message"][0].keys() == {field.name for field in msgspec.structs.fields(MessageItem)}
