"""A device: what it measures and plans, how it trains, how its upload gets to the broker."""
