"""A checkpoint: one safetensors file, whole or not at all; with the replayed schedule, the whole state of a training run.

A checksum covers every field and every array, names, types and shapes included: what is read is what was written.
"""

import hashlib
import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.learning.aggregation.held import Held
from fedtwin.learning.aggregation.refusals import Refusal
from fedtwin.learning.evaluation import Evaluation
from fedtwin.learning.kept import KeptModel
from fedtwin.learning.layout import Weights, save_arrays
from fedtwin.learning.learner import LearnerState

CHECKPOINT_NAME = "checkpoint.safetensors"  # also removed by sim.run when a run has ended
Arrays = Mapping[str, NDArray[Any]]


def write_checkpoint(folder: Path, state: LearnerState, config_hash: str) -> None:
    """Models that several devices hold are written once; two of the same floats may have other counters."""
    gathered = state.aggregator
    arrays: dict[str, NDArray[Any]] = {
        "train_losses": np.array(state.train_losses, np.float64),
        "evaluations": np.array(state.evaluations, np.float64).reshape(-1, len(Evaluation._fields)),
        **{f"aggregator.{number}": array for number, array in enumerate(gathered.arrays)},
    }
    arrays |= {f"left_out.{device}": error for device, error in state.left_out.items()}
    places: dict[tuple[int, int], str] = {}
    holders: dict[str, str] = {}
    models = [("model", state.model), ("best", state.kept.best)]
    for holder, weights in [*models, *((str(device), start) for device, start in state.starts.items())]:
        if weights is None:
            continue
        place = places.setdefault((id(weights.floats), id(weights.counters)), f"weights.{len(places)}")
        arrays[f"{place}.floats"], arrays[f"{place}.counters"] = weights.floats, weights.counters
        holders[holder] = place
    meta = json.dumps(
        {
            "config_hash": config_hash,
            "round": state.round,
            "uploads": state.uploads,
            "version": state.version,
            "versions": state.versions,
            "holders": holders,
            "aggregator": gathered.form,
            "aggregator_arrays": len(gathered.arrays),
            "refusals": state.refusals,
            "best_evaluation": _place(state),
        }
    )
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    save_arrays(folder / CHECKPOINT_NAME, arrays, {"fedtwin": meta, "sha256": _checksum(meta, arrays)})


def read_checkpoint(folder: Path, config_hash: str) -> LearnerState | None:
    """The last checkpoint of a run folder; None, with a warning, if it is damaged or not of this run; None if there is none."""
    path = folder / CHECKPOINT_NAME
    if not path.exists():
        return None
    try:
        meta, arrays = _content(path)
        state = _state(meta, arrays)
        reason = None if meta["config_hash"] == config_hash else "is of another configuration"
    except OSError as error:
        raise FedtwinError(f"The checkpoint {str(path)!r} cannot be read: {error.strerror or error}.") from None
    except Exception as error:  # whatever bytes are there, they are a sentence and not a traceback
        reason = f"is damaged ({error or type(error).__name__})"
    if reason is None:
        return state
    sentence = f"The checkpoint {str(path)!r} {reason}: the training is done again from the start."
    warnings.warn(" ".join(sentence.split()), FedtwinWarning, stacklevel=3)
    return None


def _content(path: Path) -> tuple[dict[str, Any], Arrays]:
    from safetensors import safe_open

    with path.open("rb"), safe_open(path, "numpy") as file:
        metadata = file.metadata() or {}
        if not {"fedtwin", "sha256"} <= set(metadata):
            raise ValueError("it has no checksum")
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if _checksum(metadata["fedtwin"], arrays) != metadata["sha256"]:
        raise ValueError("its checksum does not match")
    return json.loads(metadata["fedtwin"]), arrays


def _checksum(meta: str, arrays: Arrays) -> str:
    digest = hashlib.sha256(meta.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _state(meta: dict[str, Any], arrays: Arrays) -> LearnerState:
    weights = {
        place: Weights(arrays[f"{place}.floats"], arrays[f"{place}.counters"]) for place in set(meta["holders"].values())
    }
    held = {holder: weights[place] for holder, place in meta["holders"].items()}
    evaluations, place = [_evaluation(row.tolist()) for row in arrays["evaluations"]], meta["best_evaluation"]
    kept = KeptModel(held.pop("best", None), None if place is None else evaluations[place])
    return LearnerState(
        round=meta["round"],
        uploads=meta["uploads"],
        version=meta["version"],
        model=held.pop("model"),
        train_losses=arrays["train_losses"].tolist(),
        evaluations=evaluations,
        starts={int(device): start for device, start in held.items()},
        versions={int(device): version for device, version in meta["versions"].items()},
        aggregator=Held(meta["aggregator"], [arrays[f"aggregator.{k}"] for k in range(meta["aggregator_arrays"])]),
        refusals=[Refusal(*row) for row in meta["refusals"]],
        kept=kept,
        left_out={int(name.partition(".")[2]): error for name, error in arrays.items() if name.startswith("left_out.")},
    )


def _place(state: LearnerState) -> int | None:
    """Of the best evaluation among all."""
    best = state.kept.best_evaluation
    return None if best is None else state.evaluations.index(best)


def _evaluation(row: list[float]) -> Evaluation:
    """What was not measured is NaN in the array."""
    return Evaluation(int(row[0]), *row[1:4], *(None if math.isnan(number) else number for number in row[4:]))
