"""A live run through the command line: edge server, devices, an MQTT client, and whoever watches. Its records at the end."""

import asyncio
import json
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import paho.mqtt.client as mqtt
import pyarrow.parquet as pq
import pytest
from nats.aio.client import Client
from nats.js.errors import NoKeysError, NotFoundError
from paho.mqtt.enums import CallbackAPIVersion
from safetensors.numpy import load_file

from fedtwin.config import load_config
from fedtwin.records import DEVICES, rounds_schema
from fedtwin.records.tasks import TASKS
from fedtwin.twin import DeviceTwin
from fedtwin.world.fleet import make_fleet
from fedtwin.world.world import World
from tests.live.brokers import own_port
from tests.live.plant import ENTRIES, LIMIT_S, Plant, events_of, ledger_of, plant, until

ROUNDS, DEVICES_TOTAL, TIME_SCALE = 90, 4, 0.2
UNLIKE = {"fleet.max_power_w": [0.02, 0.05], "fleet.samples_spread": [0.3, 0.5]}
FLEET = make_fleet(load_config(overrides={"fleet.devices": DEVICES_TOTAL, "fleet.channels": 2, **UNLIKE}))
SAMPLES = {"d0": 40, "d1": 41, "d2": FLEET[2].samples, "sensor": 70}
GAIN, CPU_HZ = 2.5e-9, 1.25e9
APPLIED = "fedtwin_uploads_applied_total"


@dataclass
class Seen:
    """A run that came to its end, and what was to be seen while it went on."""

    plant: Plant
    code: int = -1
    ledger: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    sensor: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, float]] = field(default_factory=list)

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.ledger if event["kind"] == kind]

    def table(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = pq.read_table(self.plant.run / name).to_pylist()
        return rows


def metrics_at(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S) as page:
        lines = page.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


def moved_since(before: dict[str, float], port: int) -> dict[str, float] | None:
    """The metrics once there is another upload; a page that was read between two of its counters is read again."""
    found = metrics_at(port)
    whole = found["fedtwin_task_seconds_count"] == found[APPLIED]
    return found if whole and found[APPLIED] > before[APPLIED] else None


async def watch(url: str, seen: Seen) -> None:
    """Reads the twin as anybody may: the history of one device, and the sensor once its telemetry is there."""
    client = Client()
    await client.connect([url])
    store = None
    try:
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end and not (len(seen.history) > 2 and seen.sensor.get("gain")):
            await asyncio.sleep(0.1)
            try:
                store = store or await client.jetstream().key_value("fedtwin-main-twin")
                seen.sensor = json.loads((await store.get("device.sensor")).value or b"{}")
                seen.history = [json.loads(entry.value or b"{}") for entry in await store.history("device.d0")]
                seen.model = json.loads((await store.get("model")).value or b"{}")
            except (NotFoundError, NoKeysError):
                continue
    finally:
        await client.close()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """Three emulated devices that do not train, and a sensor that speaks MQTT."""
    mqtt_port = own_port()
    with plant(tmp_path_factory.mktemp("edge")) as fleet:
        fleet.new_edge(
            *("--rounds", ROUNDS, "--time-scale", TIME_SCALE, "--log-format", "json", "--log-level", "debug"),
            *("--metrics", "127.0.0.1:0", "--mqtt-port", mqtt_port),
            fleet__devices=DEVICES_TOTAL, fleet__channels=2, live__heartbeat_s=0.3,
            **{name.replace(".", "__"): value for name, value in UNLIKE.items()},
        )  # fmt: skip
        url = fleet.url()
        for number in range(3):
            more = ("--emulate", number) if number else ("--radio", "emulated", "--distance-m", 150, "--cpu-hz", 1e9)
            fleet.device(f"d{number}", url, "--no-training", "--samples", SAMPLES[f"d{number}"], *more)
        sensor = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="sensor-7f3a")
        sensor.connect("127.0.0.1", mqtt_port)
        sensor.loop_start()
        result = Seen(fleet)
        try:
            fleet.wait(lambda: '"serving"' in fleet.log("edge"), "an edge server that hears it: it is said once")
            sensor.publish("fedtwin/main/hello/sensor", json.dumps({"samples": 70}), qos=1).wait_for_publish(LIMIT_S)
            port = until(
                lambda: [json.loads(line)["port"] for line in fleet.log("edge").splitlines() if '"metrics"' in line], "port"
            )
            fleet.wait_for("started")
            told = json.dumps({"gain": GAIN, "cpu_hz": CPU_HZ, "busy": True})
            sensor.publish("fedtwin/main/beat/sensor", told, qos=1).wait_for_publish(LIMIT_S)
            sensor.publish("fedtwin/main/beat/sensor", '{"gain": -1}', qos=1).wait_for_publish(LIMIT_S)
            fleet.wait_for("applied", count=3)
            before = metrics_at(port[0])
            asyncio.run(watch(url, result))
            result.metrics += [before, until(lambda: moved_since(before, port[0]), "another upload, counted everywhere")]
        finally:
            sensor.disconnect()
            sensor.loop_stop()
        result.code = fleet.ended("edge")
        result.ledger = ledger_of(fleet.run)
        result.summary = json.loads((fleet.run / "summary.json").read_text(encoding="utf-8"))
        yield result


def test_it_ends_well_and_everybody_is_a_member(seen: Seen) -> None:
    assert seen.code == 0
    assert seen.ledger[0]["kind"] == "began" and seen.ledger[0]["protocol"] == 1
    assert seen.ledger[-1] == {**seen.ledger[-1], "kind": "stopped", "finished": True}
    assert {event["name"]: event["samples"] for event in seen.events("joined")} == SAMPLES
    assert "Records:" in (seen.plant.folder / "edge.out").read_text(encoding="utf-8")


def test_the_tables_have_their_columns_and_rows(seen: Seen) -> None:
    folder = seen.plant.run
    schema = rounds_schema(trace=False, learning=False)
    for name in ("rounds.parquet", "start.parquet"):
        assert pq.read_schema(folder / name).equals(schema), name
    assert pq.read_schema(folder / "tasks.parquet").equals(TASKS)
    assert pq.read_schema(folder / "devices.parquet").names == [*DEVICES.names, "name"]
    asked = seen.events("asked")
    assert len(seen.table("rounds.parquet")) == sum(event["round"] > 0 for event in asked)
    assert len(seen.table("start.parquet")) == sum(event["round"] == 0 for event in asked) >= 2
    assert len(seen.table("tasks.parquet")) == len(seen.events("dispatched"))
    assert {row["name"]: row["samples"] for row in seen.table("devices.parquet")} == SAMPLES
    assert [row["round"] for row in seen.table("rounds.parquet") if not row["declined"]] == list(range(1, ROUNDS + 1))


def test_emulated_devices_announce_what_is_their_own_and_keep_to_it(seen: Seen) -> None:
    joined = {event["name"]: event["own"] for event in seen.events("joined")}
    assert joined["d0"] == joined["sensor"] == {}, "as configured"
    assert joined["d1"] == {"max_power_w": FLEET[1].max_power_w}, "it was told another number of samples: they do not vary"
    assert joined["d2"] == {"max_power_w": FLEET[2].max_power_w, "samples_spread": FLEET[2].samples_spread}
    powers = {row["name"]: row["max_power_w"] for row in seen.table("devices.parquet")}
    assert powers == {"d0": 1.0, "d1": FLEET[1].max_power_w, "d2": FLEET[2].max_power_w, "sensor": 1.0}
    world = World(load_config(overrides={"fleet.devices": DEVICES_TOTAL, "fleet.channels": 2, **UNLIKE}))
    sent = {
        name: [event for event in seen.events("dispatched") if event["device"] == number] for number, name in enumerate(SAMPLES)
    }
    for name in ("d1", "d2"):
        assert sent[name] and all(event["power_w"] <= powers[name] for event in sent[name])
    assert {event["samples"] for event in sent["d1"]} == {41}
    told = [event["samples"] for event in sent["d2"]]
    assert told == [world.draw(2, event["round"], 0.0).samples for event in sent["d2"]] and len(set(told)) > 1
    of_rounds = [row["samples"] for row in seen.table("rounds.parquet") if row["device"] == 2 and not row["declined"]]
    assert of_rounds == told[len(told) - len(of_rounds) :]


def test_the_summary_is_the_ledgers(seen: Seen) -> None:
    applied, summary = seen.events("applied"), seen.summary
    assert summary["rounds"] == ROUNDS == sum(event["round"] > 0 for event in seen.events("dispatched"))
    assert summary["uploads_applied"] == summary["model_version"] == len(applied) == applied[-1]["version"]
    assert [event["version"] for event in applied] == list(range(1, len(applied) + 1))
    assert summary["tasks_given_up"] == 0 and summary["uploads_late"] == 0 and summary["devices"] == DEVICES_TOTAL
    assert summary["declines"] == sum(row["declined"] for row in seen.table("rounds.parquet"))
    assert summary["refusals"] == len(seen.events("refused")) == len(seen.table("refusals.parquet"))
    counted = {event["token"] for event in seen.events("dispatched") if event["round"] > 0}
    costs = [event["cost"] for event in applied if event["token"] in counted]
    assert summary["mean_cost"] == pytest.approx(sum(costs) / len(costs))
    [started] = seen.events("started")
    going_on = [
        event["at_s"] for kind in ("applied", "dispatched", "asked", "declined", "passed") for event in seen.events(kind)
    ]
    assert summary["virtual_time_s"] == pytest.approx(max(going_on) - started["at_s"]), "not until the broker has stopped"


def test_devices_that_do_not_train_leave_the_model_as_it_is(seen: Seen) -> None:
    final = load_file(seen.plant.run / "model.safetensors")["layer.weight"]
    assert final.shape == (ENTRIES,)
    assert final == pytest.approx(load_file(seen.plant.folder / "initial.safetensors")["layer.weight"], abs=1e-5)


def test_an_emulated_radio_takes_the_time_it_implies(seen: Seen) -> None:
    """By the server's clock; what comes on top is the real link and this machine, a few milliseconds where that is not busy."""
    rows = [row for row in seen.table("tasks.parquet") if row["name"] != "d0"]
    assert len(rows) > 10
    for row in rows:
        assert row["elapsed_s"] >= 0.98 * row["predicted_s"]
    over_s = sorted(row["elapsed_s"] - row["predicted_s"] for row in rows)
    assert over_s[0] * TIME_SCALE < 0.03 and median(over_s) >= 0.0
    wall_s = seen.ledger[-1]["at_s"] * TIME_SCALE
    assert wall_s > sum(row["predicted_s"] for row in seen.table("tasks.parquet") if row["name"] != "d0") * TIME_SCALE / 2


def test_an_emulated_device_is_modelled_and_an_emulated_link_is(seen: Seen) -> None:
    names = ["d0", "d1", "d2", "sensor"]
    for event in seen.events("applied"):
        emulated = {"compute_s": "modelled", "upload_s": "modelled", "compute_j": "modelled", "upload_j": "modelled"}
        own_cpu = {"compute_s": "measured", "upload_s": "modelled", "upload_j": "modelled"}
        expected = own_cpu if names[event["device"]] == "d0" else emulated
        assert {key: event["sources"][key] for key in expected} == expected


def test_the_twin_is_in_a_bucket_with_history(seen: Seen) -> None:
    assert len(seen.history) > 1
    assert seen.history[0] != seen.history[-1]
    selections = [entry["selections"] for entry in seen.history]
    assert selections == sorted(selections) and selections[-1] > 0
    assert seen.history[-1]["samples"] == {**seen.history[-1]["samples"], "value": 40}
    assert set(seen.history[-1]) == {*DeviceTwin._fields, "mean_cost", "seen"}
    assert set(seen.model) == {"version", "round", "changes", "min_mean_samples"} and seen.model["version"] > 0


def test_telemetry_over_mqtt_is_in_the_twin(seen: Seen) -> None:
    assert seen.sensor["gain"]["value"] == GAIN
    assert seen.sensor["cpu_hz"]["value"] == CPU_HZ
    assert seen.sensor["selections"] == 0


def test_telemetry_out_of_range_is_refused(seen: Seen) -> None:
    refused = seen.events("refused")
    assert [(event["name"], event["what"]) for event in refused] == [("sensor", "telemetry")]
    assert refused[0]["reason"].startswith("schema: gain")


def test_metrics_move(seen: Seen) -> None:
    before, after = seen.metrics
    for name in (APPLIED, "fedtwin_tasks_dispatched_total", "fedtwin_energy_joules_total"):
        assert 0 < before[name] < after[name], name
    assert after[APPLIED] <= len(seen.events("applied"))
    assert after["fedtwin_task_seconds_count"] == after[APPLIED]
    assert after["fedtwin_broker_connected"] == 1
    assert sum(value for name, value in after.items() if name.startswith("fedtwin_devices{")) == DEVICES_TOTAL
    assert after['fedtwin_refusals_total{reason="schema"}'] == 1


def test_logs_as_json_are_one_object_per_line(seen: Seen) -> None:
    lines = [json.loads(line) for line in seen.plant.log("edge").splitlines()]
    assert all({"at", "level", "message"} <= set(line) for line in lines)
    messages = {line["message"] for line in lines}
    assert {"serving", "joined", "started", "applied", "dispatched"} <= messages
    assert sum(line["message"] == "applied" for line in lines) == len(seen.events("applied"))


def test_nothing_is_left_open(seen: Seen) -> None:
    sent = {event["token"] for event in events_of(seen.plant.run, "dispatched")}
    assert sent == {event["token"] for event in seen.events("applied")}
    assert not (seen.plant.run / ".lock").exists()
    assert not list((seen.plant.run / "models").glob(".*.draft"))
