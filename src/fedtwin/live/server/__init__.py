"""The edge server: membership, dispatch, uploads, evaluation, and the broker looked after."""
