"""The numbers of docs/claims.md that take seconds, each by the name its row has there.

    python -m benchmarks.claims             # all of them
    python -m benchmarks.claims bonus drift

tests/test_claims.py holds the page to them.
"""
