"""Things in Ditto's shape: parts, moments, tags, search, history, differences and descriptions."""

import csv
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import jsonschema_rs
import numpy as np
import pytest

from fedtwin import Run
from fedtwin.service.things import Fleet, fleet_of, value_at
from fedtwin.service.twins import Twins
from tests.service.folders import simulated
from tests.service.serving import serving
from tests.service.test_runs import get

SCHEMA = Path(__file__).parent / "wot" / "td-schema.json"


def search(client: httpx.Client, **query: str) -> dict[str, Any]:
    answer = client.get("/api/2/search/things", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_thing_has_what_the_twin_knows_with_time_age_and_provenance(client: httpx.Client, run: Run) -> None:
    thing, moment = get(client, "/api/2/things/factory:device-7?at=round:300"), run.moment(round=300)
    known = run.twin(round=300).devices[7]
    assert thing["thingId"] == "factory:device-7" and thing["revision"] == moment.revision
    assert list(thing["features"]) == ["link", "compute", "energy", "training"]
    assert known.gain is not None
    age_s = moment.seconds - known.gain.learned_s
    told = {"value": known.gain.value, "time_s": known.gain.learned_s, "age_s": age_s, "provenance": "measured"}
    assert thing["features"]["link"]["properties"]["gain"] == told
    assert thing["features"]["training"]["properties"]["samples"]["provenance"] == "configured"
    assert thing["features"]["energy"]["properties"]["mean_energy_j"]["value"] == known.energy_sum_j / known.observations


def test_the_parts_of_a_thing_are_parts_of_it(client: httpx.Client) -> None:
    whole = get(client, "/api/2/things/factory:device-7")
    base = "/api/2/things/factory:device-7"
    assert get(client, f"{base}/attributes") == whole["attributes"]
    assert get(client, f"{base}/attributes/distance_m") == whole["attributes"]["distance_m"]
    assert get(client, f"{base}/features/compute/properties") == whole["features"]["compute"]["properties"]
    assert (
        get(client, f"{base}/features/link/properties/gain/value") == whole["features"]["link"]["properties"]["gain"]["value"]
    )
    assert get(client, f"{base}?fields=thingId,features(link/properties/gain)") == {
        "thingId": whole["thingId"],
        "features": {"link": {"properties": {"gain": whole["features"]["link"]["properties"]["gain"]}}},
    }
    assert client.get(f"{base}/features/link/properties/nothing").status_code == 404


def test_the_edge_server_is_a_thing_without_weights(client: httpx.Client, run: Run) -> None:
    thing = get(client, "/api/2/things/factory:edge")
    assert thing["features"]["model"]["properties"]["version"]["value"] == run.twin().model_version
    assert thing["features"]["model"]["properties"]["digest"]["value"] is None
    assert "trains no model" in thing["features"]["model"]["properties"]["digest"]["reason"]
    assert thing["features"]["run"]["properties"]["total_queue"]["value"] == run.summary["total_queue"]


def test_who_has_it_already_gets_nothing_again(client: httpx.Client) -> None:
    tag = client.get("/api/2/things/factory:device-7").headers["etag"]
    assert tag.startswith('"rev:')
    again = client.get("/api/2/things/factory:device-7", headers={"If-None-Match": f'"x", {tag}'})
    assert again.status_code == 304 and again.content == b"" and again.headers["etag"] == tag
    before = client.get("/api/2/things/factory:device-7?at=round:3", headers={"If-None-Match": tag})
    assert before.status_code == 200 and before.headers["etag"] != tag


def test_all_things_are_told(client: httpx.Client) -> None:
    ids = [thing["thingId"] for thing in get(client, "/api/2/things?fields=thingId")]
    assert ids == [*(f"factory:device-{number}" for number in range(30)), "factory:edge"]
    two = get(client, "/api/2/things?ids=factory:edge,factory:device-3&fields=thingId")
    assert two == [{"thingId": "factory:edge"}, {"thingId": "factory:device-3"}]


def test_search_finds_sorts_and_goes_on_page_by_page(client: httpx.Client, run: Run) -> None:
    selections = {f"factory:device-{number}": one.selections for number, one in enumerate(run.twin().devices)}
    middle = sorted(selections.values())[15]
    path = "features/training/properties/selections"
    wanted = f'and(ge({path},{middle}),like(thingId,"factory:device-*"))'
    expected = sorted(name for name, count in selections.items() if count >= middle)
    expected.sort(key=lambda name: selections[name], reverse=True)
    found: list[str] = []
    option = f"sort(-{path},+thingId),size(4)"
    told = search(client, filter=wanted, option=option, fields="thingId")
    while True:
        found += [item["thingId"] for item in told["items"]]
        if "cursor" not in told:
            break
        assert len(told["items"]) == 4
        told = search(client, filter=wanted, option=f"{option},cursor({told['cursor']})", fields="thingId")
    assert found == expected
    assert client.get("/api/2/search/things/count", params={"filter": wanted}).json() == len(expected)
    assert client.get("/api/2/search/things/count", params={"namespaces": "other"}).json() == 0


@pytest.mark.parametrize("option", ["size(0)", "size(201)", "cursor(x)", "sort()", "top(3)", "size(3", "cursor(e30)"])
def test_options_that_are_none_are_refused(client: httpx.Client, option: str) -> None:
    answer = client.get("/api/2/search/things", params={"option": option})
    assert answer.status_code == 400 and "is not allowed" in answer.json()["error"]


def test_history_rolls_up_what_was_heard(client: httpx.Client, run: Run) -> None:
    told = get(client, "/api/2/things/factory:device-7/history?property=features/link/properties/gain&buckets=4")
    rows = [row for row in [*run.start.to_pylist(), *run.rounds.to_pylist()] if row["device"] == 7]
    assert told["unit"] == "1" and sum(bucket["count"] for bucket in told["buckets"]) == len(rows)
    edges = np.linspace(0.0, run.moment().seconds, 5)
    for bucket, low, high in zip(told["buckets"], edges, edges[1:], strict=False):
        own = [row["gain"] for row in rows if low <= row["clock_s"] and (row["clock_s"] < high or high == edges[-1])]
        assert bucket["count"] == len(own) and bucket["max"] == max(own) and bucket["min"] == min(own)
        assert bucket["mean"] == pytest.approx(np.mean(own)) and bucket["p95"] == pytest.approx(np.percentile(own, 95))


def test_a_part_in_which_nothing_was_heard_says_so(client: httpx.Client) -> None:
    base = "/api/2/things/factory:device-7/history?property=features/link/properties/gain"
    told = get(client, f"{base}&from_s=1000&to_s=1001&buckets=1")
    assert told["buckets"] == [
        {"from_s": 1000, "to_s": 1001, "count": 0, **dict.fromkeys(("mean", "min", "max", "p50", "p95"))}
    ]
    refused = client.get("/api/2/things/factory:device-7/history?property=features/training/properties/status")
    assert refused.status_code == 404 and "has no history" in refused.json()["error"]


def test_a_difference_is_what_has_another_value(client: httpx.Client) -> None:
    told = get(client, "/api/runs/factory/diff?from=round:300&to=round:301")
    before, after = (
        {thing["thingId"]: thing for thing in get(client, f"/api/2/things?at=round:{number}")} for number in (300, 301)
    )
    assert told["left_off"] == 0 and told["from"]["round"] == 300 and told["to"]["round"] == 301
    changed = {(one["thing"], one["path"]): (one["before"], one["after"]) for one in told["changed"]}
    for name in before:
        for feature, held in before[name]["features"].items():
            for key, known in held["properties"].items():
                pair = known["value"], after[name]["features"][feature]["properties"][key]["value"]
                assert changed.pop((name, f"features/{feature}/properties/{key}"), pair) == pair
                assert pair[0] == pair[1] or (name, f"features/{feature}/properties/{key}") not in changed
    assert changed == {}
    assert get(client, "/api/runs/factory/diff?from=round:300&to=round:300")["changed"] == []


@pytest.mark.parametrize("name", ["device-7", "edge"])
def test_a_description_is_one_of_the_web_of_things(client: httpx.Client, name: str) -> None:
    answer = client.get(f"/api/2/things/factory:{name}", headers={"Accept": "application/td+json"})
    assert answer.headers["content-type"] == "application/td+json"
    jsonschema_rs.validate(json.loads(SCHEMA.read_text(encoding="utf-8")), answer.json())
    for one in answer.json()["properties"].values():
        assert client.get(one["forms"][0]["href"]).status_code == 200


HOSTILE = ["<img src=x onerror=alert(1)>", "a/b?c#d", "edge", 'quote"\\', "é 雪", "=cmd()", "con:colon", "  two  words  "]


def test_hostile_names_are_text_and_are_found(tmp_path: Path) -> None:
    with (tmp_path / "fleet.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["name", "distance_m", "samples", "cpu_hz"], *[[name, 50, 80, 2e9] for name in HOSTILE]])
    settings = {"fleet__file": str(tmp_path / "fleet.csv"), "fleet__channels": 2, "run__engine": "readable"}
    with serving(simulated(tmp_path / "run", run__rounds=20, **settings)) as client:
        names = get(client, "/api/runs/run/fleet")["columns"]["name"]
        assert len(set(names)) == len(HOSTILE) and names[2] == "device-2" and names[0] == HOSTILE[0]
        for name in names:
            thing = get(client, f"/api/2/things/{quote(f'run:{name}', safe='')}")
            assert thing["attributes"]["name"] == name
            found = search(client, filter=f"eq(attributes/name,{json.dumps(name)})", fields="thingId")
            assert found["items"] == [{"thingId": f"run:{name}"}]
            answer = client.get("/api/2/things", params={"ids": f"run:{name}"}) if "," not in name else None
            assert answer is None or answer.status_code == 200
        assert client.get("/api/runs/run/fleet").headers["x-content-type-options"] == "nosniff"


def test_the_edge_server_is_found_and_sorted_by_what_it_has(client: httpx.Client, run: Run) -> None:
    """Its properties were compared with their times and ages around them, so with nothing."""
    version = run.twin().model_version
    for wanted in (
        "gt(features/run/properties/round,10)",
        "gt(features/run/properties/round/value,10)",
        f"eq(features/model/properties/version,{version})",
        'eq(features/run/properties/round/provenance,"measured")',
        'eq(attributes/kind,"edge")',
    ):
        assert [item["thingId"] for item in search(client, filter=wanted)["items"]] == ["factory:edge"], wanted
    first = search(client, option="sort(-features/run/properties/round),size(1)")["items"]
    assert first[0]["thingId"] == "factory:edge"


def test_every_path_of_a_thing_has_the_column_that_its_things_say(folder: Path) -> None:
    twins = Twins([folder])
    with twins.opened():
        fleet = fleet_of(twins.run("factory"), "round:300")
        assert fleet is not None
        things = [fleet.thing(device) for device in fleet.devices]
        paths = {path for thing in (things[0], things[-1]) for path in _paths(thing)}
        assert len(paths) > 80
        for path in paths:
            assert fleet.column(path) == [value_at(thing, path) for thing in things], path


def _paths(document: dict[str, Any], before: str = "") -> list[str]:
    found = []
    for name, value in document.items():
        found += _paths(value, f"{before}{name}/") if isinstance(value, dict) else [f"{before}{name}"]
    return found


def test_a_search_with_many_conditions_builds_no_thing_for_each(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seventy conditions on five thousand devices took twelve seconds."""
    built: list[int] = []
    build = Fleet.thing

    def counted(fleet: Fleet, device: int) -> dict[str, Any]:
        built.append(device)
        return build(fleet, device)

    monkeypatch.setattr(Fleet, "thing", counted)
    wanted = f"or({','.join(f'eq(attributes/x{number},1)' for number in range(70))})"
    assert search(client, filter=wanted) == {"items": []}
    assert len(built) <= 71
