"""HCA: DeepSeek-V4's heavily compressed attention, one series in windows side by side."""

from .series import AbstractSeries


class HCA(AbstractSeries):
    """Windows of S tokens every S, all of them read; DeepSeek-V4 has S = 128.

    The grids of DeepSeek-V4.1, which do not overlap either, are this method at stride 2, and at stride 1, where
    an entry is one token and nothing is pooled.

    Source: `transformers` models/deepseek_v4; tested against it.
    Differs: queries come from Qwen3's own projection, without a low-rank step; `topk` may be set here too.
    """

    series = 1
