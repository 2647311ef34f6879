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
    from fedtwin.learning.shares import shares_of

    require_matplotlib()
    require_a_place(out, overwrite=overwrite)
    learning = config.learning or LearningConfig()
    data = load_dataset(learning.dataset, learning)
    shares = shares_of(config, data)
    labels = data.y_train if data.task == "classification" else np.zeros(len(data.y_train), np.int64)
    counts = [np.bincount(labels[share], minlength=int(labels.max()) + 1).tolist() for share in shares]
    mixes = {"iid": "even mix", "natural": "as the data has it", "dirichlet": f"Dirichlet({learning.dirichlet_gamma:g})"}
    mix = mixes[learning.partition]
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
