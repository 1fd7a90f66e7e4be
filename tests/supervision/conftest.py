import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a short name: a socket's path has few bytes."""
    return tmp_path_factory.mktemp("r")


@pytest.fixture
def verify(run_dir: Path) -> Callable[..., str]:
    """What `systemd-analyze` has to say about user units; it tells of unknown settings only on stderr."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")

    def verify(*units: Path, home: Path | None = None) -> str:
        environ = {**os.environ, "XDG_RUNTIME_DIR": str(run_dir), "SYSTEMD_LOG_LEVEL": "info"}
        if home is not None:
            environ["HOME"] = str(home)
        done = subprocess.run(
            ["systemd-analyze", "--user", "--man=no", "verify", *map(str, units)],
            capture_output=True,
            env=environ,
            timeout=60,
            check=False,
        )
        return done.stderr.decode() + (f"exit code {done.returncode}\n" if done.returncode else "")

    return verify
