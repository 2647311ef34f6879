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
    from fedtwin.experiments.specs.checking import check as sentences_about
    from fedtwin.learning.charges import charged
    from fedtwin.policies import scheme_name

    config = charged(configuration(config_file, assignments, policy=policy))
    for sentence in sentences_about(config):
        warnings.warn(sentence, FedtwinWarning, stacklevel=1)
    name, devices, rounds = scheme_name(config), config.fleet.devices, config.run.rounds
    typer.echo(f"valid: {name}, {devices} devices, {rounds} rounds, hash {config_hash(config)}")


@config_app.command()
def schema() -> None:
    """Print the JSON schema of the configuration."""
    from fedtwin.config import Config

    print_json(Config.model_json_schema())
