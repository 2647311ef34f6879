"""What lies in deploy/: every command line in it is one that fedtwin understands, and its files are what their readers take."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from fedtwin import live
from fedtwin.cli.app import app
from fedtwin.live.broker.program import executable

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
PLAYBOOK = DEPLOY / "ansible"
YAML = [DEPLOY / "compose.yaml", *sorted(PLAYBOOK.rglob("*.yml"))]


def commands_of_units() -> Iterator[tuple[str, str]]:
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8").replace("%i", "press-1")
        known = {"FEDTWIN_SERVER": "tls://HOST:4222", "FEDTWIN_EDGE": ""}
        said = [known | {"FEDTWIN_TRAINING": words} for words in re.findall(r'FEDTWIN_TRAINING=(--[^"]*|"[^"]*")', text)] or [
            known
        ]
        start = re.findall(r"^ExecStart=\S+ (.*)$", text, re.MULTILINE)[0]
        for values in said:
            yield unit.name, re.sub(r"\$\{?(\w+)\}?", lambda name: values[name[1]].strip('"'), start)  # noqa: B023


def commands_of_boards() -> Iterator[tuple[str, str]]:
    text = (PLAYBOOK / "roles" / "fedtwin" / "templates" / "device.env.j2").read_text(encoding="utf-8")
    for words in re.findall(r'^FEDTWIN_TRAINING="(.*)"$', re.sub(r"\{\{.*?\}\}", "7", text), re.MULTILINE):
        yield "device.env.j2", f"device press-1 --server tls://HOST:4222 --credentials DIR {words}"


def commands_of_containers() -> Iterator[tuple[str, str]]:
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    yield "Containerfile", shlex.join(["edge", *yaml.safe_load(re.findall(r"^CMD (.*)$", text, re.MULTILINE)[0])])
    for name, service in yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"].items():
        if name != "nats":
            yield f"compose.yaml: {name}", shlex.join(["edge" if name == "edge" else "device", *service["command"]])


def commands_of_pages() -> Iterator[tuple[str, str]]:
    for page in (DEPLOY.parent / "docs" / "deploy.md", DEPLOY / "compose.yaml"):
        for line in re.findall(r"(?:^|# *\w*/ *)(fedtwin .*?)(?:   .*)?$", page.read_text(encoding="utf-8"), re.MULTILINE):
            yield page.name, line.removeprefix("fedtwin ")


COMMANDS = [*commands_of_units(), *commands_of_boards(), *commands_of_containers(), *commands_of_pages()]


@pytest.mark.parametrize(("place", "command"), COMMANDS, ids=[f"{place}: {command}" for place, command in COMMANDS])
def test_every_command_line_is_understood(place: str, command: str) -> None:  # noqa: ARG001
    group: Any = typer.main.get_command(app)
    name, *words = shlex.split(command)
    group.commands[name].make_context(name, words)


def test_there_are_commands_of_every_kind() -> None:
    kinds = {(place, command.split()[0]) for place, command in COMMANDS}
    assert len(COMMANDS) >= 9 and {("compose.yaml: edge", "edge"), ("fedtwin-device@.service", "device")} <= kinds
    assert (
        ("compose.yaml", "provision") in kinds and ("device.env.j2", "device") in kinds and ("deploy.md", "provision") in kinds
    )


@pytest.mark.parametrize("file", YAML, ids=lambda file: str(file.relative_to(DEPLOY)))
def test_yaml_is_read_and_names_files_that_are_there(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert yaml.safe_load(text)
    for named in re.findall(r"playbook_dir \}\}/(\.\./[^\"]+)\"", text):
        assert (PLAYBOOK / named).exists(), named
    for named in re.findall(r"(?:include_tasks|tasks_from): (\w+)", text):
        assert (PLAYBOOK / "roles" / "fedtwin" / "tasks" / f"{named}.yml").exists(), named


def test_a_role_uses_no_variable_that_has_no_default() -> None:
    role = PLAYBOOK / "roles" / "fedtwin"
    defaults = yaml.safe_load((role / "defaults" / "main.yml").read_text(encoding="utf-8"))
    used = {name for file in role.rglob("*.*") for name in re.findall(r"\bfedtwin_\w+", file.read_text(encoding="utf-8"))}
    assert used - {"fedtwin_provisioned"} == set(defaults)


def test_the_broker_of_the_compose_file_takes_its_settings(tmp_path: Path) -> None:
    live.provision(tmp_path / "provision", run="main", server_names=["nats"], devices=["press-1"])
    text = (DEPLOY / "nats.conf").read_text(encoding="utf-8")
    (tmp_path / "nats.conf").write_text(text.replace("/etc/nats/", f"{tmp_path}/").replace("/data", f"{tmp_path}/data"))
    done = subprocess.run(
        [executable(), "-t", "-c", str(tmp_path / "nats.conf")], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text(encoding="utf-8")
    copy = tmp_path / unit.name.replace("@", "@press-1")
    copy.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", text, flags=re.MULTILINE), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False, timeout=60
    )
    ours = [line for line in done.stderr.splitlines() if copy.name in line]
    assert not ours and done.returncode == 0, done.stderr


def test_there_are_three_units() -> None:
    assert [unit.name for unit in UNITS] == ["fedtwin-device@.service", "fedtwin-edge.service", "fedtwin-evaluator.service"]
