"""The networks, by name; or a user's own, by ``module:factory``."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedtwin.errors import FedtwinError
from fedtwin.learning.binding import unfit
from fedtwin.learning.chance import seeded
from fedtwin.learning.sharing import shared_attributes, shared_state
from fedtwin.usercode import load_object, sentence_of_error

Shape = tuple[int, ...]
MODELS = ("linear", "mlp", "tcn", "small-cnn", "resnet18", "resnet18-groupnorm")
GROUPS = 8


def linear(shape: Shape, outputs: int) -> nn.Module:
    """Softmax regression, or a linear one: its loss is smooth and convex."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), outputs))


def mlp(shape: Shape, outputs: int) -> nn.Module:
    """Two hidden layers of 64, for samples of any shape."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(shape), 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs)
    )


class Dilated(nn.Module):
    """Two convolutions over time, each with GroupNorm, and a shortcut (Bai et al., 2018); stride 2 halves the window."""

    def __init__(self, inputs: int, outputs: int, dilation: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(inputs, outputs, 5, 2, 2 * dilation, dilation, bias=False)
        self.norm1 = nn.GroupNorm(GROUPS // 2, outputs)
        self.conv2 = nn.Conv1d(outputs, outputs, 5, 1, 2 * dilation, dilation, bias=False)
        self.norm2 = nn.GroupNorm(GROUPS // 2, outputs)
        self.shortcut = nn.Conv1d(inputs, outputs, 1, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def tcn(shape: Shape, outputs: int) -> nn.Module:
    """A small temporal convolutional network for windows (channels, length): three dilated blocks, the mean over time."""
    if len(shape) != 2 or shape[1] < 8:
        raise ValueError("windows (channels, length) of at least 8 steps are needed")
    blocks = [Dilated(inputs, width, dilation) for inputs, width, dilation in ((shape[0], 16, 1), (16, 32, 2), (32, 32, 4))]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, outputs))


def small_cnn(shape: Shape, outputs: int) -> nn.Module:
    """5×5 convolutions of 16 and 32 without padding, each with 2×2 max-pooling, a 64-unit layer."""
    channels, height, width = _image(shape)
    left = [((side - 4) // 2 - 4) // 2 for side in (height, width)]
    if min(left) < 1:
        raise ValueError("at least 16 × 16 pixels are needed")
    return nn.Sequential(
        nn.Conv2d(channels, 16, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * left[0] * left[1], 64),
        nn.ReLU(),
        nn.Linear(64, outputs),
    )


def _image(shape: Shape) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise ValueError("images (channels, height, width) are needed")
    return shape[0], shape[1], shape[2]


def _norm(channels: int, *, group: bool) -> nn.Module:
    return nn.GroupNorm(GROUPS, channels) if group else nn.BatchNorm2d(channels)


class Block(nn.Module):
    """Two 3×3 convolutions with a shortcut (He et al., 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, group: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = _norm(outputs, group=group)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = _norm(outputs, group=group)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), _norm(outputs, group=group))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet18(shape: Shape, outputs: int, *, group: bool = False) -> nn.Module:
    """ResNet-18 with a 3×3 stem and no first pooling, as is usual for small images."""
    layers: list[nn.Module] = [nn.Conv2d(_image(shape)[0], 64, 3, 1, 1, bias=False), _norm(64, group=group), nn.ReLU()]
    inputs = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inputs, width, stride, group=group), Block(width, width, 1, group=group)]
        inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, outputs))


FACTORIES = {"linear": linear, "mlp": mlp, "tcn": tcn, "small-cnn": small_cnn}


def build_model(name: str, shape: Shape, outputs: int, seed: int, folder: str | None = None) -> nn.Module:
    """A freshly initialised network, the same for the same seed; checked to take the samples and to fit the targets."""
    with seeded(seed & 0x7FFF_FFFF_FFFF_FFFF):
        try:
            model = _build(name, shape, outputs, folder)
        except (RuntimeError, ValueError, TypeError) as error:
            raise FedtwinError(_does_not_take(name, shape, error)) from None
        _check(name, model, shape, outputs)
    return model


def _build(name: str, shape: Shape, outputs: int, folder: str | None) -> nn.Module:
    if name in FACTORIES:
        return FACTORIES[name](shape, outputs)
    if name in ("resnet18", "resnet18-groupnorm"):
        return resnet18(shape, outputs, group=name == "resnet18-groupnorm")
    if ":" not in name:
        raise FedtwinError(
            f"learning.model = {name!r} is unknown: choose one of {', '.join(MODELS)}, or module:factory of your own."
        )
    factory = load_object("learning.model", name, folder)
    try:
        model = factory(shape, outputs)
    except Exception as error:
        raise FedtwinError(f"learning.model = {name!r} cannot be made: {sentence_of_error(error)}.") from None
    if not isinstance(model, nn.Module):
        raise FedtwinError(f"learning.model = {name!r} made a {type(model).__name__}, not a torch.nn.Module.")
    return model


def _check(name: str, model: nn.Module, shape: Shape, outputs: int) -> None:
    given = _outputs(name, model, shape)
    if not isinstance(given, Tensor) or tuple(given.shape) != (2, outputs):
        got = tuple(given.shape)[1:] if isinstance(given, Tensor) else type(given).__name__
        raise FedtwinError(
            f"learning.model = {name!r} gives outputs of shape {got} where the data has {outputs} classes, targets or labels."
        )
    if reason := unfit(model) or shared_state(model) or _shared_attribute(name, model, shape):
        raise FedtwinError(f"learning.model = {name!r} cannot be trained here: {reason}.")


def _outputs(name: str, model: nn.Module, shape: Shape) -> object:
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return model(torch.zeros(2, *shape))
    except Exception as error:
        raise FedtwinError(_does_not_take(name, shape, error)) from None
    finally:
        model.train(was_training)


def _shared_attribute(name: str, model: nn.Module, shape: Shape) -> str | None:
    """What every forward pass makes anew may share memory: only what outlives one is refused."""
    found = shared_attributes(model)
    if not found:
        return None
    _outputs(name, model, shape)
    later = shared_attributes(model)
    for attribute, (tensor, of) in found.items():
        if attribute in later and later[attribute][0] is tensor:
            return f"the attribute {attribute} shares memory with {of}: use {of} itself, or a clone in a buffer"
    return None


def _does_not_take(name: str, shape: Shape, error: Exception) -> str:
    plain = isinstance(error, RuntimeError | ValueError | TypeError | IndexError) and str(error)
    sentence = str(error).splitlines()[0].rstrip(".") if plain else sentence_of_error(error)
    what = {1: "rows", 2: "windows"}.get(len(shape), "images")
    return f"learning.model = {name!r} does not take {what} of shape {shape}: {sentence}."
