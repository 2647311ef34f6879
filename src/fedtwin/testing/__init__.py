"""Checkers of what one writes oneself: the same that fedtwin holds its own parts to. Each raises one sentence, or is silent."""

from fedtwin.testing.aggregators import check_aggregator

__all__ = ["check_aggregator"]
