"""A checkpoint: one safetensors file, whole or not at all; with the replayed schedule, the whole state of a training run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtwin.errors import FedtwinError
from fedtwin.learning.aggregate import Refusal
from fedtwin.learning.evaluation import Evaluation
from fedtwin.learning.layout import Weights
from fedtwin.learning.learner import LearnerState

CHECKPOINT_NAME = "checkpoint.safetensors"  # also removed by sim.run when a run has ended


def write_checkpoint(folder: Path, state: LearnerState, config_hash: str) -> None:
    """Models that several devices hold in the same version are written once."""
    from safetensors.numpy import save_file

    arrays: dict[str, NDArray[Any]] = {
        "train_losses": np.array(state.train_losses, np.float64),
        "evaluations": np.array(state.evaluations, np.float64).reshape(-1, len(Evaluation._fields)),
        **{f"aggregator.{name}": np.asarray(value) for name, value in state.aggregator.items()},
    }
    places: dict[int, str] = {}
    holders: dict[str, str] = {}
    for holder, weights in [("model", state.model), *((str(device), start) for device, start in state.starts.items())]:
        if weights is None:
            continue
        place = places.setdefault(id(weights.floats), f"weights.{len(places)}")
        arrays[f"{place}.floats"], arrays[f"{place}.counters"] = weights.floats, weights.counters
        holders[holder] = place
    meta = {
        "config_hash": config_hash,
        "round": state.round,
        "uploads": state.uploads,
        "version": state.version,
        "versions": state.versions,
        "holders": holders,
        "refusals": state.refusals,
    }
    unfinished = folder / f".{CHECKPOINT_NAME}"
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, unfinished, {"fedtwin": json.dumps(meta)})
    unfinished.rename(folder / CHECKPOINT_NAME)


def read_checkpoint(folder: Path, config_hash: str) -> LearnerState | None:
    """The last checkpoint of a run folder, None if it has none yet; one of another configuration is an error."""
    from safetensors import SafetensorError, safe_open

    path = folder / CHECKPOINT_NAME
    if not path.exists():
        return None
    try:
        with safe_open(path, "numpy") as file:
            meta = json.loads((file.metadata() or {})["fedtwin"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise FedtwinError(f"The checkpoint {str(path)!r} cannot be read: {error}.") from None
    if meta["config_hash"] != config_hash:
        raise FedtwinError(f"The checkpoint {str(path)!r} is from another configuration: config.toml has been changed since.")
    weights = {
        place: Weights(arrays[f"{place}.floats"], arrays[f"{place}.counters"]) for place in set(meta["holders"].values())
    }
    held = {holder: weights[place] for holder, place in meta["holders"].items()}
    prefix = "aggregator."
    return LearnerState(
        round=meta["round"],
        uploads=meta["uploads"],
        version=meta["version"],
        model=held.pop("model"),
        train_losses=arrays["train_losses"].tolist(),
        evaluations=[Evaluation(int(row[0]), *map(float, row[1:])) for row in arrays["evaluations"]],
        starts={int(device): start for device, start in held.items()},
        versions={int(device): version for device, version in meta["versions"].items()},
        aggregator={name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)},
        refusals=[Refusal(*row) for row in meta["refusals"]],
    )
