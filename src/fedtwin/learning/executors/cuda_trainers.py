"""Training many clients at once on one GPU: every operation serves all of them, each with its own weights and samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedtwin.config import LearningConfig
from fedtwin.learning.binding import state_tensors
from fedtwin.learning.executors.base import Workload
from fedtwin.learning.executors.cuda_descent import NUMBERS, StepRule, descend, factors_of, numbers_of, rule_of
from fedtwin.learning.executors.cuda_flat import (
    EVALUATION_BATCH,
    FlatOrder,
    Task,
    Trainer,
    as_evaluated,
    as_tensor,
    as_weights,
    loss_and_correct,
    on_its_way,
)
from fedtwin.learning.executors.cuda_network import Stack, can_stack, forward, kernels, wide_convolutions
from fedtwin.learning.executors.cuda_one_by_one import OneByOneTrainer
from fedtwin.learning.layout import Weights
from fedtwin.learning.lessons import Lesson
from fedtwin.learning.local import Evaluated, Images, Trained, needs_pairs
from fedtwin.learning.objectives import objective_of
from fedtwin.learning.partition import Indices, batch_sizes

Precision = Literal["mixed", "float32"]
MOST_AT_ONCE = 64
MOST_AT_ONCE_PLAIN = 8
ROOM = 8
AGREEMENT = 1e-3
WHOLE_BYTES = 16


def make_trainer(workload: Workload, precision: Precision, device: str = "cuda") -> Trainer:
    """The stacked trainer for images and classes; or the one for all else, and for parts of a network not known here."""
    model, images = workload.network(), Images(workload.data(), device)
    stacks = workload.objective().is_plain and len(workload.shape) == 3
    if stacks and can_stack(model) and _agrees(model, workload.shape):
        return StackedTrainer(model, images, workload.learning, precision, device)
    return OneByOneTrainer(model, images, workload.learning, device, workload.code_folder)


@dataclass
class Plan:
    """Who trains on how many samples in which step. Clients with more steps come first, so that the busy lie side by side."""

    clients: list[int]
    steps: list[int]
    counts: NDArray[np.int32]

    def laid_out(self, values: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """(step, client, image) of what every client has for each of its samples, in the order of training; 0 elsewhere."""
        taken = np.arange(self.counts.max()) < self.counts[:, :, None]
        found = np.zeros(taken.shape, np.int64)
        for row, client in enumerate(self.clients):
            found[:, row][taken[:, row]] = values[client].ravel()
        return found


def make_plan(orders: list[Indices], batch_size: int, *, pairs: bool = False) -> Plan:
    sizes = [batch_sizes(order.shape[1], batch_size, pairs=pairs) * len(order) for order in orders]
    clients = sorted(range(len(orders)), key=lambda client: -len(sizes[client]))
    steps = [len(sizes[client]) for client in clients]
    counts = np.zeros((steps[0], len(clients)), np.int32)
    for row, client in enumerate(clients):
        counts[: steps[row], row] = sizes[client]
    return Plan(clients, steps, counts)


class Bench:
    """Where clients lie side by side while they train: at fixed addresses, as recorded graphs need them."""

    def __init__(self, clients: int, floats: int, wide: int, images: int, device: str, *, kept: int, crops: bool) -> None:
        self.floats, self.anchor, self.gradient = (torch.zeros(clients, floats, device=device) for _ in range(3))
        self.half = torch.zeros(clients, wide, dtype=torch.bfloat16, device=device)
        self.indices = torch.zeros(clients, images, dtype=torch.int64, device=device)
        self.counts = torch.ones(clients, dtype=torch.int32, device=device)
        self.losses = torch.zeros(clients, device=device)
        self.numbers = torch.ones(clients, NUMBERS, device=device)
        self.state = [torch.zeros(clients, floats, device=device) for _ in range(kept)]
        self.crops = torch.zeros_like(self.indices) if crops else None
        self.pool: Any = None if device == "cpu" else torch.cuda.graph_pool_handle()
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def load(self, starts: list[Tensor]) -> None:
        """A model may be a part of something larger, as a user's rule has made it: the kernel takes none but whole ones.

        It takes addresses, so it would read past the end of a vector that is shorter.
        """
        clients = len(starts)
        for start in starts:
            if (start.shape, start.dtype, start.device) != (self.floats[0].shape, self.floats.dtype, self.floats.device):
                raise ValueError(
                    f"a model of {tuple(start.shape)} {start.dtype} on {start.device} where others are on the bench"
                )
        starts = [start if _is_whole(start) else start.clone(memory_format=torch.contiguous_format) for start in starts]
        if self.half.shape[1]:
            kernels().load(starts, self.floats, self.anchor, self.half)
        else:
            torch.stack(starts, out=self.floats[:clients])
            self.anchor[:clients] = self.floats[:clients]
        self.losses.zero_()
        for kept in self.state:
            kept[:clients] = 0.0


def _is_whole(vector: Tensor) -> bool:
    return vector.is_contiguous() and vector.data_ptr() % WHOLE_BYTES == 0


class Ruler:
    """Where one model lies while it is measured, and the test images of one batch: at fixed addresses."""

    def __init__(self, floats: int, wide: int, images: Images, device: str) -> None:
        self.floats = torch.zeros(1, floats, device=device)
        self.half = torch.zeros(1, wide, dtype=torch.bfloat16, device=device)
        self.x, self.y = (torch.zeros_like(part[:EVALUATION_BATCH]) for part in (images.x_test, images.y_test))
        self.counts = torch.full((1,), EVALUATION_BATCH, dtype=torch.int32, device=device)
        self.total = torch.zeros(2, dtype=torch.float64, device=device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def load(self, floats: Tensor) -> None:
        self.floats.copy_(floats[None])
        self.half.copy_(self.floats[:, : self.half.shape[1]])
        self.total.zero_()


class UnderWay(NamedTuple):
    """Clients that are trained together: their weights when they are through, and loss and finiteness of each, (2, clients)."""

    tasks: list[Task]
    plan: Plan
    floats: Tensor
    summary: Tensor

    def trained(self, summary: NDArray[np.float32]) -> list[Trained]:
        """In the order of the tasks; ``summary`` is this part's, as it came from the GPU."""
        rows = zip(self.plan.clients, self.plan.steps, self.floats, *summary, strict=True)
        found = {}
        for client, steps, floats, loss, finite in rows:
            start, lesson = self.tasks[client]
            weights = as_weights(floats, start.counters + steps)
            found[client] = Trained(weights, float(loss) / lesson.order.size, bool(finite))
        return [found[client] for client in range(len(self.tasks))]


class StackedTrainer(Trainer):
    """All clients in every operation, each with its own weights and samples.

    ``mixed``: convolutions between wide layers take bfloat16 and sum in float32, weights and statistics are float32 throughout.
    Every operation is within 1 % of float32; a whole update is noisier, for rounding turns some ReLUs on or off.
    ``float32``: everything is, by plain PyTorch operations; networks without wide convolutions always are.
    The kernels are compiled when first used, which takes about 15 s; a step is recorded once per number of clients, in 0.1 s.
    """

    def __init__(
        self, model: nn.Module, images: Images, config: LearningConfig, precision: Precision, device: str = "cuda"
    ) -> None:
        self._model, self._images, self._config, self._device = model, images, config, device
        self._pairs = needs_pairs(model, images, config, objective_of(config))
        self._rule: StepRule = rule_of(config)
        wide = wide_convolutions(model)
        self._flat = FlatOrder(model, device, wide, channels_last=True)
        fused = precision == "mixed" and device != "cpu" and bool(wide) and find_spec("triton") is not None
        self._wide_names = wide if fused else set()
        self._wide_size = self._flat.first_size if fused else 0
        self._parameters = {name for name, _ in model.named_parameters()}
        self._dtype = torch.bfloat16 if fused else torch.float32
        self._bench: Bench | None = None
        self._ruler: Ruler | None = None
        self._most = MOST_AT_ONCE_PLAIN if wide and not fused else MOST_AT_ONCE

    def adopt(self, weights: Weights) -> Weights:
        return self._flat.adopt(weights)

    def host(self, weights: Weights) -> Weights:
        return self._flat.host(weights)

    def begin_training(self, tasks: list[Task]) -> Callable[[], list[Trained]]:
        """As many at once as memory is meant for, in parts of about the same size."""
        count = -(-len(tasks) // self._most)
        edges = [len(tasks) * part // count for part in range(count + 1)]
        parts = [self._begin(tasks[first:last]) for first, last in pairwise(edges)]
        summaries = on_its_way(torch.cat([part.summary for part in parts], dim=1))

        def wait() -> list[Trained]:
            split = np.split(summaries(), edges[1:-1], axis=1)
            return [trained for part, summary in zip(parts, split, strict=True) for trained in part.trained(summary)]

        return wait

    def begin_evaluation(self, models: list[Weights]) -> Callable[[], list[Evaluated]]:
        return as_evaluated([self._evaluate(as_tensor(model)) for model in models], len(self._images.y_test))

    def _begin(self, tasks: list[Task]) -> UnderWay:
        """All steps of these are on their way to the GPU."""
        lessons = [task.lesson for task in tasks]
        plan = make_plan([lesson.order for lesson in lessons], self._config.batch_size, pairs=self._pairs)
        floats, losses = self._descend([as_tensor(tasks[client].start) for client in plan.clients], plan, lessons)
        finite = torch.linalg.vector_norm(floats, float("inf"), dim=1).isfinite()
        return UnderWay(tasks, plan, floats, torch.stack([losses, finite.to(losses.dtype)]))

    def _descend(self, starts: list[Tensor], plan: Plan, lessons: list[Lesson]) -> tuple[Tensor, Tensor]:
        """All steps of all clients. Returns their weights, and the sum of every client's losses."""
        orders = plan.laid_out([lesson.order for lesson in lessons])
        indices, counts, numbers = (self._sent(a) for a in (orders, plan.counts, self._numbers(plan, lessons)))
        crops = self._crops(plan, lessons)
        bench = self._bench_for(len(starts), indices.shape[2])
        bench.load(starts)
        for step, busy in enumerate((plan.counts > 0).sum(1).tolist()):
            bench.indices[:busy, : indices.shape[2]] = indices[step, :busy]
            bench.counts[:busy] = counts[step, :busy]
            bench.numbers[:busy] = numbers[step, :busy]
            if bench.crops is not None and crops is not None:
                bench.crops[:busy, : indices.shape[2]] = crops[step, :busy]
            self._step(bench, busy)
        return bench.floats[: len(starts)].clone(), bench.losses[: len(starts)].clone()

    def _numbers(self, plan: Plan, lessons: list[Lesson]) -> NDArray[np.float32]:
        rates = [lessons[client].rate for client in plan.clients]
        if self._rule.rate is not None and set(rates) != {self._rule.rate}:
            raise ValueError(f"rates {sorted(set(rates))} of a run whose rate is {self._rule.rate} throughout")
        return numbers_of(self._rule, rates, len(plan.counts))

    def _crops(self, plan: Plan, lessons: list[Lesson]) -> Tensor | None:
        """Laid out as the samples are."""
        crops = [lesson.crops for lesson in lessons if lesson.crops is not None]
        if len(crops) != (len(lessons) if self._config.augment != "none" else 0):
            raise ValueError(f"{len(crops)} of {len(lessons)} lessons say how images are cropped")
        return self._sent(plan.laid_out(crops)) if crops else None

    def _sent(self, array: NDArray[Any]) -> Tensor:
        """On the GPU without a wait for what is under way there."""
        tensor = torch.from_numpy(array)
        return tensor if self._device == "cpu" else tensor.pin_memory().to(self._device, non_blocking=True)

    def _bench_for(self, clients: int, images: int) -> Bench:
        """The bench, made anew when it is too small. The largest graph comes first: the others fit into its memory."""
        bench = self._bench
        if bench is None or clients > len(bench.floats) or images > bench.indices.shape[1]:
            if self._device != "cpu":
                torch.cuda.synchronize()  # the steps of the old one may still be played
            self._bench = bench = None
            room = clients if self._device == "cpu" else min(self._most, -(-clients // ROOM) * ROOM)
            images = -(-images // ROOM) * ROOM
            kept, crops = self._rule.kept, self._config.augment != "none"
            self._bench = bench = Bench(room, self._flat.size, self._wide_size, images, self._device, kept=kept, crops=crops)
            if bench.pool is not None:
                self._step(bench, room)
        return bench

    def _step(self, bench: Bench, busy: int) -> None:
        """One step of the first ``busy`` clients: on a GPU a recorded one, for there are hundreds of kernels to launch."""
        if bench.pool is None:
            self._step_now(bench, busy)
            return
        if busy in bench.graphs:
            bench.graphs[busy].replay()
            return
        self._step_now(bench, busy)  # whatever is loaded or made when first used must be there before a recording
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=bench.pool, capture_error_mode="thread_local"):
            self._step_now(bench, busy)
        bench.graphs[busy] = graph

    def _step_now(self, bench: Bench, busy: int) -> None:
        stack = self._stack(bench.floats[:busy], bench.half[:busy], bench.gradient[:busy])
        stack.counts = bench.counts[:busy]
        bench.losses[:busy] += self._backward(stack, bench.indices[:busy], None if bench.crops is None else bench.crops[:busy])
        self._update(bench, busy)

    def _stack(self, floats: Tensor, half: Tensor, gradient: Tensor | None) -> Stack:
        """Views into the flat vectors, by name; every gradient has its place in ``gradient``."""
        stack = Stack({}, {}, {}, torch.empty(0, dtype=torch.int32, device=self._device), gradient is not None)
        for entry in self._flat.entries:
            tensor = self._flat.view(floats, entry).data  # a running mean may change while its neighbours are in use
            if gradient is not None and entry.name in self._parameters:
                stack.gradients[entry.name] = self._flat.view(gradient, entry)
                tensor.requires_grad_()
            if entry.name in self._wide_names:
                stack.halves[entry.name] = self._flat.view(half, entry)
            stack.tensors[entry.name] = tensor
        return stack

    def _backward(self, stack: Stack, indices: Tensor, crops: Tensor | None) -> Tensor:
        """Gradients of each client's mean loss over its real images; returns the sums."""
        with torch.enable_grad():
            images = self._images.batch(indices.flatten(), None if crops is None else crops.flatten())
            outputs = forward(self._model, self._input(images, len(indices)), stack)
            labels = self._images.y_train[indices.flatten()]
            each = functional.cross_entropy(outputs.flatten(0, 1).float(), labels, reduction="none").view(indices.shape)
            real = torch.arange(indices.shape[1], device=self._device) < stack.counts[:, None]
            sums = torch.where(real, each, 0.0).sum(1)
            leaves = [stack.tensors[name] for name in stack.gradients]
            found = torch.autograd.grad((sums / stack.counts).sum(), leaves, allow_unused=True)
        for place, gradient in zip(stack.gradients.values(), found, strict=True):
            if gradient is not None:  # the kernels have put theirs where it belongs
                place.copy_(gradient)
        return sums.detach()

    def _update(self, bench: Bench, busy: int) -> None:
        size, state = self._flat.parameter_size, [kept[:busy] for kept in bench.state]
        floats, anchor, gradient, half, numbers = (
            part[:busy] for part in (bench.floats, bench.anchor, bench.gradient, bench.half, bench.numbers)
        )
        if self._wide_size:
            factors = factors_of(self._rule, gradient[:, :size])
            kernels().descend(floats, anchor, gradient, half, state, numbers, factors, self._rule, size)
        else:
            parameters, anchor, gradient, *state = (flat[:, :size] for flat in (floats, anchor, gradient, *state))
            descend(self._rule, parameters, anchor, gradient, state, numbers)

    @torch.no_grad()
    def _evaluate(self, floats: Tensor) -> Tensor:
        """Losses and right answers on the test set, summed. Whole batches by one recorded step, what is left over as it is."""
        if self._ruler is None:
            self._ruler = Ruler(self._flat.size, self._wide_size, self._images, self._device)
        ruler, count = self._ruler, len(self._images.y_test)
        ruler.load(floats)
        whole = count - count % EVALUATION_BATCH
        for first in range(0, whole, EVALUATION_BATCH):
            ruler.x.copy_(self._images.x_test[first : first + EVALUATION_BATCH])
            ruler.y.copy_(self._images.y_test[first : first + EVALUATION_BATCH])
            self._measure(ruler)
        if whole < count:
            ruler.total += self._measured(ruler, self._images.x_test[whole:], self._images.y_test[whole:])
        return ruler.total.clone()

    def _measure(self, ruler: Ruler) -> None:
        if self._device == "cpu":
            ruler.total += self._measured(ruler, ruler.x, ruler.y)
            return
        if ruler.graph is None:
            self._measured(ruler, ruler.x, ruler.y)  # as for a step: what is made when first used must be there
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                ruler.total += self._measured(ruler, ruler.x, ruler.y)
            ruler.graph = graph
        ruler.graph.replay()

    def _measured(self, ruler: Ruler, x: Tensor, y: Tensor) -> Tensor:
        stack = self._stack(ruler.floats, ruler.half, None)
        stack.counts = ruler.counts.clamp(max=len(y))
        return loss_and_correct(forward(self._model, self._input(self._images.normalised(x), 1), stack)[0], y)

    def _input(self, normalised: Tensor, clients: int) -> Tensor:
        x = normalised.permute(0, 2, 3, 1).to(self._dtype)
        return x.reshape(clients, -1, *x.shape[1:])


def _agrees(model: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether the stacked network computes what the network itself does: a user's may use known parts in unknown ways."""
    tensors = {name: tensor.detach() for name, tensor in state_tensors(model).items()}
    views = {name: (tensor.permute(0, 2, 3, 1) if tensor.ndim == 4 else tensor)[None] for name, tensor in tensors.items()}
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            expected = model(x)
            stack = Stack(views, {}, {}, torch.tensor([2], dtype=torch.int32), False)
            found = forward(model, x.permute(0, 2, 3, 1)[None], stack)[0]
    except (RuntimeError, KeyError, IndexError):
        return False
    finally:
        model.train(was_training)
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=AGREEMENT, atol=AGREEMENT)
