"""Who may ask: loopback without tokens, elsewhere TLS and tokens with roles; and no other page in anybody's browser."""

import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from fedtwin.errors import FedtwinError
from fedtwin.service import limits
from fedtwin.service.access import Access, Person, read_tokens
from fedtwin.service.server import Listening
from fedtwin.service.twins import Broker
from tests.conftest import FEDTWIN, run_cli, until
from tests.service.serving import serving

VIEWER, OPERATOR = "v" * 24, "o" * 24
TOKENS = {VIEWER: Person("anna", "viewer"), OPERATOR: Person("bert", "operator")}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_tokens_have_roles(folder: Path) -> None:
    with serving(folder, access=Access(TOKENS), broker=Broker(("nats://127.0.0.1:1",))) as client:
        refused = client.get("/api/runs")
        assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer"
        assert client.get("/api/runs", headers=bearer("x" * 24)).status_code == 401
        assert client.get("/api/runs", headers=bearer(VIEWER)).json()["role"] == "viewer"
        assert client.get("/api/runs", headers=bearer(OPERATOR)).json()["role"] == "operator"
        order = {"order": "pause"}
        assert client.post("/api/runs/factory/orders", headers=bearer(VIEWER), json=order).status_code == 403
        told = client.post("/api/runs/factory/orders", headers=bearer(OPERATOR), json=order)
        assert told.status_code == 409 and "is a simulation" in told.json()["error"]
        assert (
            client.get("/health").status_code == client.get("/").status_code == client.get("/openapi.json").status_code == 200
        )


def test_a_token_becomes_a_cookie_that_no_script_reads(folder: Path) -> None:
    with serving(folder, access=Access(TOKENS), tls=True) as client:
        assert client.post("/login", json={"token": "wrong"}).status_code == 403
        answer = client.post("/login", json={"token": VIEWER})
        cookie = answer.headers["set-cookie"]
        assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Secure")) and answer.json()["role"] == "viewer"
        client.cookies.clear()
        assert client.get("/api/runs", headers={"Cookie": f"fedtwin_token={VIEWER}"}).status_code == 200
        assert "Max-Age=0" in client.delete("/login").headers["set-cookie"]


def test_no_other_place_can_use_somebodys_browser(client: httpx.Client) -> None:
    assert client.get("/api/runs", headers={"Host": "evil.example"}).status_code == 403
    assert client.get("/api/runs", headers={"Host": "localhost:8080"}).status_code == 200
    evil = client.post("/api/whatif", json={"run": "factory"}, headers={"Origin": "https://evil.example"})
    assert evil.status_code == 403 and "another place" in evil.json()["error"]
    plain = client.post("/api/whatif", content=b'{"run": "factory"}', headers={"Content-Type": "text/plain"})
    assert plain.status_code == 415


def test_bodies_and_requests_have_limits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AT_ONCE", 5.0)
    monkeypatch.setattr(limits, "REQUESTS_PER_S", 0.001)
    monkeypatch.setattr(limits, "STREAMS_EACH", 0)
    with serving(folder) as client:
        long = client.post("/api/whatif", content=b'"' + b"x" * 70_000 + b'"', headers={"Content-Type": "application/json"})
        assert long.status_code == 413
        assert client.get("/api/runs/factory/events").status_code == 429
        statuses = [client.get("/health").status_code for _ in range(6)]
        assert statuses[:3] == [200, 200, 200] and statuses[-1] == 429
        assert client.get("/").status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "::", "example.com"])
def test_other_machines_need_tls_and_tokens(host: str, tmp_path: Path) -> None:
    with pytest.raises(FedtwinError, match="needs --tokens FILE, --cert FILE and --key FILE"):
        Listening(host, 0, tokens=tmp_path / "tokens").check()
    Listening(host, 0, tmp_path / "tokens", tmp_path / "cert", tmp_path / "key").check()
    Listening("127.0.0.1", 0).check()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no token"),
        ("anna viewer short", "line 1"),
        ("# people\nanna reader " + VIEWER, "line 2"),
    ],
)
def test_a_file_of_tokens_that_is_none_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    with pytest.raises(FedtwinError, match=words):
        read_tokens(file)
    file.write_text(f"anna viewer {VIEWER}\n", encoding="utf-8")
    assert read_tokens(file) == {VIEWER: Person("anna", "viewer")}
    file.chmod(0o644)
    with pytest.raises(FedtwinError, match="chmod 600"):
        read_tokens(file)


def test_the_command_refuses_in_one_sentence(folder: Path, tmp_path: Path) -> None:
    answer = run_cli("serve", folder, "--host", "0.0.0.0")
    assert answer.returncode == 2 and answer.stderr.startswith("error: --host 0.0.0.0 can be reached from other machines")
    answer = run_cli("serve", tmp_path)
    assert answer.returncode == 2 and "is not the folder of a run" in answer.stderr


@pytest.mark.slow
def test_tls_and_a_restart_after_kill_9(folder: Path, tmp_path: Path) -> None:
    """What was served is served again at once: the service keeps nothing that could be lost."""
    key, certificate, tokens = (tmp_path / name for name in ("key.pem", "cert.pem", "tokens"))
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    make += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(make, check=True, capture_output=True)
    tokens.write_text(f"anna viewer {VIEWER}\n", encoding="utf-8")
    tokens.chmod(0o600)
    options = ["--port", "0", "--tokens", str(tokens), "--cert", str(certificate), "--key", str(key)]
    trusted = ssl.create_default_context(cafile=str(certificate))
    answers = []
    for _ in range(2):
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen([*FEDTWIN, "serve", str(folder), *options], stderr=log)
        try:
            until(lambda: "https://" in (tmp_path / "log").read_text(), "the address", process)
            address = (tmp_path / "log").read_text().split(" at ")[1].strip()
            with httpx.Client(base_url=address, verify=trusted, headers=bearer(VIEWER), timeout=60) as client:
                answers.append(client.get("/api/runs/factory/fleet?at=round:77").json())
        finally:
            process.kill()
            process.wait()
    assert answers[0] == answers[1] and answers[0]["round"] == 77


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/api/runs", {"Host": "["}),
        ("GET", "/api/runs", {"Host": "[::1"}),
        ("POST", "/api/whatif", {"Origin": "http://["}),
        ("GET", "/static/%00", {}),
        ("GET", "/static/" + "a" * 300, {}),
        ("GET", "/static/" + "a/" * 3000, {}),
        ("GET", "/static/app/main.js/", {}),
        ("GET", '/api/2/search/things?filter=eq("\\q",1)', {}),
        ("GET", "/api/2/search/things?option=cursor(eyJvIjowLCJyIjp7ImZhY3RvcnkiOnRydWV9fQ)", {}),
        ("GET", f"/api/2/search/things?option=sort({','.join('a' * 100)})", {}),
        ("GET", f"/api/2/search/things?filter=or({','.join(['exists(a)'] * 200)})", {}),
    ],
)
def test_what_is_no_request_is_refused(client: httpx.Client, method: str, path: str, headers: dict[str, str]) -> None:
    """Each of these was an error of the server's own, or took it seconds."""
    answer = client.request(method, path, headers=headers)
    assert 400 <= answer.status_code < 500 and answer.json()["error"].endswith("."), answer.text


def test_a_pattern_of_many_stars_stops_nobody(client: httpx.Client) -> None:
    pattern = "*".join("a" * 30) + "X"
    answer = client.get("/api/2/search/things/count", params={"filter": f'like(thingId,"*{pattern}")'})
    assert answer.json() == 0
