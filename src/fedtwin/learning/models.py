"""The networks, by name; or a user's own, by ``module:factory``."""

from threading import Lock

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedtwin.errors import FedtwinError
from fedtwin.learning.binding import unfit
from fedtwin.learning.sharing import shared_attributes, shared_state
from fedtwin.usercode import load_object, sentence_of_error

ImageShape = tuple[int, int, int]
MODELS = ("linear", "mlp", "small-cnn", "resnet18", "resnet18-groupnorm")
GROUPS = 8
_ONE_AT_A_TIME = Lock()  # PyTorch's generator is global, and runs that share a GPU are threads


def linear(shape: ImageShape, classes: int) -> nn.Module:
    """Softmax regression: its loss is smooth and convex."""
    channels, height, width = shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, classes))


def mlp(shape: ImageShape, classes: int) -> nn.Module:
    """Two hidden layers of 64."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Flatten(), nn.Linear(channels * height * width, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, classes)
    )


def small_cnn(shape: ImageShape, classes: int) -> nn.Module:
    """5×5 convolutions of 16 and 32 without padding, each with 2×2 max-pooling, a 64-unit layer."""
    channels, height, width = shape
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
        nn.Linear(64, classes),
    )


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


def resnet18(shape: ImageShape, classes: int, *, group: bool = False) -> nn.Module:
    """ResNet-18 with a 3×3 stem and no first pooling, as is usual for small images."""
    layers: list[nn.Module] = [nn.Conv2d(shape[0], 64, 3, 1, 1, bias=False), _norm(64, group=group), nn.ReLU()]
    inputs = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inputs, outputs, stride, group=group), Block(outputs, outputs, 1, group=group)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def build_model(name: str, shape: ImageShape, classes: int, seed: int, folder: str | None = None) -> nn.Module:
    """A freshly initialised network, the same for the same seed; checked to take the images and to fit the classes."""
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed & 0x7FFF_FFFF_FFFF_FFFF)
        try:
            model = _build(name, shape, classes, folder)
        except (RuntimeError, ValueError, TypeError) as error:
            raise FedtwinError(_does_not_take(name, shape, error)) from None
        _check(name, model, shape, classes)
    return model


def _build(name: str, shape: ImageShape, classes: int, folder: str | None) -> nn.Module:
    if name == "linear":
        return linear(shape, classes)
    if name == "mlp":
        return mlp(shape, classes)
    if name == "small-cnn":
        return small_cnn(shape, classes)
    if name in ("resnet18", "resnet18-groupnorm"):
        return resnet18(shape, classes, group=name == "resnet18-groupnorm")
    if ":" not in name:
        raise FedtwinError(
            f"learning.model = {name!r} is unknown: choose one of {', '.join(MODELS)}, or module:factory of your own."
        )
    factory = load_object("learning.model", name, folder)
    try:
        model = factory(shape, classes)
    except Exception as error:
        raise FedtwinError(f"learning.model = {name!r} cannot be made: {sentence_of_error(error)}.") from None
    if not isinstance(model, nn.Module):
        raise FedtwinError(f"learning.model = {name!r} made a {type(model).__name__}, not a torch.nn.Module.")
    return model


def _check(name: str, model: nn.Module, shape: ImageShape, classes: int) -> None:
    outputs = _outputs(name, model, shape)
    if not isinstance(outputs, Tensor) or tuple(outputs.shape) != (2, classes):
        got = tuple(outputs.shape)[1:] if isinstance(outputs, Tensor) else type(outputs).__name__
        raise FedtwinError(f"learning.model = {name!r} gives outputs of shape {got} where the data has {classes} classes.")
    if reason := unfit(model) or shared_state(model) or _shared_attribute(name, model, shape):
        raise FedtwinError(f"learning.model = {name!r} cannot be trained here: {reason}.")


def _outputs(name: str, model: nn.Module, shape: ImageShape) -> object:
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return model(torch.zeros(2, *shape))
    except Exception as error:
        raise FedtwinError(_does_not_take(name, shape, error)) from None
    finally:
        model.train(was_training)


def _shared_attribute(name: str, model: nn.Module, shape: ImageShape) -> str | None:
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


def _does_not_take(name: str, shape: ImageShape, error: Exception) -> str:
    plain = isinstance(error, RuntimeError | ValueError | TypeError | IndexError) and str(error)
    sentence = str(error).splitlines()[0].rstrip(".") if plain else sentence_of_error(error)
    return f"learning.model = {name!r} does not take images of shape {shape}: {sentence}."
