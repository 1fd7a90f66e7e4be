"""Work from a directory of TOML files, one plan each, in the format of planfile.py. The embedded default.

A file that cannot be read, or is no TOML, fails the source: nobody knows what it said about the others. A fault in
what a file says concerns its own items only.
"""

import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import trio

from coordd.config.settings import Source
from coordd.domain.errors import SourceFailed
from coordd.domain.work import Edge, Message, Plan, Problem, Snapshot, Task
from coordd.sources.base import failure
from coordd.sources.fields import PROBLEMS_MAX
from coordd.sources.planfile import PlanFile, understand
from coordd.sources.reading import os_failure, read_file
from coordd.sources.watch import Place, Watch, open_watch

PLAN_BYTES: Final = 1024 * 1024  # what people write by hand is smaller; a larger file takes seconds to parse
PLANS_MAX: Final = 1000
LOOKS: Final = 3  # at a directory from which files vanish
PAUSES_S: Final = (0.05, 0.1, 0.2)  # before reading a file again that is being written


class WorkplansSource:
    """One directory of plans. Directories in it are not looked into.

    Args:
        pause: sleeps that many seconds; called on the thread that takes the snapshot.
    """

    def __init__(self, settings: Source, *, pause: Callable[[float], None] = time.sleep) -> None:
        self.name = settings.name
        self._directory = settings.path
        self._max_bytes = min(settings.max_bytes, PLAN_BYTES)
        self._pause = pause
        self._understood: dict[str, tuple[bytes, PlanFile]] = {}  # by file name, with the hash of the text
        place = Place(self._directory, is_plan_file)
        self._watch: Watch | None = open_watch((place,)) if settings.watch else None

    def snapshot(self) -> Snapshot:
        """See WorkSource."""
        for look in range(LOOKS):
            try:
                understood = {name: self._read(name) for name in self._list()}
            except FileNotFoundError as error:  # since it was listed
                if look == LOOKS - 1:
                    raise failure(self.name, "changing", self._directory) from error
            else:
                self._understood = understood  # a file that is gone is forgotten
                return self._merge(file for _, file in understood.values())
        raise AssertionError("the last look returns or raises")

    async def changed(self) -> None:
        if self._watch is None:
            await trio.sleep_forever()
        else:
            await self._watch.changed()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    def _list(self) -> list[str]:
        try:
            names = sorted(name for name in os.listdir(self._directory) if is_plan_file(name))
        except NotADirectoryError as error:
            raise failure(self.name, "not_a_directory", self._directory) from error
        except FileNotFoundError as error:
            raise failure(self.name, "directory_missing", self._directory) from error
        except OSError as error:
            raise os_failure(error, self._directory, self.name) from error
        if len(names) > PLANS_MAX:
            raise failure(self.name, "too_many_files", self._directory, limit=PLANS_MAX)
        return names

    def _read(self, name: str) -> tuple[bytes, PlanFile]:
        """Raises: FileNotFoundError: it is gone. SourceFailed: it cannot be read or is no TOML."""
        data = self._bytes(name)
        digest = hashlib.sha256(data).digest()
        known = self._understood.get(name)
        if known is not None and known[0] == digest:  # parsing TOML takes a hundred times longer than hashing it
            return known
        return digest, self._parse(name, data)

    def _bytes(self, name: str) -> bytes:
        path = os.path.join(self._directory, name)
        for pause_s in (*PAUSES_S, None):
            try:
                reading = read_file(path, source=self.name, max_bytes=self._max_bytes)
            except SourceFailed as error:
                if error.detail["cause"] == "missing":
                    raise FileNotFoundError from error
                raise
            if reading.steady:
                return reading.data
            if pause_s is not None:
                self._pause(pause_s)
        raise failure(self.name, "changing", name)

    def _parse(self, name: str, data: bytes) -> PlanFile:
        import tomllib  # only when a file is new or has changed

        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise failure(self.name, "not_utf8", name) from None  # the error holds the text
        try:
            content = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            # The parser's message can quote the text; of it only the line is passed on.
            line = re.search(r"\(at line (\d+), column \d+\)\Z", str(error))
            detail = {"line": int(line[1])} if line else {}
            raise failure(self.name, "file_broken", name, **detail) from None
        return understand(name, content)

    def _merge(self, files: Iterable[PlanFile]) -> Snapshot:
        files = list(files)
        times = Counter(file.plan_id for file in files if file.plan_id is not None)
        plans: list[Plan] = []
        tasks: list[Task] = []
        edges: list[Edge] = []
        messages: list[Message] = []
        problems = [Problem(id, "duplicate_id") for id, count in times.items() if count > 1]
        for file in files:
            if file.plan_id is not None and times[file.plan_id] > 1:
                left_out = [*(task.id for task in file.tasks), *(message.id for message in file.messages)]
                problems += [*file.problems, *(Problem(id, "plan_broken") for id in left_out)]
                continue
            plans += [] if file.plan is None else [file.plan]
            tasks += file.tasks
            edges += file.edges
            messages += file.messages
            problems += file.problems
        if len(problems) > PROBLEMS_MAX:
            raise failure(self.name, "too_many_problems", self._directory, limit=PROBLEMS_MAX)
        return Snapshot(
            tasks=tuple(tasks),
            plans=tuple(plans),
            edges=tuple(edges),
            messages=tuple(messages),
            problems=tuple(dict.fromkeys(problems)),
        )


def is_plan_file(name: str) -> bool:
    """Editors' own files begin with a dot or end otherwise: `.#a.toml`, `.a.toml.swp`, `a.toml~`, `#a.toml#`."""
    return name.endswith(".toml") and not name.startswith((".", "#"))
