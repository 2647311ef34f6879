from pathlib import Path

import pytest
import torch

from fedtwin.errors import FedtwinError
from fedtwin.learning.models import MODELS, build_model

NETS = "tests.learning.own_networks"
GREY, COLOUR, WINDOW = (1, 28, 28), (3, 32, 32), (2, 128)


def size(name: str, shape: tuple[int, ...]) -> int:
    return sum(parameter.numel() for parameter in build_model(name, shape, 10, 0).parameters())


def test_sizes_are_the_published_ones() -> None:
    assert size("linear", GREY) == 7_850
    assert size("small-cnn", GREY) == 46_730
    assert size("tcn", WINDOW) == 21_578
    assert size("resnet18", COLOUR) == 11_173_962, "ResNet-18 for CIFAR-10 with a 3×3 stem"


@pytest.mark.parametrize("name", MODELS)
def test_the_same_seed_gives_the_same_network(name: str) -> None:
    shape = WINDOW if name == "tcn" else GREY
    one, same, other = (next(build_model(name, shape, 10, seed).parameters()) for seed in (5, 5, 6))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_building_leaves_the_users_random_numbers_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    build_model("mlp", GREY, 10, 99)
    assert torch.equal(torch.rand(4), expected)


def test_groupnorm_has_no_running_statistics() -> None:
    assert not dict(build_model("resnet18-groupnorm", COLOUR, 10, 0).named_buffers())
    assert dict(build_model("resnet18", COLOUR, 10, 0).named_buffers())


def test_a_users_own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n"
        "def good(shape, classes): return nn.Sequential(nn.Flatten(), nn.Linear(shape[0]*shape[1]*shape[2], classes))\n"
        "def wide(shape, classes): return nn.Sequential(nn.Flatten(), nn.Linear(shape[0]*shape[1]*shape[2], 12))\n"
        "def square(shape, classes): return nn.Sequential(nn.Flatten(), nn.Linear(99, classes))\n"
        "def number(shape, classes): return 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert build_model("nets:good", GREY, 10, 0)
    for name, sentence in (
        ("nets:wide", r"gives outputs of shape \(12,\) where the data has 10 classes"),
        ("nets:square", r"does not take images of shape \(1, 28, 28\)"),
        ("nets:number", "made a int"),
        ("nets:nothing", "cannot be loaded"),
        ("best", "choose one of linear, mlp, tcn, small-cnn"),
    ):
        with pytest.raises(FedtwinError, match=sentence):
            build_model(name, GREY, 10, 0)


def test_images_that_are_too_small_are_one_sentence() -> None:
    with pytest.raises(FedtwinError, match="'small-cnn' does not take images"):
        build_model("small-cnn", (1, 8, 8), 10, 0)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("shares_data", "first.weight and second.weight share memory"),
        ("shares_transposed", "first.weight and second.weight share memory"),
        ("shares_buffer", "first.weight and begun share memory"),
        ("shares_attribute", "the attribute aside shares memory with first.weight"),
        ("shares_list", r"the attribute aside\[0\] shares memory with first.weight"),
    ],
)
def test_tensors_in_each_others_memory_are_refused_by_name(name: str, words: str) -> None:
    with pytest.raises(FedtwinError, match=f"^learning.model = '{NETS}:{name}' .*{words}"):
        build_model(f"{NETS}:{name}", (1, 8, 8), 10, 0)


def test_tensors_side_by_side_in_one_memory_are_two() -> None:
    assert build_model(f"{NETS}:halves", (1, 8, 8), 10, 0)


def test_any_error_of_a_forward_pass_is_a_sentence() -> None:
    with pytest.raises(FedtwinError, match=r"at_once' does not take .* AssertionError: seven channels \(.*own_networks.py"):
        build_model(f"{NETS}:fails_at_once", (1, 8, 8), 10, 0)


@pytest.mark.parametrize("side", [4, 8, 12, 15])
def test_images_that_are_too_small_for_convolutions_are_one_sentence_and_no_warning(side: int) -> None:
    """A warning of PyTorch's would be an error here."""
    sentence = rf"'small-cnn' does not take images of shape \(1, {side}, 20\): at least 16 × 16 pixels are needed\.$"
    with pytest.raises(FedtwinError, match=sentence):
        build_model("small-cnn", (1, side, 20), 10, 0)
    build_model("small-cnn", (1, 16, 16), 10, 0)
