"""Batches: many runs on all cores, on a GPU or on a Ray cluster, with a journal from which an interrupted one goes on."""
