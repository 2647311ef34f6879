"""Rate, time, energy, cost and power as plain functions. Whoever knows the numbers may use them."""
