"""The routes of the service itself: what it is, who enters, what may be ordered and asked."""

from typing import Any

from fedtwin import __version__
from fedtwin.service.access import COOKIE
from fedtwin.service.asking import BODY as QUESTION
from fedtwin.service.asking import require_no_other_code
from fedtwin.service.fidelity import fidelity
from fedtwin.service.orders import BODY as ORDER
from fedtwin.service.orders import desire, give
from fedtwin.service.routes import Answer, Asked, Route
from fedtwin.service.telling import UnansweredError
from fedtwin.service.twins import Twins

LOGIN = {
    "type": "object",
    "required": ["token"],
    "additionalProperties": False,
    "properties": {"token": {"type": "string", "minLength": 1, "maxLength": 200}},
}
A_MONTH_S = 30 * 24 * 3600


def _health(twins: Twins, asked: Asked) -> Any:  # noqa: ARG001
    return {"status": "up", "version": __version__, "runs": len(twins.runs)}


def _login(twins: Twins, asked: Asked) -> Any:
    """The token as a cookie that no script can read and no other place can send."""
    token = asked.body["token"]
    person = twins.access.of_token(token)
    if person is None:
        raise UnansweredError(403, "The token is not known.")
    secure = "; Secure" if twins.tls else ""
    cookie = f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={A_MONTH_S}{secure}"
    return Answer({"name": person.name, "role": person.role}, headers={"Set-Cookie": cookie})


def _logout(twins: Twins, asked: Asked) -> Any:  # noqa: ARG001
    return Answer({}, headers={"Set-Cookie": f"{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"})


def _whatif(twins: Twins, asked: Asked) -> Any:
    """With the track record of the twin's predictions: an answer is worth no more than they are."""
    question = dict(asked.body)
    served = twins.run(question.pop("run"))
    names = {name: number for number, name in enumerate(served.names())}
    question["without"] = [names.get(one, one) if isinstance(one, str) else one for one in question.get("without", [])]
    with served.reading() as run:
        require_no_other_code(run.config, question.get("set", {}))
        if "policy.name" in run.config.own_code and not twins.trust:
            own = f"policy.name = {run.config.policy.name!r} is code of the run's owner"
            raise UnansweredError(403, f"{own}: its futures are played with --trust only.")
        folder = str(run.path)
    answer = twins.asking.ask(folder, {**question, "trust": twins.trust}, asked.gone)
    judged = served.made_of_tables("fidelity", lambda run: fidelity(run, served.names()))
    return {**answer, "run": served.id, "fidelity": judged["fleet"]}


ROUTES = (
    Route("GET", "/health", "Whether the service is up", _health, role="anyone", group="service", at_once=True),
    Route("POST", "/login", "A token becomes the page's cookie", _login, role="anyone", group="service", body=LOGIN),
    Route("DELETE", "/login", "The cookie is forgotten", _logout, role="anyone", group="service"),
    Route(
        "POST",
        "/api/whatif",
        "Futures of a run, as it is and under other settings",
        _whatif,
        group="what-if",
        body=QUESTION,
        leaves=True,
    ),
    Route("POST", "/api/runs/{run}/orders", "An order to the edge server", give, role="operator", group="orders", body=ORDER),
    Route(
        "PUT",
        "/api/2/things/{thing}/features/{feature}/desiredProperties/{property}",
        "A desired property, as an order to the edge server",
        desire,
        role="operator",
        group="orders",
        body={"type": ["string", "number", "boolean"]},
    ),
)
