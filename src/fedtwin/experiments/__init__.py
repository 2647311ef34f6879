"""Many runs: what is to be run (``specs``), running it (``batches``), what it says (``analysis``); ``compare`` and ``sweep``
put them together, and the figures do."""
