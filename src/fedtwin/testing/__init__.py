"""Checkers of what one writes oneself: the same that fedtwin holds its own parts to. Each raises one sentence or is content."""

from fedtwin.testing.aggregators import check_aggregator
from fedtwin.testing.engines import Engines
from fedtwin.testing.policies import check_policy
from fedtwin.testing.worlds import CheckedWorld, check_world

__all__ = ["CheckedWorld", "Engines", "check_aggregator", "check_policy", "check_world"]
