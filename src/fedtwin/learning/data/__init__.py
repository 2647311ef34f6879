"""Data sets: embedded, fetched into a cache, or the user's own."""

from fedtwin.learning.data.dataset import Dataset, other_features
from fedtwin.learning.data.loading import load_dataset, load_samples

__all__ = ["Dataset", "load_dataset", "load_samples", "other_features"]
