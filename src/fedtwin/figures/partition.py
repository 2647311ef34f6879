"""Who holds what: samples of every class on every device."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedtwin.config import Config, LearningConfig
from fedtwin.figures.pictures import require_a_place, require_matplotlib, save_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_partition(config: Config, out: Path, *, overwrite: bool = False) -> None:
    """A picture of how the samples of the configuration's data set are dealt to its devices."""
    from fedtwin.learning.data import load_dataset
    from fedtwin.learning.partition import deal

    require_matplotlib()
    require_a_place(out, overwrite=overwrite)
    learning = config.learning or LearningConfig()
    data = load_dataset(learning.dataset)
    gamma = learning.dirichlet_gamma if learning.partition == "dirichlet" else None
    shares = deal(data.y_train, config.run.seed, config.fleet.devices, learning.owned_samples, gamma)
    counts = [np.bincount(data.y_train[share], minlength=data.classes).tolist() for share in shares]
    mix = "even mix" if gamma is None else f"Dirichlet({gamma:g})"
    title = f"{learning.dataset}: who holds what ({mix}, seed {config.run.seed})"
    save_picture(draw_partition(title, counts), out)


def draw_partition(title: str, counts: Sequence[Sequence[int]]) -> "Figure":
    """``counts[device][class]`` as stacked bars."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(7.0, 4.0), layout="constrained")
    axes = picture.add_subplot()
    devices = range(len(counts))
    bottom = [0] * len(counts)
    for label in range(len(counts[0])):
        heights = [row[label] for row in counts]
        axes.bar(devices, heights, bottom=bottom, width=0.9, label=str(label), color=f"C{label % 10}")
        bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
    axes.set(title=title, xlabel="device", ylabel="samples")
    axes.legend(title="class", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return picture
