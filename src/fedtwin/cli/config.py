"""``fedtwin config``: show, check, and describe the settings."""

import typer

from fedtwin.cli.options import ConfigFile, JsonOption, PolicyOption, SetOption, configuration
from fedtwin.cli.screen import print_json

config_app = typer.Typer(help="Show, check and describe the settings.", rich_markup_mode=None)


@config_app.command()
def show(
    config_file: ConfigFile = None,
    policy: PolicyOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the whole configuration as TOML, defaults and changes together."""
    from fedtwin.config import to_toml

    config = configuration(config_file, assignments, policy=policy)
    if as_json:
        print_json(config.model_dump(mode="json"))
    else:
        typer.echo(to_toml(config).encode(), nl=False)  # TOML is UTF-8 whatever the terminal


@config_app.command()
def check(config_file: ConfigFile = None, policy: PolicyOption = None, assignments: SetOption = None) -> None:
    """Say whether a configuration is valid, and warn of what it cannot reach."""
    import warnings

    from fedtwin.config import config_hash
    from fedtwin.errors import FedtwinWarning
    from fedtwin.policies import scheme_name
    from fedtwin.sim import impossible_min_mean_samples
    from fedtwin.world.fleet import fleet_columns

    config = configuration(config_file, assignments, policy=policy)
    name = scheme_name(config)
    if config.learning is not None:
        from fedtwin.learning.data import load_dataset
        from fedtwin.learning.executors import make_workload
        from fedtwin.learning.notices import notices_of

        data = load_dataset(config.learning.dataset)
        workload = make_workload(config, data.image_shape, data.classes)
        workload.network()
        workload.check(fleet_columns(config).samples.tolist())
        for notice in notices_of(config):
            warnings.warn(notice, FedtwinWarning, stacklevel=1)
    if sentence := impossible_min_mean_samples(config):
        warnings.warn(sentence, FedtwinWarning, stacklevel=1)
    typer.echo(f"valid: {name}, {config.fleet.devices} devices, {config.run.rounds} rounds, hash {config_hash(config)}")


@config_app.command()
def schema() -> None:
    """Print the JSON schema of the configuration."""
    from fedtwin.config import Config

    print_json(Config.model_json_schema())
