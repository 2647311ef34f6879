"""What a person sees and reads while runs go on: a bar with the time left, how an interrupted batch goes on, what is kept."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Count = Callable[[int], None]
Say = Callable[[str], None]
SPEED_OVER_S = 600.0


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Count]:
    """A bar with the time left. Call it with how much is done."""
    with _bar(what, total) as (bar, task):
        shown, step = 0, max(1, total // 1000)

        def update(done: int) -> None:
            nonlocal shown
            if done >= shown + step:
                shown = done
                bar.update(task, completed=done)

        yield update


@contextmanager
def counting_bar(what: str, total: int) -> Iterator[Count]:
    """A bar with the time left. Call it with how many more are done."""
    with _bar(what, total) as (bar, task):
        yield lambda more: bar.advance(task, more)


@contextmanager
def _bar(what: str, total: int) -> Iterator[tuple["Progress", "TaskID"]]:
    """On standard error, if it is a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    quiet = not console.is_terminal
    with Progress(*columns, console=console, disable=quiet, transient=True, speed_estimate_period=SPEED_OVER_S) as bar:
        yield bar, bar.add_task(what, total=total)


def shown_by(progress: "bool | Count", what: str, total: int) -> "AbstractContextManager[Count | None]":
    """Who hears how many more runs are done: nobody, a bar (True), or a function of the caller's."""
    if callable(progress):
        return nullcontext(progress)
    return counting_bar(what, total) if progress else nullcontext()


@contextmanager
def saying_when_interrupted(sentence: str | None, say: Say | None) -> Iterator[None]:
    """What an interruption leaves, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if sentence is not None and say is not None:
            say(sentence)
        raise


def kept_when_interrupted(journal: Path | None, say: Say | None) -> AbstractContextManager[None]:
    """Says, when a batch is interrupted, whether what is finished is lost."""
    if journal is not None:
        sentence = f"Finished runs are kept in {journal}: the same command goes on from there."
    else:
        sentence = "Finished runs are lost: with --out DIR (out=DIR) they would be kept, and the same command go on."
    return saying_when_interrupted(sentence, say)
