"""Analysis: intervals, paired differences, times to an accuracy, the best stationary policy. Nothing here runs anything."""
