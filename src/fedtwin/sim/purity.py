"""Code of the user's own must stay what it was when the run began: nothing may depend on what ran before."""

from fedtwin.config import Config, Identity
from fedtwin.errors import FedtwinError
from fedtwin.usercode import code_digest

FIRST_LOOK, FACTOR = 10, 4
LOOKED_AT = {
    "policy.name": "its decisions depend on what ran before: a score may look at its arguments only",
    "world.channel": "its gains depend on what ran before: they may depend on its arguments only",
    "world.load": "its frequencies depend on what ran before: they may depend on its arguments only",
    "world.availability": "its answers depend on what ran before: they may depend on its arguments only",
    "world.sensing": "its samples depend on what ran before: they may depend on its arguments only",
}


class Purity:
    """Looks at the digests of policy and world, which see globals, closures and attributes, now and then and at the end."""

    def __init__(self, config: Config, identity: Identity) -> None:
        self._names, self._folder = config.own_code, config.code.folder
        self._digests = {setting: digest for setting, digest in identity.code.items() if setting in LOOKED_AT}
        self._next_at = FIRST_LOOK

    def look(self, round_: int) -> None:
        """Between two rounds."""
        if self._digests and round_ >= self._next_at:
            self._next_at *= FACTOR
            self.require()

    def require(self) -> None:
        for setting, digest in self._digests.items():
            if self._digest_now(setting) != digest:
                raise FedtwinError(
                    f"{setting} = {self._names[setting]!r} changes something of its own while it runs (a global, a closure, an "
                    f"attribute), so {LOOKED_AT[setting]}."
                )

    def _digest_now(self, setting: str) -> str:
        """Of the code as it was loaded: its file may be edited meanwhile."""
        return code_digest(setting, self._names[setting], self._folder, running=True)
