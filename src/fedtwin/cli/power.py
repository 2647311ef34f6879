"""``fedtwin power``: one device's choice of power, explained."""

import math
from dataclasses import asdict
from typing import Annotated

import typer

from fedtwin.cli.options import ConfigFile, JsonOption, SetOption, configuration
from fedtwin.cli.screen import print_json

WHY_NOT = {
    "compute-time": "training alone takes max_time_s or longer (C6), so no power helps",
    "compute-energy": "training alone spends max_energy_j or more (C5), so no power helps",
    "power-limit": "uploading in time (C6) needs {min_power_w:.4g} W, more than the radio's {max_power_w:.4g} W (C2)",
    "energy-limit": "uploading in time (C6) needs {min_power_w:.4g} W, but the energy left (C5) allows {max_power_w:.4g} W",
}
WHY = {
    "none": "the cost is least inside the interval: no constraint binds",
    "time": "the cost would fall further at lower power, but the upload must end in time: max_time_s binds (C6)",
    "power": "the cost would fall further at higher power, but the radio gives no more: max_power_w binds (C2)",
    "energy": "the cost would fall further at higher power, but the energy runs out: max_energy_j binds (C5)",
}


def power(
    config_file: ConfigFile = None,
    gain: Annotated[float, typer.Option(help="Channel gain h, linear.")] = ...,  # type: ignore[assignment]
    cpu_hz: Annotated[float, typer.Option(help="CPU frequency of the round.")] = ...,  # type: ignore[assignment]
    samples: Annotated[float, typer.Option(help="Samples to train on.")] = ...,  # type: ignore[assignment]
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say which power a device chooses and which constraint decides it."""
    from fedtwin.formulas.power import plan_power
    from fedtwin.learning.charges import charged

    config = charged(configuration(config_file, assignments))
    fields = asdict(plan_power(config, gain, cpu_hz, samples))
    if as_json:
        print_json(fields)
        return
    if not fields["feasible"]:
        typer.echo(f"The device declines ({fields['reason']}): {WHY_NOT[fields['reason']].format(**fields)}.")
        return
    low, high = fields["min_power_w"], fields["max_power_w"]
    typer.echo(f"The device sends at {fields['power_w']:.6g} W, allowed {low:.6g} W to {high:.6g} W.")
    typer.echo(f"Why: {WHY[fields['binding']]}.")
    typer.echo(
        f"The update takes {fields['time_s']:.4g} s and {fields['energy_j']:.4g} J, a cost of {fields['cost']:.4g}; "
        f"SNR {10 * math.log10(fields['power_w'] * gain) + 30 - config.radio.noise_dbm:.1f} dB."
    )
