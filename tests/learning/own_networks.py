"""Networks as users write them: state that is bound anew, tied, frozen, lazy, of every type, or hidden."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

PIXELS, HIDDEN = 64, 12


class Rebinds(nn.Module):
    """A running mean, bound anew at every step as in ordinary PyTorch; a flag and a mask beside it."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(PIXELS, HIDDEN), nn.Linear(HIDDEN, classes)
        self.centre: Tensor
        self.seen: Tensor
        self.mask: Tensor
        self.level: Tensor
        self.register_buffer("centre", torch.zeros(HIDDEN))
        self.register_buffer("seen", torch.tensor(False))
        self.register_buffer("mask", (torch.arange(HIDDEN) % 3 > 0).to(torch.uint8))
        self.register_buffer("level", torch.zeros(1, dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x.flatten(1)) * self.mask
        if self.training:
            self.centre = 0.9 * self.centre + 0.1 * y.detach().mean(0)
            self.seen = self.seen | True
            self.level = self.level + 1
        return torch.as_tensor(self.last((y - self.centre * self.seen).relu()))


class Clips(nn.Module):
    """Keeps its weights small by ``.data = …``, which leaves the old memory behind."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(PIXELS, HIDDEN), nn.Linear(HIDDEN, classes)

    def forward(self, x: Tensor) -> Tensor:
        self.last.weight.data = torch.renorm(self.last.weight.data, 2, 0, 0.4)
        return torch.as_tensor(self.last(self.first(x.flatten(1)).relu()))


class Tied(nn.Module):
    """One matrix there and back, and a buffer with two names."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.there, self.back = nn.Linear(PIXELS, PIXELS, bias=False), nn.Linear(PIXELS, PIXELS, bias=False)
        self.back.weight = self.there.weight
        self.last = nn.Linear(PIXELS, classes)
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(()))
        self.last.register_buffer("factor", self.scale)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.scale.mul_(0.99)
        return torch.as_tensor(self.last(self.back(self.there(x.flatten(1)).tanh())) * self.last.factor)


class Frozen(nn.Module):
    """Features that are not to be trained."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.features, self.last = nn.Linear(PIXELS, HIDDEN), nn.Linear(HIDDEN, classes)
        self.features.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.last(self.features(x.flatten(1)).relu()))


class Lazy(nn.Module):
    """Its shapes are known at the first forward pass; ``unused`` is never passed."""

    def __init__(self, classes: int, *, unused: bool) -> None:
        super().__init__()
        self.first, self.last = nn.LazyLinear(HIDDEN), nn.LazyLinear(classes)
        if unused:
            self.unused = nn.LazyLinear(3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.last(self.first(x.flatten(1)).relu()))


class Changes(nn.Module):
    """A network with one tensor that ``change`` alters at every step of a training; a matrix has two names."""

    def __init__(self, classes: int, change: Callable[["Changes"], None], tensor: Tensor | None) -> None:
        super().__init__()
        self.last = nn.Linear(PIXELS, classes)
        self._change = change
        self.extra: Tensor
        self.register_buffer("extra", tensor)
        self.hidden = 1.0
        if tensor is not None and tensor.dim() == 2:
            self.twin = nn.Identity()
            self.twin.register_buffer("extra", tensor)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self._change(self)
        return torch.as_tensor(self.last(x.flatten(1)) * self.hidden)


class OneForAll(nn.Module):
    """Batch normalisation over nothing but the batch."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(PIXELS), nn.Linear(PIXELS, classes)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.last(self.norm(x.flatten(1))))


class OwnNorm(nn.Module):
    """The deviation of one sample is NaN, without an error."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.last = nn.Linear(PIXELS, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return torch.as_tensor(self.last((x - x.mean(0)) / (x.std(0) + 1.0) if self.training else x))


Shape = tuple[int, int, int]


def rebinds(shape: Shape, classes: int) -> nn.Module:  # noqa: ARG001
    return Rebinds(classes)


def clips(shape: Shape, classes: int) -> nn.Module:  # noqa: ARG001
    return Clips(classes)


def tied(shape: Shape, classes: int) -> nn.Module:  # noqa: ARG001
    return Tied(classes)


def frozen(shape: Shape, classes: int) -> nn.Module:  # noqa: ARG001
    return Frozen(classes)


def frozen_sequence(shape: Shape, classes: int) -> nn.Module:  # noqa: ARG001
    """Of parts that the GPU knows how to stack."""
    first = nn.Linear(PIXELS, HIDDEN)
    first.requires_grad_(False)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(HIDDEN, classes))


def lazy(shape: Shape, classes: int) -> nn.Module:  # noqa: ARG001
    return Lazy(classes, unused=False)


def lazy_unused(shape: Shape, classes: int) -> nn.Module:  # noqa: ARG001
    return Lazy(classes, unused=True)


def one_for_all(shape: Shape, classes: int) -> nn.Module:  # noqa: ARG001
    return OneForAll(classes)


def own_norm(shape: Shape, classes: int) -> nn.Module:  # noqa: ARG001
    return OwnNorm(classes)


def _with_buffer(dtype: torch.dtype) -> Callable[[Shape, int], nn.Module]:
    return lambda _, classes: Changes(classes, lambda _: None, torch.ones(3, dtype=dtype))


float64_buffer, bfloat16_buffer, complex_buffer = map(_with_buffer, (torch.float64, torch.bfloat16, torch.complex64))


def half_parameters(shape: Shape, classes: int) -> nn.Module:  # noqa: ARG001
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(PIXELS, classes, dtype=torch.bfloat16)

        def forward(self, x: Tensor) -> Tensor:
            return torch.as_tensor(self.last(x.flatten(1).to(torch.bfloat16)).float())

    return Half()


def _changing(change: Callable[[Changes], None], tensor: Tensor | None) -> Callable[[Shape, int], nn.Module]:
    return lambda _, classes: Changes(classes, change, tensor)


def _widen(net: Changes) -> None:
    net.extra = net.extra.double()


def _grow(net: Changes) -> None:
    net.extra = torch.cat([net.extra, net.extra])


def _appear(net: Changes) -> None:
    net.extra = torch.ones(2)


def _vanish(net: Changes) -> None:
    net.extra = None  # type: ignore[assignment]


def _part(net: Changes) -> None:
    net.extra = net.extra + 1.0


def _replace(net: Changes) -> None:
    net.last.weight = nn.Parameter(net.last.weight.detach() * 0.9)


def _remember(net: Changes) -> None:
    net.hidden *= 0.9


def _fail(net: Changes) -> None:
    raise LookupError(f"no {net.hidden:g} here")


widens, grows, parts = (_changing(c, torch.zeros(shape)) for c, shape in ((_widen, 3), (_grow, 3), (_part, (1, 1))))
appears, vanishes = _changing(_appear, None), _changing(_vanish, torch.zeros(3))
replaces, remembers, fails = (_changing(change, None) for change in (_replace, _remember, _fail))


class Shares(nn.Module):
    """A square matrix that ``share`` puts somewhere a second time."""

    def __init__(self, classes: int, share: Callable[["Shares"], None]) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(PIXELS, PIXELS, bias=False) for _ in range(2))
        self.last = nn.Linear(PIXELS, classes)
        self.aside: object = None
        share(self)

    def forward(self, x: Tensor) -> Tensor:
        self.seen = self.first.weight[:3]
        return torch.as_tensor(self.last(self.second(self.first(x.flatten(1)).tanh())))


def _sharing(share: Callable[[Shares], None]) -> Callable[[Shape, int], nn.Module]:
    return lambda _, classes: Shares(classes, share)


def _by_data(net: Shares) -> None:
    net.second.weight.data = net.first.weight.data


def _by_transpose(net: Shares) -> None:
    net.second.weight = nn.Parameter(net.first.weight.data.t())


def _by_buffer(net: Shares) -> None:
    net.register_buffer("begun", net.first.weight.data)


def _by_attribute(net: Shares) -> None:
    net.aside = net.first.weight.detach()


def _by_list(net: Shares) -> None:
    net.aside = [net.first.weight.t()]


def _by_halves(net: Shares) -> None:
    both = torch.randn(PIXELS, 2 * PIXELS) / PIXELS
    net.first.weight, net.second.weight = (nn.Parameter(half) for half in both.chunk(2, 1))


shares_data, shares_transposed, shares_buffer = map(_sharing, (_by_data, _by_transpose, _by_buffer))
shares_attribute, shares_list, halves = map(_sharing, (_by_attribute, _by_list, _by_halves))


class Permutes(nn.Module):
    """Pixels in an order of its own."""

    def __init__(self, classes: int, order: list[int]) -> None:
        super().__init__()
        self.last, self.order = nn.Linear(PIXELS, classes), order

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.last(x.flatten(1)[:, self.order]))


CHANCE_AT_IMPORT = np.random.permutation(PIXELS).tolist()


def chance_of_numpy(shape: Shape, classes: int) -> nn.Module:  # noqa: ARG001
    return Permutes(classes, np.random.permutation(PIXELS).tolist())


def chance_at_import(shape: Shape, classes: int) -> nn.Module:  # noqa: ARG001
    return Permutes(classes, CHANCE_AT_IMPORT)


def order_of_a_set(shape: Shape, classes: int) -> nn.Module:  # noqa: ARG001
    return Permutes(classes, [int(pixel) for pixel in {str(i) for i in range(PIXELS)}])


class Squeezes(nn.Module):
    """Drops every axis of length one, that of a batch of one too."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.last = nn.Linear(PIXELS, classes)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.last(x.flatten(1).squeeze()))


class RootOfVariance(nn.Module):
    """The deviation of one sample is 0, and its gradient NaN."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(PIXELS, HIDDEN), nn.Linear(HIDDEN, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x.flatten(1))
        return torch.as_tensor(self.last(y / (y.var(0, unbiased=False).sqrt() + 1.0) if self.training else y))


class FailsLate(nn.Module):
    """Forgets how after some steps; no trial is as long."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.last = nn.Linear(PIXELS, classes)
        self.steps: Tensor
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.steps += 1
        if self.steps > 6:
            raise KeyError("seventh")
        return torch.as_tensor(self.last(x.flatten(1)))


class FailsAtOnce(nn.Module):
    """An assertion, as users write them."""

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1] == 7, "seven channels"
        return x


def squeezes(shape: Shape, classes: int) -> nn.Module:  # noqa: ARG001
    return Squeezes(classes)


def root_of_variance(shape: Shape, classes: int) -> nn.Module:  # noqa: ARG001
    return RootOfVariance(classes)


def fails_late(shape: Shape, classes: int) -> nn.Module:  # noqa: ARG001
    return FailsLate(classes)


def fails_at_once(shape: Shape, classes: int) -> nn.Module:  # noqa: ARG001
    return FailsAtOnce()


class Counts(nn.Module):
    """What ``step`` does at every step of a training, told its number, and a state in a list."""

    def __init__(self, classes: int, step: Callable[["Counts", Tensor], None]) -> None:
        super().__init__()
        self.square, self.last = nn.Linear(PIXELS, PIXELS), nn.Linear(PIXELS, classes)
        self._step, self.aside = step, [torch.zeros(())]
        self.steps: Tensor
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.steps += 1
            self._step(self, x)
        return torch.as_tensor(self.last(self.square(x.flatten(1)).tanh()) * (1.0 + self.aside[0]))


def _counting(step: Callable[[Counts, Tensor], None]) -> Callable[[Shape, int], nn.Module]:
    return lambda _, classes: Counts(classes, step)


def _add_aside(net: Counts, x: Tensor) -> None:
    net.aside[0].add_(x.mean())


def _transpose(net: Counts, x: Tensor) -> None:  # noqa: ARG001
    net.square.weight.data = net.square.weight.data.t()


def _appear_late(net: Counts, x: Tensor) -> None:  # noqa: ARG001
    if net.steps > 6 and not hasattr(net, "late"):
        net.register_buffer("late", torch.ones(2))


adds_aside, transposes, appears_late = map(_counting, (_add_aside, _transpose, _appear_late))
