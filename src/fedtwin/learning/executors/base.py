"""What an executor is, what it needs to begin, and which one a configuration means."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import nn

from fedtwin.config import CodeConfig, Config, LearningConfig
from fedtwin.draws import Purpose, stream
from fedtwin.errors import FedtwinError
from fedtwin.learning.data import Dataset, load_dataset
from fedtwin.learning.layout import Layout, Weights
from fedtwin.learning.lessons import Lesson
from fedtwin.learning.local import Evaluated, Images, LocalTrainer, Trained, initial_weights, model_layout
from fedtwin.learning.models import build_model
from fedtwin.learning.objectives import Objective, objective_of
from fedtwin.learning.trial import require_training_on_one, try_out
from fedtwin.learning.watched import WatchedTrainer
from fedtwin.usercode import Purity, code_digest, only_here, sentence_of_only_here, source_digest


class Executor(Protocol):
    """Takes trainings when they are known, gives them when they are due. Keys are the caller's, each used once.

    Weights are arrays of the executor's kind, NumPy's on the CPU: ``adopt`` brings a model there, ``host`` brings it back.
    """

    def adopt(self, weights: Weights) -> Weights: ...

    def host(self, weights: Weights) -> Weights: ...

    def submit(self, key: int, start: Weights, lesson: Lesson) -> None: ...

    def result(self, key: int) -> Trained: ...

    def submit_evaluation(self, key: int, weights: Weights) -> None: ...

    def evaluation(self, key: int) -> Evaluated: ...

    def require_no_memory(self) -> None:
        """Before numbers are kept: the user's own code gave what it gives where nothing was trained before."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Workload:
    """Everything a worker needs to build its trainer, small enough to send to a process.

    ``code`` has the digests of what trains and is the user's, by setting, as the run began.
    """

    learning: LearningConfig
    shape: tuple[int, ...]
    outputs: int
    seed: int
    channels: int
    code_folder: str | None = None
    code: Mapping[str, str] = field(default_factory=dict)

    def trainer(self) -> LocalTrainer:
        return LocalTrainer(self.network(), Images(self.data()), self.learning, self.code_folder)

    def watched_trainer(self) -> WatchedTrainer:
        purity = Purity(self.learning.own_code, self.code_folder, self.code)
        return WatchedTrainer(self.trainer(), self.learning, purity)

    def data(self) -> Dataset:
        return load_dataset(self.learning.dataset, self.learning)

    def objective(self) -> Objective:
        return objective_of(self.learning, self.code_folder)

    def network(self) -> nn.Module:
        return build_model(self.learning.model, self.shape, self.outputs, self.seed, self.code_folder)

    def check(self, samples: Sequence[int]) -> None:
        """Before the first round: the network can be trained on so many samples each, and keeps all its state where it must."""
        if self.learning.own_code and self.fingerprint() != self.fingerprint():
            raise FedtwinError(
                f"learning.model = {self.learning.model!r} is another network when it is made again: all its chance must be "
                "from torch's generator."
            )
        if self.learning.batch_size == 1 or 1 in samples:
            require_training_on_one(self.network(), self.objective(), self.shape, samples)

    def require_the_same_code(self) -> None:
        """In another process, before anything is trained there: it has loaded what the run began with."""
        for setting, digest in digests_of(self.learning, self.code_folder).items():
            if digest != self.code.get(setting, digest):
                raise FedtwinError(
                    f"{setting} = {self.learning.own_code[setting]!r} is other code in a training worker than in the process "
                    "that began the run: its files, or values that it mentions, were changed after they were loaded. Start "
                    "Python again, and change nothing until the workers have begun."
                )

    def fingerprint(self) -> str:
        """The same for networks that are made the same and train the same, to the last bit."""
        return try_out(self.network(), self.learning, self.shape, self.outputs, self.code_folder)

    def initial(self) -> tuple[Layout, Weights]:
        """The model everybody starts from."""
        network = self.network()
        return model_layout(network), initial_weights(network)


def make_workload(config: Config, shape: tuple[int, ...], outputs: int) -> Workload:
    if config.learning is None:
        raise ValueError("a run without [learning] has no workload")
    if config.learning.augment != "none" and len(shape) != 3:
        raise FedtwinError(
            f"learning.augment = {config.learning.augment!r} is of images, and samples of shape {shape} are here: choose none."
        )
    own = config.learning.own_code
    if config.code.model_source is not None:
        check_same_source("learning.model", config.learning.model, config.code, config.code.model_source)
    for setting, digest in config.code.sources.items():
        check_same_source(setting, own[setting], config.code, digest)
    seed = stream(config.run.seed, int(Purpose.MODEL), 0)
    digests = digests_of(config.learning, config.code.folder)
    return Workload(config.learning, shape, outputs, seed, config.fleet.channels, config.code.folder, digests)


def digests_of(learning: LearningConfig, folder: str | None) -> dict[str, str]:
    """Of what trains and is the user's, as it is loaded in this process."""
    return {setting: code_digest(setting, name, folder, running=True) for setting, name in learning.own_code.items()}


def check_same_source(setting: str, name: str, code: CodeConfig, digest: str) -> None:
    """A device or worker of a live fleet trains the run's model, by its loss, not another one of the same name."""
    if source_digest(name, code.folder) != digest:
        where = f"in {code.folder!r}" if code.folder is not None else "here"
        raise FedtwinError(
            f"{setting} = {name!r}: the source {where} is not the run's, whose digest is {digest}: copy the edge server's "
            "files, or let a device take them (fedtwin edge --ship-code, fedtwin device --accept-code)."
        )


def _only_here(learning: LearningConfig) -> dict[str, str]:
    return {setting: name for setting, name in learning.own_code.items() if only_here(name)}


def make_executor(workload: Workload) -> Executor:
    """The configured executor; ``auto``: worker processes where there is more than one core and a network worth them."""
    learning = workload.learning
    name = learning.executor
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if name == "auto":
        name = "serial" if cores == 1 or learning.model in ("linear", "mlp") or _only_here(learning) else "processes"
        if learning.device == "cuda":
            name = "cuda"
    if learning.device == "cpu" and name == "cuda":
        raise FedtwinError("learning.executor = 'cuda' contradicts learning.device = 'cpu'.")
    if learning.device == "cuda" and name != "cuda":
        raise FedtwinError(f"learning.device = 'cuda' needs learning.executor = 'cuda', not {name!r}.")
    if name == "cuda":
        from fedtwin.learning.executors.cuda import CudaExecutor

        return CudaExecutor(workload)
    if name == "processes":
        for setting, own in _only_here(learning).items():
            why = "learning.executor = 'processes' builds it in other processes"
            raise FedtwinError(sentence_of_only_here(setting, own, why))
        from fedtwin.learning.executors.processes import ProcessExecutor

        return ProcessExecutor(workload, learning.workers or cores)
    from fedtwin.learning.executors.serial import SerialExecutor

    return SerialExecutor(workload)
