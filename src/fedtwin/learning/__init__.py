"""Learning: aggregation (NumPy only), data and partition, models and local training (PyTorch), executors."""
