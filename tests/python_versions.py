"""`make test-versions`: the tests that a release of Python can break, on every supported release that this machine has.

The release this runs on is left out: `make test` tests everything on it.
"""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
CLASSIFIER = "Programming Language :: Python :: "
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
SAYS_ITS_VERSION = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"


def supported() -> list[str]:
    """As pyproject.toml declares them, such as 3.11."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = [name.removeprefix(CLASSIFIER) for name in project["classifiers"] if name.startswith(CLASSIFIER)]
    return [version for version in versions if "." in version]


def find(version: str) -> Path | None:
    """An interpreter that runs and can make an environment."""
    return next((path for path in _places(version) if _runs(path, version)), None)


def _places(version: str) -> Iterator[Path]:
    for folder in os.get_exec_path():
        yield Path(folder) / f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))


def _runs(path: Path, version: str) -> bool:
    """pyenv leaves commands on the path that only say that they are not there; Debian has releases without ensurepip."""
    try:
        asked = subprocess.run([path, "-c", SAYS_ITS_VERSION], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0 and asked.stdout.strip() == version


def tried_on(version: str) -> str:
    """What came of it, in words."""
    if version == OWN:
        return "tested in full by make test"
    python = find(version)
    if python is None:
        return "NOT TESTED, not found on this machine"
    print(f"\nPython {version}: {python}", flush=True)
    made = subprocess.run(["make", "test-python", f"PYTHON={python}", f"VENV=.venv-{version}"], cwd=ROOT, check=False)
    return "engine, compile, stop and live tests passed" if made.returncode == 0 else "FAILED"


def main() -> None:
    outcomes = {version: tried_on(version) for version in supported()}
    print("\n" + "\n".join(f"Python {version}: {outcome}" for version, outcome in outcomes.items()))
    sys.exit("FAILED" in outcomes.values())


if __name__ == "__main__":
    main()
