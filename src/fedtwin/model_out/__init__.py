"""The model of a run, for use: read from its folder, applied to samples, exported."""
