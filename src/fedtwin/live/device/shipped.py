"""Code of the run's own that comes from the edge server: taken where the board allows it, and loaded only by its digest."""

import logging
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.live.logs import say
from fedtwin.live.wire.settings import digests_of, one_digest, with_code_in
from fedtwin.usercode import source_digest, sources_of

PATH = re.compile(r"([A-Za-z_][A-Za-z0-9_]*/)*[A-Za-z_][A-Za-z0-9_]*\.py")
DIGEST = re.compile(r"[0-9a-f]{16,64}")


class CodeRules:
    """What a board says about code: whether it takes any from the edge server, and which digest alone may be run here."""

    def __init__(self, *, accept: bool = False, digest: str | None = None) -> None:
        if digest is not None and not DIGEST.fullmatch(digest):
            raise FedtwinError(f"--code-digest {digest!r} is not allowed: it must be 16 to 64 hexadecimal digits.")
        self.accept, self._pinned = accept, digest
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def check(self, config: Config) -> None:
        """Whether the run's code may be run here, wherever it lies."""
        found = one_digest(config.code)
        if self._pinned is not None and found is not None and not found.startswith(self._pinned):
            raise FedtwinError(f"--code-digest {self._pinned!r} allows no other code: that of the run has the digest {found}.")

    def take(self, config: Config, sources: Mapping[str, str] | None) -> Config:
        """The same settings, with the code in a folder of its own. Nothing of it is loaded before its digest is right."""
        own, digests, whole = config.own_code, digests_of(config.code), one_digest(config.code)
        names = {setting: own[setting] for setting in digests}
        said = f"{', '.join(f'{setting} = {name!r}' for setting, name in names.items())}, code with the digest {whole}"
        if not sources:
            raise FedtwinError(f"{said}, is not here, and the edge server gives none: start it with --ship-code.")
        self.close()
        self._folder = tempfile.TemporaryDirectory(prefix="fedtwin-code-")
        folder = Path(self._folder.name)
        for path, source in sources.items():
            if not PATH.fullmatch(path):
                raise FedtwinError(f"{said}, is refused: {path[:100]!r} is no place for a module.")
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(source.encode())
        same = all(source_digest(names[setting], folder) == digest for setting, digest in digests.items())
        if not same or set(sources_of(names.values(), folder)) != set(sources):
            raise FedtwinError(f"{said}, is refused: what the edge server gave, with the libraries here, has another digest.")
        say(logging.INFO, "code of the run is taken from the edge server", digest=whole, files=", ".join(sorted(sources)))
        return with_code_in(folder, config)

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
