"""The paper's channel and load share one stream per device: of the three words of a round the first is the channel's."""

WORDS_PER_ROUND = 3
