"""What is common to tests that train a network of the user's own for a few rounds."""

SMALL: dict[str, object] = {
    "learning.dataset": "digits",
    "learning.evaluate_every_s": 5.0,
    "fleet.devices": 6,
    "fleet.channels": 3,
    "fleet.samples_min": 20,
    "fleet.samples_max": 40,
    "run.rounds": 20,
    "objective.min_mean_samples": 0.0,
}
