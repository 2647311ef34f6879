"""Who holds what: samples of every class on every device."""

from collections.abc import Sequence
from pathlib import Path

from fedtwin.errors import FedtwinError
from fedtwin.figures.save import require_matplotlib


def save_partition(path: Path, title: str, counts: Sequence[Sequence[int]]) -> None:
    """``counts[device][class]`` as stacked bars."""
    require_matplotlib()
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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise FedtwinError(f"--out {str(path)!r} cannot be written: {error}.".replace("\n", " ")) from None
