"""CSA: DeepSeek-V4's compressed sparse attention, two series in overlapping windows."""

from .series import AbstractSeries


class CSA(AbstractSeries):
    """Windows of 2S tokens every S: Ca of the S tokens before and Cb of the window's own in one softmax.

    DeepSeek-V4 has S = 4, an indexer of top-k 512, a sliding window of 128 tokens and a sink:

        {"compressor": "csa", "width": 8, "stride": 4, "shift": 4, "tail": 128, "binding": True, "sink": True,
         "rotary": 0.125, "settings": {"topk": 512, "index_heads": 64, "index_dim": 128}}

    Source: `transformers` models/deepseek_v4; tested against it.
    Differs: queries come from Qwen3's own projection, without a low-rank step, for the indexer too.
    """

    series = 2
