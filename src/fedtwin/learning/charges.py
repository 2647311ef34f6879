"""What a training run charges its devices for, held against what its network and its epochs are. NumPy only."""

from collections.abc import Hashable, Sequence
from contextlib import suppress

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.formulas.terms import epochs_charged

TELLING = 2.0
"""An upload may have so many times the bits that are charged before it is worth a sentence."""


def undercharged(config: Config, upload_bits: int) -> str | None:
    """One sentence where a simulated device uploads, or trains, more than it pays for; live devices measure themselves.

    A network smaller than what is charged is not told of: the paper charges 1 MB whatever is trained.
    """
    learning = config.learning
    if learning is None or config.live is not None:
        return None
    found = []
    if upload_bits > TELLING * config.radio.update_bits:
        found.append(
            f"an upload of learning.model = {learning.model!r} has {upload_bits:.3g} bits, and radio.update_bits = "
            f"{config.radio.update_bits:g} are charged"
        )
    if learning.local_epochs > epochs_charged(config):
        found.append(
            f"learning.local_epochs = {learning.local_epochs}, and compute.cycles_per_sample is charged once "
            "(learning.charge_epochs = true charges every epoch)"
        )
    return f"Time and energy are those of a lighter training: {'; '.join(found)}." if found else None


def undercharged_among(configs: Sequence[Config]) -> str | None:
    """The same for runs that are not done here, the first sentence for all of them; networks are made for their size.

    A network or data set that cannot be had is the affair of its run.
    """
    sizes: dict[Hashable, int] = {}
    found = []
    for config in configs:
        learning = config.learning
        if learning is None or config.live is not None:
            continue
        network = (learning.dataset, learning.model, config.code.folder, learning.task, learning.input, learning.outputs)
        if network not in sizes:
            sizes[network] = 0
            with suppress(FedtwinError, ImportError):
                sizes[network] = _upload_bits(config, learning.dataset)
        if sentence := undercharged(config, sizes[network]):
            found.append(sentence)
    return found[0] + (f" ({len(found)} of {len(configs)} runs.)" if len(configs) > 1 else "") if found else None


def _upload_bits(config: Config, dataset: str) -> int:
    from fedtwin.learning.data import load_dataset
    from fedtwin.learning.executors import make_workload

    data = load_dataset(dataset, config.learning, ("test",))
    layout, _ = make_workload(config, data.shape, data.outputs).initial()
    return layout.bits
