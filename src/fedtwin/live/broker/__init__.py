"""The NATS server between them: its process, its settings, certificates and rights."""
