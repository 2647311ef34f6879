"""All routes there are, and the document that tells of them."""

from typing import Any

from fedtwin.service.openapi import document
from fedtwin.service.routes import Asked, Route
from fedtwin.service.run_routes import ROUTES as RUNS
from fedtwin.service.service_routes import ROUTES as SERVICE
from fedtwin.service.thing_routes import ROUTES as THINGS
from fedtwin.service.twins import Twins


def _openapi(twins: Twins, asked: Asked) -> Any:  # noqa: ARG001
    return document(ROUTES)


OPENAPI = Route("GET", "/openapi.json", "This document", _openapi, role="anyone", group="service", at_once=True)
ROUTES: tuple[Route, ...] = (*RUNS, *THINGS, *SERVICE, OPENAPI)
