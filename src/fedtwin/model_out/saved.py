"""A model that a run has left, with its card. Nothing of the run's own code is run unless whoever asks says so."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fedtwin.errors import FedtwinError
from fedtwin.files import plain_file
from fedtwin.learning.card import FILES, ModelCard, Which, read_card
from fedtwin.records.checksums import names_written, require_as_written
from fedtwin.records.files import CODE_NAME
from fedtwin.usercode import source_digest


@dataclass(frozen=True)
class SavedModel:
    """``code_folder`` is where code of the user's own may be loaded from; None where none may."""

    path: Path
    card: ModelCard
    tensors: dict[str, NDArray[Any]]
    code_folder: Path | None

    def without_targets(self) -> "SavedModel":
        """Where nothing can be measured, neither loss nor metric is needed."""
        code = {setting: digest for setting, digest in self.card.code.items() if setting == "learning.model"}
        return replace(self, card=replace(self.card, loss="auto", metric="auto", code=code))

    def require_code(self) -> str | None:
        """The folder to load from, when the source in it is the run's; None for a model of fedtwin's own."""
        own = {setting: name for setting, name in self.card.learning.own_code.items() if setting in self.card.code}
        if not own:
            return None
        named = " and ".join(f"{setting} = {name!r}" for setting, name in own.items())
        if self.code_folder is None:
            kept = self.path.parent / CODE_NAME
            raise FedtwinError(
                f"{named} is code of the run's own, and is not run unasked: give --code DIR where you have it, or --trust "
                f"to run what is kept in {str(kept)!r}."
            )
        for setting, name in own.items():
            if source_digest(name, self.code_folder) != self.card.code[setting]:
                raise FedtwinError(
                    f"{setting} = {name!r}: the source in {str(self.code_folder)!r} is not the run's, whose digest is "
                    f"{self.card.code[setting]}."
                )
        return str(self.code_folder)


def open_model(folder: Path, which: Which = "served", *, code: Path | None = None, trust: bool = False) -> SavedModel:
    """The model of a run's folder; ``code``: where code of its own lies, ``trust``: use what the folder keeps of it."""
    from safetensors import SafetensorError, safe_open

    if code is not None and trust:
        raise FedtwinError("--code DIR and --trust name two places to load code from: give one of them.")
    path = folder / FILES[which]
    if not path.exists():
        there = [name for name, file in FILES.items() if (folder / file).exists()]
        kept = f"there is {' and '.join(there)} (--which)" if there else "no run has left a model there"
        if which == "plain" and "served" in there:
            kept += ", and served is the plain model where the run averages nothing"
        raise FedtwinError(f"{str(path)!r} is not there: {kept}.")
    if path.name in names_written(folder):
        require_as_written(folder, path.name)
    try:
        with safe_open(plain_file(path), "numpy") as file:
            metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise FedtwinError(f"{str(path)!r} cannot be read: {str(error).rstrip('.')}.") from None
    return SavedModel(path, read_card(metadata, str(path)), tensors, folder / CODE_NAME if trust else code)
