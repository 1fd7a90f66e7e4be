"""What stops a piece of work until a human has looked: its own flags, and words that name a sensitive act.

The words only ever add a stop; no text permits anything. They catch the careless, not the determined, and know English
only; a worker rechecks its authority whatever was found here. A stop too many costs a look, so patterns are generous,
but they ask for an act *and* its object: ordinary work ("add a delete button to the table") is to pass.

The patterns are in sensitive.py. A text is matched in one pass over its words, and what is done at a word is bounded
by the patterns alone, so time is linear in the length of the text, whoever wrote it.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import Final, NamedTuple

from coordd.domain.work import Message, Task
from coordd.policy.sensitive import PATTERNS, WORDS

FILLERS_MAX: Final = 4  # words of WORDS["filler"] that a step marked `~` passes over
OTHERS_MAX: Final = 3  # words of any kind that a step marked `*` passes over
END: Final = "."  # of a sentence, as a word: no pattern goes across it

_WORD: Final = re.compile(r"[^\W_]+|[.!?](?=\s)")
_DRAG_AND_DROP: Final = re.compile(r"\bdrag(?:ging)?[ -](?:and|n|&)[ -]drop")
# Format characters, fillers and variation selectors: nothing is seen of them, and a word can be cut by them.
_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_APOSTROPHES: Final = re.compile("['’]")


def stops(task: Task) -> tuple[str, ...]:
    """The codes of what stops a task: needs_human, intervention, blocked_reason, sensitive_text:CLASS; else empty."""
    flags = (
        ("needs_human", task.needs_human),
        ("intervention", task.intervention),
        ("blocked_reason", task.blocked_reason),
    )
    return tuple(code for code, is_set in flags if is_set) + _sensitive(task.text)


def message_stops(message: Message) -> tuple[str, ...]:
    """The codes of what stops the inspection that a message asks for."""
    return _sensitive(message.text)


def _sensitive(parts: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"sensitive_text:{name}" for name in classes_in(words_of("\n".join(parts))))


def words_of(text: str) -> list[str]:
    """The words of a text without regard to case, form, joints or what cannot be seen, and the ends of sentences."""
    if not text.isascii():
        text = _INVISIBLE.sub("", unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)))
    text = _APOSTROPHES.sub("", text.casefold())
    return [word if word[0] not in ".!?" else END for word in _WORD.findall(_DRAG_AND_DROP.sub("dragdrop", text))]


def classes_in(words: Sequence[str]) -> tuple[str, ...]:
    """The classes of sensitive acts that the words name, in the order of the patterns."""
    found = set()
    for at, word in enumerate(words):
        for name, pattern in _BY_FIRST_WORD.get(word, ()):
            if name not in found and _matches(pattern, words, at):
                found.add(name)
    return tuple(name for name in PATTERNS if name in found)


class _Step(NamedTuple):
    words: frozenset[str]
    passed: frozenset[str] | None  # the words it passes over; None for any but the end of a sentence
    most: int  # of them


class _Pattern(NamedTuple):
    steps: tuple[_Step, ...]
    is_command: bool


def _matches(pattern: _Pattern, words: Sequence[str], at: int, step: int = 1) -> bool:
    """Whether the pattern goes on from the word `at`, which fits the step before `step`."""
    at += 1
    if step == len(pattern.steps):
        return pattern.is_command or at >= len(words) or words[at] not in _THINGS
    wanted, passed, most = pattern.steps[step]
    for here in range(at, min(at + most + 1, len(words))):
        word = words[here]
        if word in wanted and _matches(pattern, words, here, step + 1):
            return True
        if word == END or (passed is not None and word not in passed):
            return False
    return False


def _compiled(source: str) -> _Pattern:
    steps = []
    for step in source.removesuffix("!").split():
        mark, choices = (step[0], step[1:]) if step[0] in "~*" else ("", step)
        words = frozenset(word for choice in choices.split("|") for word in _choice(choice))
        steps.append(_Step(words, None if mark == "*" else _FILLERS, {"": 0, "~": FILLERS_MAX, "*": OTHERS_MAX}[mark]))
    return _Pattern(tuple(steps), source.endswith("!"))


def _choice(choice: str) -> list[str]:
    return WORDS[choice[1:]].split() if choice.startswith("@") else [choice]


def _by_first_word() -> dict[str, tuple[tuple[str, _Pattern], ...]]:
    table: dict[str, tuple[tuple[str, _Pattern], ...]] = {}
    for name, sources in PATTERNS.items():
        for source in sources:
            pattern = _compiled(source)
            for word in pattern.steps[0].words:
                table[word] = (*table.get(word, ()), (name, pattern))
    return table


_FILLERS: Final = frozenset(WORDS["filler"].split())
_THINGS: Final = frozenset(WORDS["thing"].split())
_BY_FIRST_WORD: Final = _by_first_word()
