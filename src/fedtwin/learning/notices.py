"""What is worth a sentence about a data set, its partition, a network or a rule, though it is legal. NumPy only."""

import numpy as np

from fedtwin.config import Config, LearningConfig
from fedtwin.learning.aggregation.at_work import Rule
from fedtwin.learning.aggregation.average import AveragedRule
from fedtwin.learning.data import Dataset, load_dataset
from fedtwin.learning.data.loading import EMBEDDED
from fedtwin.learning.layout import Layout
from fedtwin.learning.partition import Indices, held_by_several
from fedtwin.learning.shares import shares_of
from fedtwin.registry import is_built_in


def notices(learning: LearningConfig, data: Dataset, shares: list[Indices]) -> list[str]:
    """Samples that several devices hold because the data ran out, labels that no image has, and images that are all alike.

    The embedded digits are made to be shared, as the docs say: there is nothing to tell of them.
    """
    if learning.dataset == EMBEDDED:
        return []
    found = (_shared(learning, data, shares), _gaps(learning, data), _all_alike(learning, data))
    return [sentence for sentence in found if sentence]


def notices_of(config: Config, *, of_boards: bool = False) -> list[str]:
    """The same for a configuration that is not running here; without the samples where boards bring them along."""
    learning = config.learning
    if learning is None or learning.dataset == EMBEDDED:
        return []
    data = load_dataset(learning.dataset, learning, ("test",))
    return notices(learning, data, shares_of(config, data) if len(data.x_train) and not of_boards else [])


def drawn_more_than_once(learning: LearningConfig, device: int, samples: int, owned: int) -> str:
    """Where a device trains on more samples than it owns; the first one that does is named."""
    whose = f"Device {device} owns {owned} samples" if learning.partition == "natural" else f"learning.owned_samples = {owned}"
    return f"{whose}, and device {device} trains on {samples} samples in a round: it draws some of its own more than once."


def variances_out_of_bounds(learning: LearningConfig, rule: Rule | AveragedRule, layout: Layout) -> str | None:
    """Where a rule may step beyond all uploads with what must not be negative."""
    if not rule.extrapolates or not any(entry.name.endswith("running_var") for entry in layout.entries):
        return None
    return (
        f"learning.aggregation = {rule.name!r} can step beyond what any device uploads, also with the running variances of "
        f"BatchNorm that learning.model = {learning.model!r} has, which is then of no use: a network without them, such as "
        "'resnet18-groupnorm', is safe."
    )


def never_gathered(config: Config, rule: Rule | AveragedRule) -> str | None:
    """Where a rule gathers more uploads than there will be. One of your own is believed to, where the setting was changed."""
    learning = config.learning
    if learning is None or "buffer_size" not in rule.reads:
        return None
    if not is_built_in("aggregators", rule.name) and learning.buffer_size == LearningConfig().buffer_size:
        return None
    most = _most_uploads(config)
    if learning.buffer_size <= most:
        return None
    return (
        f"learning.buffer_size = {learning.buffer_size} is more than the {most} uploads that the run asks for: "
        f"learning.aggregation = {rule.name!r} changes the model when that many have come, and never before."
    )


def never_changed(uploads: int) -> str:
    """At the end of a run whose model is what it began with."""
    came = "1 upload" if uploads == 1 else f"{uploads} uploads"
    return f"The model never changed: {came} came, and the aggregation rule made no new one of them; it is what it began with."


def _most_uploads(config: Config) -> int:
    """Boards are asked for the first M besides."""
    first = config.fleet.channels if config.live is not None and config.run.mode == "async" else 0
    return config.run.rounds + first


def _shared(learning: LearningConfig, data: Dataset, shares: list[Indices]) -> str | None:
    shared = held_by_several(shares, len(data.y_train)) if shares else 0
    if not shared:
        return None
    owned, there = learning.owned_samples, len(data.y_train)
    return (
        f"{len(shares)} devices own {owned} samples each, {len(shares) * owned} in all, and learning.dataset = "
        f"{learning.dataset!r} has {there} to train on: {shared} of them are held more than once; a smaller "
        "learning.owned_samples makes it fewer."
    )


def _gaps(learning: LearningConfig, data: Dataset) -> str | None:
    if data.task != "classification" or data.given_outputs:
        return None
    seen = np.union1d(data.y_train, data.y_test)
    gaps = data.classes - len(seen)
    if not gaps:
        return None
    first = int(np.setdiff1d(np.arange(data.classes), seen)[0])
    return (
        f"learning.dataset = {learning.dataset!r} has labels up to {data.classes - 1}, and no image for {gaps} of them, "
        f"such as {first}: the network gets {data.classes} outputs all the same."
    )


def _all_alike(learning: LearningConfig, data: Dataset) -> str | None:
    if not len(data.x_train):
        return None
    value = data.x_train.flat[0]
    if not (data.x_train[0] == value).all() or not (data.x_train == value).all():
        return None
    what = "pixel" if data.kind == "images" else "number"
    return f"learning.dataset = {learning.dataset!r}: every {what} of x_train is {value:g}: there is nothing to learn from."
