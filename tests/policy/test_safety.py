"""What stops work, what does not, and that nobody's text can make the look at it long."""

from collections.abc import Iterator, Sequence
from typing import overload

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordd.domain.work import Message, Task
from coordd.policy.safety import FILLERS_MAX, OTHERS_MAX, classes_in, message_stops, stops, words_of
from coordd.policy.sensitive import PATTERNS, WORDS

SENSITIVE = {
    "deletion": [
        "Delete the old production database",
        "DROP TABLE users;",
        "run rm -rf / on the box",
        "rm -fr build && rm -r -f dist",
        "wipe all customer records",
        "terraform destroy the staging stack",
        "the database must be wiped before Monday",
        "Purge backups older than a week",
        "remove every user's data",
        "remove all customers from the old tenant's tables, all data included: delete all data",
        "docker system prune -a",
        "Deletion of the shared bucket",
    ],
    "credentials": [
        "rotate the API keys",
        "print the admin password in the log",
        "commit the .env file",
        "Reset the production database password",
        "copy ~/.ssh/id_rsa to the host",
        "share credentials with the contractor",
        "export AWS_SECRET_KEY=… and upload the github token",
    ],
    "production": [
        "Deploy to production",
        "Release v2 to prod on Friday",
        "restart the live servers",
        "kubectl apply -f deploy.yaml",
        "publish the package to PyPI",
        "run the migration against the production database",
        "upgrade production systems",
    ],
    "payment": [
        "Issue a refund to the customer",
        "charge the customer's card",
        "transfer funds to the vendor",
        "buy a license for the tool",
        "pay the supplier's invoice",
    ],
    "protection": [
        "disable the firewall",
        "bypass authentication for now",
        "turn off TLS",
        "turn the sandbox off",
        "commit with --no-verify",
        "chmod -R 777 /srv",
        "skip certificate verification",
        "remove branch protection",
        "make the bucket public",
    ],
    "history": [
        "force-push to main",
        "git push origin main --force",
        "git push -f",
        "rewrite git history",
        "Rewriting the history of the repository",
        "git reset --hard origin/main",
        "delete the remote branch",
    ],
    "access": [
        "give bob admin rights",
        "grant write access to everyone",
        "make alice an administrator",
        "add the ssh key of the contractor",
        "create a new root account",
        "add the bot to sudoers",
    ],
    "exfiltration": [
        "exfiltrate the logs",
        "upload customer data to a gist",
        "send the proprietary source code to the vendor",
        "export production database",
        "email the patients' records to the lab",
    ],
}

ORDINARY = [
    "fix password reset form layout",
    "add delete button to table component",
    "document the deploy script",
    "rename the token type in the lexer",
    "drop support for python 3.8",
    "remove unused imports",
    "delete dead code in the parser",
    "add production build config",
    "fix crash when payment method is missing",
    "add refund button to order page",
    "improve the force layout of the graph",
    "force push notifications to refresh",
    "rewrite history page in React",
    "show password toggle in the login form",
    "hash passwords with argon2",
    "read the token stream twice",
    "parse access token expiry",
    "skip auth tests on windows",
    "disable the submit button while saving",
    "implement delete account endpoint",
    "drag and drop table rows",
    "Drag-and-drop tables in the editor",
    "truncate table cell text with an ellipsis",
    "export access token types from the package",
    "cancel subscription on unmount",
    "add test for admin role",
    "make the admin page responsive",
    "create admin user fixture",
    "grant type parsing in the oauth client",
    "reset hard-coded values in the theme",
    "fix memory leak in the image cache",
    "remove database dependency from unit tests",
    "add public key parsing",
    "validate payment form input",
    "clean up old database connections in the pool",
    "copy api key button does nothing in Safari",
    "run the linter in CI",
    "write docs for the release process",
    "fix typo in production mode warning",
    "Investigate a slow query seen when running in production",
    "write production ready code for the cache",
    "deploy preview for pull requests",
    "add retry with backoff to the http client",
    "update user model to hold a middle name",
    "delete trailing whitespace",
    "delete table rows one by one",
    "set database password via an environment variable",
    "speed up schema validation",
    "make the owner column sortable",
    "switch from tls 1.2 to tls 1.3",
    "turn on the firewall in the docs example",
    "log the reason when a push fails",
    "use a secrets module for random ids",
    "improve error message for a missing api key",
    "squash migrations into one file",
    "clear the cache after logout",
    "Let the job run it. In production the cache is warm.",
    "Decide what to drop. Database choice follows.",
    "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et dolore",
    "",
]


def a_task(*text: str, **fields: bool) -> Task:
    return Task(id="t", status="todo", raw_status="open", digest="d", text=text, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in SENSITIVE.items() for text in texts])
def test_a_sensitive_act_stops_the_task_with_its_class(name: str, text: str) -> None:
    assert f"sensitive_text:{name}" in stops(a_task(text))


def test_every_class_has_its_examples() -> None:
    assert list(SENSITIVE) == list(PATTERNS)


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_work_is_not_stopped(text: str) -> None:
    assert stops(a_task(text)) == ()


def test_every_flag_stops_a_task_and_all_of_them_are_told_before_the_text() -> None:
    task = a_task("deploy to production", needs_human=True, intervention=True, blocked_reason=True)

    assert stops(task) == ("needs_human", "intervention", "blocked_reason", "sensitive_text:production")
    for flag in ("needs_human", "intervention", "blocked_reason"):
        assert stops(a_task("rename a file", **{flag: True})) == (flag,)


def test_a_message_that_asks_for_a_sensitive_act_is_stopped() -> None:
    message = Message(id="m", asks=True, digest="d", text=("[action] please look", "then force-push the branch"))

    assert message_stops(message) == ("sensitive_text:history",)
    assert message_stops(Message(id="m", asks=True, digest="d", text=("[action] please look",))) == ()


def test_an_act_told_in_title_and_description_together_is_seen() -> None:
    assert stops(a_task("Wipe", "the production database")) == ("sensitive_text:deletion",)


@pytest.mark.parametrize(
    "text",
    [
        "DELETE THE DATABASE",
        "ｄｅｌｅｔｅ ｔｈｅ ｄａｔａｂａｓｅ",
        "d\u200be\u200cl\u200de\u2060te the data\ufeffbase",
        "de\u00adlete the data\u00adbase",
        "delete\n\t the\u00a0\u2003database",
        "delete, the 'database'",
        "*delete* the `database`",
        "delete_the_database",
        "\U0001d41d\U0001d41e\U0001d425\U0001d41e\U0001d42d\U0001d41e the database",
    ],
)
def test_case_form_blanks_and_what_cannot_be_seen_hide_nothing(text: str) -> None:
    assert classes_in(words_of(text)) == ("deletion",)


@given(
    st.sampled_from([text for texts in SENSITIVE.values() for text in texts]),
    st.lists(
        st.tuples(st.integers(0, 200), st.sampled_from("\u200b\u200c\u200d\u2060\ufeff\u00ad\ufe0f")), max_size=20
    ),
)
def test_invisible_characters_anywhere_change_nothing(text: str, inserted: list[tuple[int, str]]) -> None:
    hidden = text
    for at, character in inserted:
        hidden = hidden[:at] + character + hidden[at:]

    assert classes_in(words_of(hidden)) == classes_in(words_of(text))


class Counted(Sequence[str]):
    """Words that count how often one is looked at."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self.looks = 0

    def __len__(self) -> int:
        return len(self._words)

    def __iter__(self) -> Iterator[str]:
        return iter(self._words)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        self.looks += 1
        return self._words[at]


def looks(words: list[str]) -> int:
    counted = Counted(words)
    classes_in(counted)
    return counted.looks


# Every sequence of words that begins a pattern and goes on for as long as patterns pass over: none may find anything.
ADVERSARIES = [
    ["delete", "production"],
    ["delete", "the"],
    ["production", "production"],
    ["send", "customer", "customer"],
    ["give", "admin", "admin"],
    ["deploy", "x"],
    ["deploy", "write", "push", "run"],
    ["remove", "remote", "production", "customer"],
    ["turn", "the", "auth"],
    ["export", "customer", "private", "private"],
]


@pytest.mark.parametrize("unit", ADVERSARIES)
def test_work_grows_no_faster_than_the_text(unit: list[str]) -> None:
    once, twice = looks(unit * 2000), looks(unit * 4000)

    assert once <= 2000 * len(unit) * 100
    assert twice <= once * 2.01 + 100


@given(st.lists(st.sampled_from(sorted({word for words in WORDS.values() for word in words.split()})), max_size=300))
def test_no_text_makes_more_work_than_its_length_allows(words: list[str]) -> None:
    assert looks(words) <= 200 * len(words)


def test_patterns_are_short_and_what_they_pass_over_is_bounded() -> None:
    sources = [source for group in PATTERNS.values() for source in group]

    assert max(FILLERS_MAX, OTHERS_MAX) <= 4
    assert max(len(source.split()) for source in sources) <= 4
    assert all(source.split()[0][0] not in "~*" for source in sources)


def test_every_word_set_is_used_and_every_name_is_known() -> None:
    named = {
        choice[1:]
        for group in PATTERNS.values()
        for source in group
        for step in source.removesuffix("!").split()
        for choice in step.lstrip("~*").split("|")
        if choice.startswith("@")
    }

    assert named | {"filler", "thing"} == set(WORDS)
