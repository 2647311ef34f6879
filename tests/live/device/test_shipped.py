"""Code from the edge server is taken by its digest, or not at all, and nothing of it is loaded before."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedtwin.config import Config, build_config, replace_settings
from fedtwin.errors import FedtwinError
from fedtwin.live.device.shipped import CodeRules
from fedtwin.live.device.torch_trainer import TorchTrainer
from fedtwin.live.wire.settings import one_digest, shared_settings, shipped_code

FACTORY = "from parts import width\nraise SystemExit('loaded')\n"


@pytest.fixture
def edge(tmp_path: Path) -> Config:
    """The settings at the edge server, where the source is."""
    folder = tmp_path / "edge"
    (folder / "parts").mkdir(parents=True)
    (folder / "mine.py").write_text(FACTORY, encoding="utf-8")
    (folder / "parts" / "__init__.py").write_text("width = 8  # für alle\n", encoding="utf-8")
    (folder / "secret.py").write_text("KEY = 1\n", encoding="utf-8")
    return build_config({"code": {"folder": str(folder)}}, {"learning.model": "mine:net", "learning.dataset": "digits"})


@pytest.fixture
def board(edge: Config) -> Config:
    """The settings as they come to a board."""
    return Config.model_validate(shared_settings(edge))


@pytest.fixture
def rules() -> Iterator[CodeRules]:
    rules = CodeRules(accept=True)
    yield rules
    rules.close()


def test_what_the_factory_reaches_travels_and_nothing_else(edge: Config, board: Config, rules: CodeRules) -> None:
    code = shipped_code(edge)
    assert code == {"mine.py": FACTORY, "parts/__init__.py": "width = 8  # für alle\n"}
    trainer = TorchTrainer("d0", None, None, None)
    assert trainer.lacks_code(board)
    taken = rules.take(board, code)
    folder = Path(str(taken.code.folder))
    assert (folder / "mine.py").read_text(encoding="utf-8") == FACTORY
    assert not TorchTrainer("d0", None, None, None, code=folder).lacks_code(board)
    rules.close()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"mine.py": FACTORY + "# a word more\n"}, "has another digest"),
        ({"more.py": "import os\n"}, "has another digest"),
        ({"../mine.py": FACTORY}, "'../mine.py' is no place for a module"),
        ({"/etc/mine.py": FACTORY}, "is no place for a module"),
        ({"mine.so": ""}, "is no place for a module"),
    ],
)
def test_other_code_is_refused_with_the_digest_that_was_wanted(
    edge: Config, board: Config, rules: CodeRules, changed: dict[str, str], words: str, tmp_path: Path
) -> None:
    with pytest.raises(FedtwinError) as refused:
        rules.take(board, {**shipped_code(edge), **changed})
    assert words in str(refused.value) and str(board.code.model_source) in str(refused.value)
    assert not (tmp_path / "mine.py").exists()


def test_a_loss_of_ones_own_travels_with_the_model(edge: Config, rules: CodeRules) -> None:
    folder = Path(str(edge.code.folder))
    (folder / "losses.py").write_text("def loss(outputs, targets): ...\n", encoding="utf-8")
    edge = replace_settings(edge, {"learning.loss": "losses:loss"})
    board = Config.model_validate(shared_settings(edge))
    digest = one_digest(board.code)
    assert digest not in (None, board.code.model_source, *board.code.sources.values())
    CodeRules(digest=digest).check(board)
    with pytest.raises(FedtwinError, match=f"the run has the digest {digest}"):
        CodeRules(digest=board.code.model_source).check(board)
    assert sorted(shipped_code(edge)) == ["losses.py", "mine.py", "parts/__init__.py"]
    assert rules.take(board, shipped_code(edge)).code.sources == board.code.sources


def test_an_edge_server_that_ships_nothing_is_named(board: Config, rules: CodeRules) -> None:
    with pytest.raises(FedtwinError, match=rf"digest {board.code.model_source}, is not here.*--ship-code"):
        rules.take(board, None)


def test_a_pinned_digest_allows_no_other_code(board: Config) -> None:
    digest = str(board.code.model_source)
    CodeRules(digest=digest[:16]).check(board)
    CodeRules(digest="0" * 64).check(build_config({}, {}))
    with pytest.raises(FedtwinError, match=f"allows no other code: that of the run has the digest {digest}"):
        CodeRules(digest="0" * 16).check(board)
    with pytest.raises(FedtwinError, match="16 to 64 hexadecimal digits"):
        CodeRules(digest=digest[:15])


def test_a_built_in_model_is_nothing_to_ship() -> None:
    with pytest.raises(FedtwinError, match="--ship-code has nothing to ship"):
        shipped_code(build_config({}, {"learning.model": "mlp", "learning.dataset": "digits"}))
