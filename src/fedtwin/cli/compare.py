"""``fedtwin compare``: schemes on the same worlds, or run folders as they are."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedtwin.cli.options import JsonOption, RayOption, RoundsOption, SeedOption, SetOption, WorkersOption, configuration
from fedtwin.cli.screen import counting_bar, interval, kept_when_interrupted, number, plain, print_json, print_table
from fedtwin.errors import FedtwinError
from fedtwin.registry import SCHEMES

JOURNAL_NAME, COMPARISON_NAME = "unfinished.jsonl", "comparison.json"


def compare(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="[CONFIG.toml | RUN_FOLDER...]")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Worlds to run every scheme on.")] = 5,
    rounds: RoundsOption = None,
    seed: SeedOption = None,
    schemes: Annotated[
        str | None, typer.Option(help="Schemes or policies, with commas between; the paper's, and a policy of one's own.")
    ] = None,
    assignments: SetOption = None,
    workers: WorkersOption = None,
    ray: RayOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for comparison.json; an interrupted comparison goes on there.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare schemes on the same worlds, with paired differences; or finished run folders, without running anything."""
    from fedtwin.experiments.backends import open_backend
    from fedtwin.experiments.batch import begun, keep_code
    from fedtwin.experiments.compare import compare_folders, compare_schemes, comparison_jobs
    from fedtwin.records.checksums import write_checked
    from fedtwin.records.folder import json_bytes

    paths = paths or []
    _require_no_comparison_in(out)
    if paths and (len(paths) > 1 or paths[0].is_dir()):
        if rounds is not None or seed is not None or assignments:
            raise FedtwinError("--rounds, --seed and --set are for running: run folders are compared as they are.")
        comparison, jobs = compare_folders(paths), []
    else:
        base = configuration(paths[0] if paths else None, assignments, rounds=rounds, seed=seed)
        own = [base.policy.name] if ":" in base.policy.name else []
        names = [*own, *SCHEMES] if schemes is None else [name.strip() for name in schemes.split(",") if name.strip()]
        if not names:
            raise FedtwinError(f"--schemes {schemes!r} names none: choose from {', '.join(SCHEMES)}.")
        journal = out / JOURNAL_NAME if out is not None else None
        folder = paths[0].parent if paths else Path.cwd()
        jobs = comparison_jobs(base, names, seeds, folder)
        if journal is not None and (sentence := begun(jobs, journal, "comparison")):
            typer.echo(sentence, err=True)
        with (
            open_backend(workers, ray) as backend,
            kept_when_interrupted(journal),
            counting_bar("runs", len(names) * seeds) as progress,
        ):
            comparison = compare_schemes(base, names, seeds, folder=folder, backend=backend, journal=journal, progress=progress)
    report = comparison.as_dict()
    if out is not None:
        _require_no_comparison_in(out)
        try:
            out.mkdir(parents=True, exist_ok=True)
            keep_code(jobs, out)
            write_checked(out, {COMPARISON_NAME: json_bytes(plain(report))})
        except OSError as error:
            raise FedtwinError(f"--out {str(out)!r} cannot be written: {error.strerror}.") from None
        (out / JOURNAL_NAME).unlink(missing_ok=True)
    if as_json:
        print_json(report)
        return
    _print_means(report)
    _print_differences(report)


def _require_no_comparison_in(out: Path | None) -> None:
    if out is not None and (out / COMPARISON_NAME).exists():
        raise FedtwinError(f"--out {str(out)!r} holds a comparison already: name another folder, nothing is overwritten.")


def _print_means(report: dict[str, Any]) -> None:
    columns = [
        "scheme",
        "cost Ω",
        "95 % interval",
        "time s",
        "energy J",
        "declines",
        "least samples",
        "total queue",
        "seeds",
    ]
    trained = all("test_accuracy" in means for means in report["schemes"].values())
    columns += ["accuracy"] if trained else []
    rows = [
        [
            scheme,
            f"{means['mean_cost']:.4f}",
            interval(means["mean_cost_low"], means["mean_cost_high"]),
            f"{means['mean_time_s']:.3f}",
            f"{means['mean_energy_j']:.3f}",
            number(means["declines"], 1),
            f"{means['least_mean_samples']:.2f}",
            f"{means['total_queue']:.0f}",
            str(means["seeds"]),
        ]
        + ([f"{means['test_accuracy']:.3f}"] if trained else [])
        for scheme, means in report["schemes"].items()
    ]
    print_table("Means over selections (a synchronous round counts every device it waits for)", columns, rows, essential=5)


def _print_differences(report: dict[str, Any]) -> None:
    rows = [
        [
            f"{pair['first']} − {pair['second']}",
            f"{pair['mean_difference']:+.4f}",
            interval(pair["low"], pair["high"], "+"),
            "—" if pair["p_value"] is None else f"{pair['p_value']:.1e}",
            "yes" if pair["significant"] else "no",
        ]
        for pair in report["paired"]
    ]
    if rows:
        print_table("Paired differences of cost, world by world", ["", "mean", "95 % interval", "p", "significant"], rows)
