"""``fedtwin compare``: schemes on the same worlds, or run folders as they are."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedtwin.cli.options import JsonOption, RayOption, RoundsOption, SeedOption, SetOption, WorkersOption, settings_of
from fedtwin.cli.screen import interval, number, print_json, print_table, say
from fedtwin.extras import require_sim

SHOWN = {
    "mean_time_s": ("time s", ".3f"),
    "mean_energy_j": ("energy J", ".3f"),
    "declines": ("declines", ""),
    "drops": ("dropped", ""),
    "wasted_energy_j": ("wasted J", ".1f"),
    "least_mean_samples": ("least samples", ".2f"),
    "total_queue": ("total queue", ".0f"),
    "test_accuracy": ("accuracy", ".3f"),
    "test_metric": ("metric", ".3g"),
}

OF_SOME_RUNS = ("test_accuracy", "test_metric", "drops", "wasted_energy_j")
PER_ROUND, MARK = ("least_mean_samples", "total_queue"), "*"
NOTE = f"{MARK} per synchronous round, of up to M selections: not to be held against a round of one selection."


def compare(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="[CONFIG.toml | RUN_FOLDER...]")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, show_default="5", help="Worlds to run every scheme on.")] = None,
    rounds: RoundsOption = None,
    seed: SeedOption = None,
    schemes: Annotated[
        str | None, typer.Option(help="Schemes or policies, with commas between; the paper's, and a policy of one's own.")
    ] = None,
    assignments: SetOption = None,
    metrics: Annotated[
        list[str] | None, typer.Option("--metric", help="Pair by these numbers of the summary, with commas between.")
    ] = None,
    accuracy: Annotated[
        float | None, typer.Option(help="Pair by the time and the energy until the test accuracy is this, too.")
    ] = None,
    workers: WorkersOption = None,
    ray: RayOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for comparison.json and a row per run; an interrupted comparison goes on there.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare schemes on the same worlds, with paired differences; or finished run folders, without running anything."""
    require_sim("fedtwin compare")
    from fedtwin.experiments.compare import compare as run_comparison

    several = paths is not None and len(paths) > 1
    comparison = run_comparison(
        paths if several or not paths else paths[0],
        schemes,
        seeds=seeds,
        settings=settings_of(assignments, rounds=rounds, seed=seed),
        metrics=metrics,
        accuracy=accuracy,
        out=out,
        workers=workers,
        ray=ray,
        progress=True,
        say=say,
    )
    report = comparison.as_dict()
    if as_json:
        print_json(report)
        return
    _print_means(report, comparison.metrics)
    for metric in comparison.metrics:
        _print_differences(metric, [pair for pair in report["paired"] if pair["metric"] == metric])


def _print_means(report: dict[str, Any], metrics: tuple[str, ...]) -> None:
    schemes: dict[str, dict[str, Any]] = report["schemes"]
    of_some = {name for name in OF_SOME_RUNS if not all(name in means for means in schemes.values())}
    first = [name for name in SHOWN if name not in of_some]
    more = [name for name in metrics if name not in SHOWN and name != "mean_cost"]
    marked = {(scheme, name) for scheme in _synchronous_among_others(report) for name in PER_ROUND}
    columns = ["scheme", "cost Ω", "95 % interval", *(SHOWN[name][0] for name in first), *more, "seeds"]
    rows = [
        [
            scheme,
            f"{means['mean_cost']:.4f}",
            interval(means["mean_cost_low"], means["mean_cost_high"]),
            *(_shown(means[name], SHOWN[name][1]) + (MARK if (scheme, name) in marked else "") for name in first),
            *(_shown(means[name], "") for name in more),
            str(means["seeds"]),
        ]
        for scheme, means in schemes.items()
    ]
    title = "Means over selections (a synchronous round counts every device it waits for)"
    print_table(title, columns, rows, essential=5, note=NOTE if marked else None)


def _synchronous_among_others(report: dict[str, Any]) -> set[str]:
    """Synchronous schemes, where there are asynchronous ones too."""
    modes = {run["scheme"]: run.get("mode") for run in report["runs"]}
    return {scheme for scheme, mode in modes.items() if mode == "sync"} if "async" in modes.values() else set()


def _shown(value: float | None, form: str) -> str:
    if value is None:
        return "—"
    return f"{value:{form}}" if form else number(value, 1)


def _print_differences(metric: str, pairs: list[dict[str, Any]]) -> None:
    rows = [
        [
            f"{pair['first']} − {pair['second']}",
            "—" if pair["seeds"] == 0 else f"{pair['mean_difference']:+.4f}",
            interval(pair["low"], pair["high"], "+"),
            "—" if pair["p_value"] is None else f"{pair['p_value']:.1e}",
            "yes" if pair["significant"] else "no",
            str(pair["seeds"]),
        ]
        for pair in pairs
    ]
    if rows:
        of = "cost" if metric == "mean_cost" else metric
        columns = ["", "mean", "95 % interval", "p", "significant", "pairs"]
        print_table(f"Paired differences of {of}, world by world", columns, rows)
