"""A policy of the user's own must stay what it was when the run began: decisions rest on the twin, not on what ran before."""

from fedtwin.config import Config, Identity
from fedtwin.errors import FedtwinError
from fedtwin.usercode import code_digest

FIRST_LOOK, FACTOR = 10, 4


class Purity:
    """Looks at the policy's digest, which sees its globals, closures and attributes, now and then and at the end."""

    def __init__(self, config: Config, identity: Identity) -> None:
        self._name, self._folder = config.policy.name, config.code.folder
        self._place = config.own_code.get("policy.name", self._name)
        self._digest = identity.code.get("policy.name")
        self._next_at = FIRST_LOOK

    def look(self, round_: int) -> None:
        """Between two rounds."""
        if self._digest is not None and round_ >= self._next_at:
            self._next_at *= FACTOR
            self.require()

    def require(self) -> None:
        if self._digest is not None and self._digest_now() != self._digest:
            raise FedtwinError(
                f"policy.name = {self._name!r} changes something of its own while it runs (a global, a closure, an attribute), "
                "so its decisions depend on what ran before: a score may look at its arguments only."
            )

    def _digest_now(self) -> str:
        """Of the code as it was loaded: its file may be edited meanwhile."""
        return code_digest("policy.name", self._place, self._folder, running=True)
