"""What a training run charges its devices for, held against what its network and its epochs are. NumPy only."""

from collections.abc import Hashable, Sequence
from contextlib import suppress
from pathlib import Path

from fedtwin.config import Config, LearningConfig
from fedtwin.config.fleet_csv import read_fleet_csv
from fedtwin.errors import FedtwinError
from fedtwin.formulas.terms import epochs_charged
from fedtwin.learning.compression import upload_bits
from fedtwin.learning.layout import Layout

TELLING = 2.0
"""An upload may have so many times the bits that are charged before it is worth a sentence."""


class UploadSizes:
    """The bits of what is sent of configured networks, each of them made once."""

    def __init__(self) -> None:
        self._layouts: dict[Hashable, Layout] = {}

    def bits(self, config: Config) -> int:
        learning = config.learning
        if learning is None:
            raise FedtwinError("radio.update_bits = 'model' needs a [learning] section: without one no model is sent.")
        return upload_bits(self.layout(config), learning)

    def layout(self, config: Config) -> Layout:
        """Of a configuration that learns."""
        learning = config.learning
        assert learning is not None
        network = (learning.dataset, learning.model, config.code.folder, learning.task, learning.input, learning.outputs)
        if network not in self._layouts:
            self._layouts[network] = _layout(config, learning)
        return self._layouts[network]

    def charged(self, config: Config) -> Config:
        """The configuration with the number in place of ``radio.update_bits = "model"``, as if it had been stated."""
        return with_update_bits(config, self.bits(config)) if config.radio.update_bits == "model" else config


def charged(config: Config) -> Config:
    """The same for one configuration."""
    return UploadSizes().charged(config)


def with_update_bits(config: Config, bits: float) -> Config:
    """The configuration in which ``radio.update_bits = "model"`` is so many; one that states a number keeps it."""
    if config.radio.update_bits != "model":
        return config
    return config.model_copy(update={"radio": config.radio.model_copy(update={"update_bits": float(bits)})})


def undercharged(config: Config, sent_bits: int) -> str | None:
    """One sentence where a simulated device uploads, or trains, more than it pays for; live devices measure themselves.

    A network smaller than what is charged is not told of: the paper charges 1 MB whatever is trained.
    """
    learning = config.learning
    if learning is None:
        return None
    found = []
    setting, paid_bits = _least_paid(config)
    if paid_bits is not None and sent_bits > TELLING * paid_bits:
        found.append(
            f"an upload of learning.model = {learning.model!r} has {sent_bits:.3g} bits, and {setting} = "
            f"{paid_bits:g} are charged"
        )
    if learning.local_epochs > epochs_charged(config):
        found.append(
            f"learning.local_epochs = {learning.local_epochs}, and compute.cycles_per_sample is charged once "
            "(learning.charge_epochs = true charges every epoch)"
        )
    return f"Time and energy are those of a lighter training: {'; '.join(found)}." if found else None


def _least_paid(config: Config) -> tuple[str, float | None]:
    """The fewest bits that a device pays for, and what says so; None: those of the model."""
    fleet, bits = config.fleet, config.radio.update_bits
    if fleet.file is not None:
        own = [row.own["update_bits"] for row in read_fleet_csv(Path(fleet.file)) if "update_bits" in row.own]
        if own:
            return "update_bits of fleet.file", min(own)
    elif fleet.update_bits is not None:
        return "fleet.update_bits", fleet.update_bits[0]
    return "radio.update_bits", None if bits == "model" else bits


def undercharged_among(configs: Sequence[Config]) -> str | None:
    """The same for runs that are not done here, the first sentence for all of them; networks are made for their size.

    A network or data set that cannot be had is the affair of its run.
    """
    sizes, found = UploadSizes(), []
    for config in configs:
        if config.learning is None:
            continue
        sent_bits = 0
        with suppress(FedtwinError, ImportError):
            sent_bits = sizes.bits(config)
        if sentence := undercharged(config, sent_bits):
            found.append(sentence)
    return found[0] + (f" ({len(found)} of {len(configs)} runs.)" if len(configs) > 1 else "") if found else None


def _layout(config: Config, learning: LearningConfig) -> Layout:
    try:
        from fedtwin.learning.data import load_dataset
        from fedtwin.learning.executors import make_workload
    except ImportError as error:
        raise FedtwinError(f"[learning] needs PyTorch ({error}): pip install 'fedtwin[learn]'.") from None
    data = load_dataset(learning.dataset, learning, ("test",))
    return make_workload(config, data.shape, data.outputs).initial()[0]
