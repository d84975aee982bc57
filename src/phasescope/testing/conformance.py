"""The conformance suites: the laws that every compressor keeps, and the invariances that every engine does."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from ..catalog import COMPRESSORS
from ..checking import EngineUnderTest, Verdict
from ..checking import check as check_engine
from ..checking.local import LocalEngine
from ..checkpoints.grids import read_config
from ..compressors import AbstractCompressor, Entries
from ..errors import UsageError
from ..models import CompressedQwen3Config, CompressedQwen3ForCausalLM

WIDTH, DIM, TOKENS = 32, 8, 29
EXACT = 1e-10  # entries are computed in float64 throughout
CLOSE = 1e-5  # Qwen3's norms and rotary embedding compute in float32, whatever the model's dtype


class LawBrokenError(AssertionError):
    """A compressor breaks a law of the suite without declaring it."""


class EngineFaultError(AssertionError):
    """An engine's answer depends on how the same tokens were fed."""


class _Subject:
    """A compressor under test: alone, and in a two-layer model with random weights."""

    def __init__(self, name: str, grid: dict[str, Any], heads: int, seed: int) -> None:
        self.name, self.grid, self.heads, self.seed = name, grid, heads, seed
        self.model = self.build(**grid)
        self.compressor: AbstractCompressor = self.model.model.layers[0].self_attn.compressor
        self.ids = torch.randint(64, (2, TOKENS), generator=self.generator())
        self.hidden = torch.randn(2, TOKENS, WIDTH, generator=self.generator(), dtype=torch.float64)
        self.payload = torch.randn(2, 2, heads, TOKENS, DIM, generator=self.generator(), dtype=torch.float64)

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def build(self, **grid: Any) -> CompressedQwen3ForCausalLM:
        config = CompressedQwen3Config(compression={"compressor": self.name, **grid}, **_shape(self.heads))
        model = CompressedQwen3ForCausalLM(config).double().eval()
        generator = self.generator()
        with torch.no_grad():
            for param in model.parameters():
                # Biases start at zero: a law that holds only there would not be seen to break.
                param.copy_(torch.randn(param.shape, generator=generator, dtype=param.dtype) * 0.3)
        return model

    def entries(self, hidden: Tensor, payload: Tensor) -> Entries:
        with torch.no_grad():
            return self.compressor.entries(payload[0], payload[1], self.compressor.state_BHTG(hidden))

    def logits(self, *parts: int) -> Tensor:
        """Logits of all tokens, read in parts of the given sizes and one last part."""
        ends = [sum(parts[: i + 1]) for i in range(len(parts))] + [TOKENS]
        cache, out, start = None, [], 0
        with torch.no_grad():
            for end in ends:
                step = self.model(input_ids=self.ids[:, start:end], cache=cache, use_cache=True)
                cache, start = step.cache, end
                out.append(step.logits)
        return torch.cat(out, dim=1)


def check_compressor(
    compressor: str | type[AbstractCompressor],
    *,
    width: int = 4,
    stride: int = 4,
    shift: Any = 0,
    heads: int = 2,
    seed: int = 0,
    **compression: Any,
) -> dict[str, str]:
    """Hold a compressor to every law: causal, period, coverage, parts, limit, decode, gradients, round trip.

    Args:
        compressor: a name in the catalog, or a class (which is then added to it by its full name).
        width: of the grid on which it is tested.
        stride: of the same grid.
        shift: of the same grid; per layer and head if wanted (two layers).
        heads: KV heads of the model, 1, 2 or 4.
        seed: of weights and inputs.
        **compression: further fields of `Compression` that the method needs, such as `binding` or `settings`.

    Returns:
        per law `kept`, or the reason that the compressor declares in `breaks`.

    Raises:
        LawBrokenError: at the first law that is broken without being declared.
        UsageError: if `breaks` names no law of the suite.
    """
    if isinstance(compressor, str):
        name = compressor
    else:
        name = f"{compressor.__module__}.{compressor.__qualname__}"
        COMPRESSORS.add(name, compressor)
    breaks = dict(COMPRESSORS.load(name).breaks)
    unknown = sorted(set(breaks) - set(LAWS))
    if unknown:
        raise UsageError(f"{name} declares to break {', '.join(unknown)}; the laws are {', '.join(LAWS)}")
    grid = {"width": width, "stride": stride, "shift": shift, **compression}
    subject = _Subject(name, grid, heads, seed)
    verdicts = {}
    for law, holds in LAWS.items():
        if law in breaks:
            verdicts[law] = breaks[law]
            continue
        problem = holds(subject)
        if problem:
            raise LawBrokenError(
                f"{name} on W{width}/S{stride}, shift {shift}, breaks the law {law!r}: {problem}"
            )
        verdicts[law] = "kept"
    return verdicts


def assert_engine_invariant(
    engine: Any,
    *,
    strides: Sequence[int] | None = None,
    known: Collection[str] = (),
    **settings: Any,
) -> Verdict:
    """Hold an engine to every invariance that it offers; for test suites, also as the fixture `phasescope_check`.

    Args:
        engine: a `phasescope.checking.EngineUnderTest`, or a causal language model of `transformers`.
        strides: of the grids around whose boundaries it is asked; by default those of a model's config.
        known: invariances whose faults are known and let pass.
        **settings: as `phasescope.checking.check` has them.

    Returns:
        the verdict.

    Raises:
        EngineFaultError: if another invariance than the known ones is broken, with the verdict's sentence.
        UsageError: for settings that do not fit.
    """
    subject = (
        engine if isinstance(engine, EngineUnderTest) else LocalEngine(engine, name=type(engine).__name__)
    )
    if strides is None:
        config = getattr(getattr(subject, "model", None), "config", None)
        strides = () if config is None else read_config(config.to_dict()).strides
    verdict = check_engine(subject, strides=strides, **settings)
    if {row.feature for row in verdict.faults} - set(known):
        raise EngineFaultError(verdict.sentence)
    return verdict


def _causal(subject: _Subject) -> str:
    """Later tokens never change closed entries."""
    cut = TOKENS - 5
    early = subject.entries(subject.hidden[:, :cut], subject.payload[:, :, :, :cut])
    late = subject.entries(subject.hidden, subject.payload)
    known = (early.last_token_BHN < cut).expand(2, subject.heads, -1)
    entries = known.shape[2]
    for name in ("key_BHND", "value_BHND"):
        gap = (getattr(early, name) - getattr(late, name)[:, :, :entries]).abs()
        if bool((gap[known] > EXACT).any()):
            return f"{name} of closed entries changes when five tokens follow"
    for name in ("position_BHN", "last_token_BHN"):
        before, after = (getattr(read, name)[:, :, :entries].expand(known.shape) for read in (early, late))
        if not torch.equal(before[known], after[known]):
            return f"{name} of closed entries changes when five tokens follow"
    return "" if bool(known.any()) else "no entry closes"


def _period(subject: _Subject) -> str:
    """A stride of padding in front moves entries by one and leaves their content alone."""
    stride = subject.grid["stride"]
    pad = torch.randn(2, stride, WIDTH, generator=subject.generator(), dtype=torch.float64)
    pads = torch.randn(2, 2, subject.heads, stride, DIM, generator=subject.generator(), dtype=torch.float64)
    plain = subject.entries(subject.hidden, subject.payload)
    moved = subject.entries(torch.cat([pad, subject.hidden], 1), torch.cat([pads, subject.payload], 3))
    shift = max(grid.shift for grid in subject.compressor.grids)
    whole = [window for window in range(plain.key_BHND.shape[2]) if window * stride >= shift]
    for window in whole:
        for name in ("key_BHND", "value_BHND"):
            gap = (getattr(plain, name)[:, :, window] - getattr(moved, name)[:, :, window + 1]).abs()
            known = (plain.last_token_BHN[:, :, window] < TOKENS).expand(2, subject.heads)
            if bool((gap[known] > EXACT).any()):
                return f"entry {window} differs from entry {window + 1} after {stride} tokens of padding"
    return "" if whole else "no window lies wholly inside the sequence"


def _parts(subject: _Subject) -> str:
    """Reading in any two parts equals reading at once."""
    whole = subject.logits()
    for split in range(1, TOKENS):
        if (gap := _gap(subject.logits(split), whole)) > CLOSE:
            return f"split after {split} tokens, logits differ by {gap:.1e}"
    return ""


def _coverage(subject: _Subject) -> str:
    """Each query reads every token up to its own, and none behind it."""
    attention = subject.model.model.layers[0].self_attn
    hidden = subject.hidden[:1].clone().requires_grad_()
    position = subject.model.model.rotary_emb(hidden, torch.arange(TOKENS)[None])
    out = attention(hidden, position, None)[0]
    for query in range(TOKENS):
        (gradient,) = torch.autograd.grad(out[0, query].sum(), hidden, retain_graph=True)
        reads = gradient[0].abs().amax(-1) > 0
        if not bool(reads[: query + 1].all()):
            return f"the query at {query} does not read token {int((~reads).nonzero()[0])}"
        if bool(reads[query + 1 :].any()):
            return f"the query at {query} reads token {query + 1 + int(reads[query + 1 :].nonzero()[0])}"
    return ""


def _limit(subject: _Subject) -> str:
    """Windows of one token, without binding, sink or partial rotation, are full attention."""
    ours = subject.build(width=1, stride=1)
    plain = Qwen3ForCausalLM(Qwen3Config(**_shape(subject.heads))).double().eval()
    plain.load_state_dict({k: v for k, v in ours.state_dict().items() if ".compressor." not in k})
    with torch.no_grad():
        gap = _gap(ours(input_ids=subject.ids).logits, plain(input_ids=subject.ids).logits)
    return f"at W = S = 1 logits differ from full attention by {gap:.1e}" if gap > CLOSE else ""


def _decode(subject: _Subject) -> str:
    """Token by token equals one pass."""
    gap = _gap(subject.logits(*[1] * (TOKENS - 1)), subject.logits())
    return f"token by token, logits differ by {gap:.1e}" if gap > CLOSE else ""


def _gradients(subject: _Subject) -> str:
    """Every parameter that is not frozen gets a finite gradient."""
    subject.model.zero_grad()
    subject.model(input_ids=subject.ids, labels=subject.ids, use_cache=False).loss.backward()
    for name, param in subject.model.named_parameters():
        if not param.requires_grad:
            continue
        if param.grad is None:
            return f"{name} gets no gradient"
        if not bool(param.grad.isfinite().all()):
            return f"the gradient of {name} is not finite"
    return ""


def _round_trip(subject: _Subject) -> str:
    """Saved and loaded, the model and its configuration are the same."""
    with tempfile.TemporaryDirectory() as folder:
        subject.model.save_pretrained(folder)
        loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    if loaded.config.compression != subject.model.config.compression:
        return f"compression reads {loaded.config.compression}, was {subject.model.config.compression}"
    with torch.no_grad():
        gap = _gap(loaded(input_ids=subject.ids).logits, subject.model(input_ids=subject.ids).logits)
    return f"the loaded model's logits differ by {gap:.1e}" if gap > EXACT else ""


def _gap(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())


LAWS: dict[str, Callable[[_Subject], str]] = {
    "causal": _causal,
    "period": _period,
    "coverage": _coverage,
    "parts": _parts,
    "limit": _limit,
    "decode": _decode,
    "gradients": _gradients,
    "round_trip": _round_trip,
}
"""Each law by name: a check that returns what is wrong, or nothing."""


def _shape(heads: int) -> dict[str, Any]:
    return {
        "vocab_size": 64,
        "hidden_size": WIDTH,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": heads,
        "head_dim": DIM,
        "max_position_embeddings": 128,
    }
