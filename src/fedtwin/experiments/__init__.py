"""Many runs: batches on all cores, comparisons, the committed experiments behind the figures."""
