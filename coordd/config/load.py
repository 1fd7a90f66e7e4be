"""Reads the configuration: one TOML file, one struct, and an error that names the key and the nearest right one."""

import os
import typing
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from coordd.config.settings import Repo, Settings, expand
from coordd.domain.errors import ConfigRefused

LARGEST_BYTES: Final = 8 * 1024 * 1024


def load(path: str, *, required: bool) -> Settings:
    """Read and check the file. A missing one is the defaults, unless it was named.

    Raises: ConfigRefused: it cannot be read, is not TOML, or says what cannot be.
    """
    try:
        if os.path.getsize(path) > LARGEST_BYTES:
            raise ConfigRefused(f"{path} is larger than {LARGEST_BYTES} bytes; this is no configuration")
        with open(path, "rb") as file:
            text = file.read().decode()
    except FileNotFoundError as error:
        if required:
            raise ConfigRefused(f"there is no configuration at {path}; name another with --config") from error
        return Settings()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigRefused(f"{path} cannot be read: {error}") from error
    return parse(text, path)


def parse(text: str, path: str) -> Settings:
    """Check a configuration's text; `path` is for the messages. Raises: ConfigRefused."""
    import tomllib  # once per start; its parser is not worth keeping ready

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigRefused(f"{path} is not TOML: {error}") from error
    _check_keys(document, Settings, path, "")
    try:
        settings = msgspec.convert(document, Settings)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        key = where.rstrip("`")
        raise ConfigRefused(f"{path}: {key or 'the file'}: {what}", key=key) from error
    _check_sense(settings, path)
    base = os.path.dirname(os.path.abspath(path))
    return replace(
        settings,
        repo=tuple(replace(repo, path=expand(repo.path, base)) for repo in settings.repo),
        source=tuple(replace(source, path=expand(source.path, base)) for source in settings.source),
    )


def differences(before: Settings, after: Settings) -> list[str]:
    """The keys whose values differ, for people: `leases.ttl_s`, `repo.org/app`, …"""
    changed: list[str] = []
    for room in ("daemon", "control", "leases", "policy"):
        old, new = getattr(before, room), getattr(after, room)
        changed.extend(f"{room}.{name}" for name in old.__struct_fields__ if getattr(old, name) != getattr(new, name))
    for kind in ("repo", "source"):
        olds = {entry.name: entry for entry in getattr(before, kind)}
        news = {entry.name: entry for entry in getattr(after, kind)}
        changed.extend(f"{kind}.{name} added" for name in news.keys() - olds.keys())
        changed.extend(f"{kind}.{name} removed" for name in olds.keys() - news.keys())
        changed.extend(f"{kind}.{name}" for name in olds.keys() & news.keys() if olds[name] != news[name])
    return sorted(changed)


def _check_keys(value: Any, kind: Any, path: str, where: str) -> None:
    """Refuse keys that do not exist, before any value is looked at: a misspelt key is the likeliest mistake."""
    struct = _struct_of(kind)
    if struct is None:
        return
    if isinstance(value, list):
        for number, entry in enumerate(value):
            _check_keys(entry, kind, path, f"{where}[{number}]")
        return
    if not isinstance(value, dict):
        return
    hints = typing.get_type_hints(struct)
    for key, inner in value.items():
        place = f"{where}.{key}" if where else key
        if key not in struct.__struct_fields__:
            raise ConfigRefused(f"{path}: there is no key `{place}`{_nearest(key, struct)}", key=place)
        _check_keys(inner, hints[key], path, place)


def _struct_of(kind: Any) -> Any:
    """The struct that a type is, holds or may be."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    for argument in typing.get_args(kind):
        found = _struct_of(argument)
        if found is not None:
            return found
    return None


def _nearest(key: str, struct: Any) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key, struct.__struct_fields__, 1)
    return f"; did you mean `{near[0]}`?" if near else f"; there are {', '.join(struct.__struct_fields__)}"


def _check_sense(settings: Settings, path: str) -> None:
    leases = settings.leases
    if leases.renewal_s >= leases.ttl_s:
        raise ConfigRefused(f"{path}: leases.renewal_s must be less than leases.ttl_s", key="leases.renewal_s")
    for kind in ("repo", "source"):
        names = [entry.name for entry in getattr(settings, kind)]
        twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
        if twice is not None:
            raise ConfigRefused(f"{path}: two entries [[{kind}]] are called {twice}; rename one", key=f"{kind}.name")
    known = {repo.name for repo in settings.repo}
    for repo in settings.repo:
        _check_repo(repo, path)
    for source in settings.source:
        if source.repo is not None and source.repo not in known:
            raise ConfigRefused(
                f"{path}: source {source.name} is for repository {source.repo}, which no [[repo]] names"
                + _suggest(source.repo, known),
                key="source.repo",
            )


def _check_repo(repo: Repo, path: str) -> None:
    if repo.transport == "exec" and repo.exec is None:
        raise ConfigRefused(f'{path}: repo {repo.name} has transport = "exec" and no exec.argv', key="repo.exec")
    if repo.exec is not None and repo.transport != "exec":
        raise ConfigRefused(
            f'{path}: repo {repo.name} has exec, which does nothing unless transport = "exec"', key="repo.exec"
        )


def _suggest(name: str, known: set[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""
