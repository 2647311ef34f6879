"""Who holds what: samples of every class on every device."""

from collections.abc import Sequence
from pathlib import Path

from fedtwin.errors import FedtwinError


def save_partition(path: Path, title: str, counts: Sequence[Sequence[int]]) -> None:
    """``counts[device][class]`` as stacked bars."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise FedtwinError("Figures need matplotlib: pip install 'fedtwin[figures]'.") from None
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
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=150)
