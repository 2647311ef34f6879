"""Data sets: embedded, fetched into a cache, or the user's own."""

from fedtwin.learning.data.dataset import Dataset, load_dataset

__all__ = ["Dataset", "load_dataset"]
