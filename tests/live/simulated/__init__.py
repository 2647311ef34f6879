"""The whole live fleet in one process, on virtual time, with faults drawn from one number."""
