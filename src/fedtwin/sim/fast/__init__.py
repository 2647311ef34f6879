"""The compiled engine: the same run, decision for decision and bit for bit, a hundred times faster.

Plain Python over NumPy arrays, compiled by ``fedtwin.compiling`` for one policy and one power rule at a time. The formulas are
those of the readable engine; only how the state is kept, and how the least score is found, is written anew here.
"""
