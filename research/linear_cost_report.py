"""Tables, page and final numbers of `research.linear_cost`, from its results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from .linear_cost_bounds import QWEN3_06B, Backbone, csa_flops, exponent, prefill_bound, training_bound
from .linear_cost_measure import BATCH, CSA, EQUAL, STEPS, Facts, config, grid

Results = dict[tuple[str, str, int], Facts]
"""Kind, variant and tokens of a measurement → what was found."""
MIB = 2.0**20
BARS = {
    "prefill_ratio_32k": ("at most", 0.35),
    "memory_exponent": ("at most", 1.1),
    "csa_speedup_16k": ("at least", 3.0),
    "csa_memory_ratio_16k": ("below", 1.0),
    "cache_bytes_ratio": ("at most", 1.05),
    "csa_cache_bytes_ratio": ("at most", 1.05),
    "train_tokens_ratio_512": ("at least", 0.8),
    "train_tokens_ratio_4k": ("at least", 1.0),
    "csa_max_rel_error": ("at most", 1e-5),
}


def series(results: Results, kind: str, variant: str, fact: str) -> dict[int, float]:
    """One fact by number of tokens."""
    return {
        tokens: facts[fact]
        for (k, v, tokens), facts in sorted(results.items())
        if (k, v) == (kind, variant) and fact in facts
    }


def ratio(over: float | None, under: float | None) -> float | None:
    """A quotient of what was measured."""
    return None if over is None or not under else over / under


def summary(results: Results) -> dict[str, float | None]:
    """The numbers that the JSON line holds."""

    def facts(kind: str, variant: str) -> Facts:
        return next((f for (k, v, _), f in results.items() if (k, v) == (kind, variant)), {})

    def by_tokens(kind: str, over: str, under: str, tokens: int, fact: str = "seconds") -> float | None:
        sides = [results.get((kind, variant, tokens), {}).get(fact) for variant in (over, under)]
        return ratio(*sides)

    shape, peaks = Backbone.of(config()), series(results, "prefill", "w8s8", "bytes")
    equal = facts("equal", "csa")
    held = {variant: facts("cache", variant) for variant in ("w8s8", "csa")}
    decode = {variant: facts("decode", variant) for variant in ("full", "w8s8")}
    found = {
        "prefill_ratio_32k": by_tokens("prefill", "w8s8", "full", 32768),
        "prefill_bound_32k": prefill_bound(shape, 32768, grid()),
        "prefill_bound_32k_qwen3_06b": prefill_bound(QWEN3_06B, 32768, grid()),
        "memory_exponent": exponent(peaks, [size for size in peaks if size >= 4096]),
        "csa_speedup_16k": by_tokens("csa", "transformers", "ours", 16384),
        "csa_memory_ratio_16k": by_tokens("csa", "ours", "transformers", 16384, "bytes"),
        "cache_bytes_ratio": ratio(held["w8s8"].get("bytes"), held["w8s8"].get("least")),
        "csa_cache_bytes_ratio": ratio(held["csa"].get("bytes"), held["csa"].get("least")),
        "train_tokens_ratio_512": by_tokens("train", "full", "w8s8", 512),
        "train_tokens_ratio_4k": by_tokens("train", "full", "w8s8", 4096),
        "csa_max_rel_error": max(equal["entries"], equal["output"]) if equal else None,
        "csa_equal_choices": equal.get("equal_choices"),
        "decode_tokens_per_second": decode["w8s8"].get("tokens_per_second"),
        "decode_tokens_per_second_full": decode["full"].get("tokens_per_second"),
        "decode_bytes_per_token": decode["w8s8"].get("bytes_per_token"),
        "decode_bytes_per_token_full": decode["full"].get("bytes_per_token"),
    }
    return {name: None if value is None else float(f"{value:.4g}") for name, value in found.items()}


def tables(results: Results, kind: str) -> Iterator[list[str]]:
    """The table of one kind of measurement, as Markdown lines."""
    yield ["", f"## {TITLES[kind]}", ""]
    yield list(TABLES[kind](results))


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _head(*names: str) -> Iterator[str]:
    yield _row(*names)
    yield "|" + "---|" * len(names)


def _number(value: float | None, digits: str = ".3g", scale: float = 1.0) -> str:
    return "" if value is None else format(value / scale, digits)


def _seconds(value: float | None) -> str:
    return _number(value, ".4f" if value is not None and value < 1 else ".2f")


def _prefill(results: Results) -> Iterator[str]:
    time, peak = (
        {v: series(results, "prefill", v, f) for v in ("full", "w8s8")} for f in ("seconds", "bytes")
    )
    shape = Backbone.of(config())
    yield from _head(
        "tokens", "full, s", "W8/S8, s", "ratio", "bound", "bound, Qwen3-0.6B", "full, MiB", "W8/S8, MiB"
    )
    for tokens in sorted({*time["full"], *time["w8s8"]}):
        sides = [time[v].get(tokens) for v in ("full", "w8s8")]
        yield _row(
            f"{tokens:,}",
            *map(_seconds, sides),
            _number(ratio(sides[1], sides[0])),
            *(f"{prefill_bound(s, tokens, grid()):.3g}" for s in (shape, QWEN3_06B)),
            *(_number(peak[v].get(tokens), ".1f", MIB) for v in ("full", "w8s8")),
        )


def _csa(results: Results) -> Iterator[str]:
    sides = ("transformers", "ours")
    time, peak = ({v: series(results, "csa", v, f) for v in sides} for f in ("seconds", "bytes"))
    yield from _head(
        "tokens",
        "transformers, s",
        "ours, s",
        "speedup",
        "FLOPs ratio",
        "transformers, MiB",
        "ours, MiB",
        "memory ratio",
    )
    for tokens in sorted({*time["transformers"], *time["ours"]}):
        seconds, held = ([x[v].get(tokens) for v in sides] for x in (time, peak))
        yield _row(
            f"{tokens:,}",
            *map(_seconds, seconds),
            _number(ratio(*seconds)),
            f"{csa_flops(CSA, tokens, dense=True) / csa_flops(CSA, tokens, dense=False):.3g}",
            *(_number(value, ".1f", MIB) for value in held),
            _number(ratio(held[1], held[0])),
        )


def _equal(results: Results) -> Iterator[str]:
    yield from _head("tokens", "entries", "output", "equal choices", "entries to choose from")
    for (kind, _, tokens), facts in results.items():
        if kind == "equal":
            errors = (f"{facts[name]:.1e}" for name in ("entries", "output"))
            yield _row(
                f"{tokens:,}", *errors, f"{100 * facts['equal_choices']:.2f} %", int(facts["chosen_from"])
            )


def _cache(results: Results) -> Iterator[str]:
    yield from _head("cache", "tokens", "bytes", "count", "ratio")
    for (kind, variant, tokens), facts in results.items():
        if kind == "cache":
            held = [facts[name] for name in ("bytes", "least")]
            yield _row(
                NAMES[variant], f"{tokens:,}", *(f"{x:,.0f}" for x in held), f"{held[0] / held[1]:.3f}"
            )


def _decode(results: Results) -> Iterator[str]:
    yield from _head("model", "tokens before", "tokens/s", "bytes read per token")
    for (kind, variant, tokens), facts in results.items():
        if kind == "decode":
            speed, read = facts["tokens_per_second"], facts["bytes_per_token"]
            yield _row(NAMES[variant], f"{tokens:,}", f"{speed:.1f}", f"{read:,.0f}")


def _train(results: Results) -> Iterator[str]:
    time = {v: series(results, "train", v, "seconds") for v in ("full", "w8s8")}
    yield from _head("tokens", "plain, tokens/s", "W8/S8, tokens/s", "ratio", "bound")
    for tokens in sorted({*time["full"], *time["w8s8"]}):
        sides = [time[v].get(tokens) for v in ("full", "w8s8")]
        bound = training_bound(Backbone.of(config()), tokens, grid())
        speeds = (_number(ratio(BATCH, side), ",.0f") for side in sides)
        yield _row(f"{tokens:,}", *speeds, _number(ratio(*sides)), f"{bound:.3g}")


NAMES = {
    "full": "full attention",
    "w8s8": "W8/S8",
    "csa": "CSA",
    "ours": "ours",
    "transformers": "transformers",
}
TITLES = {
    "prefill": "Prefill against full attention",
    "csa": "One CSA layer against transformers",
    "equal": "The same CSA layer",
    "cache": "Bytes of the cache",
    "decode": "Decoding",
    "train": "Training",
}
TABLES: dict[str, Callable[[Results], Iterator[str]]] = {
    "prefill": _prefill,
    "csa": _csa,
    "equal": _equal,
    "cache": _cache,
    "decode": _decode,
    "train": _train,
}
NOTES = {
    "prefill": "W8/S8 and the same backbone with full attention by SDPA, batch 1, logits of the last token "
    "only. Bounds are FLOPs over FLOPs. Memory is the peak over what was resident before.",
    "csa": f"The same weights: {CSA.heads} heads of {CSA.channels} channels, stride {CSA.stride}, window {CSA.window}, "
    f"top-k {CSA.topk}, {CSA.index_heads} index heads of {CSA.index_channels}; eager attention, the only kind that "
    "layer has. The ratio of FLOPs is that of all pairs, as they are computed there, over what is read. Scores that "
    "are written and read several times cost it more than FLOPs say. The mask that it is given counts as input, not "
    "as its memory.",
    "equal": "Relative errors against `transformers` in float64 with the same weights as above but "
    f"{EQUAL.index_heads} index heads: with few of them many scores are exactly 0, and the choice among these is not "
    "defined.",
    "cache": "The count: key and value of every entry and of every raw token; for CSA entries, index keys, the raw "
    "tokens that the next query reads, and states of the unfinished window and of the half that overlaps it.",
    "decode": f"Greedy, {STEPS} tokens one by one. Bytes: weights, and the cache's keys and values.",
    "train": f"Forward and backward at {BATCH:,} tokens a step. The bound counts FLOPs.",
}


def document(results: Results, command: str, machine: str, plot: str | None) -> str:
    """The page: command, machine, plot, bars and tables."""
    lines = [
        "# Cost of long contexts",
        "",
        "Written by its benchmark; do not edit.",
        "",
        f"    {command}",
        "",
    ]
    lines += [f"Machine: {machine}.", ""]
    if plot:
        lines += [f"![Time and memory against tokens]({plot})", ""]
    lines += [*_head("number", "found", "bar"), *_bars(summary(results))]
    for kind in TITLES:
        if any(key[0] == kind for key in results):
            lines += [*chain(*tables(results, kind)), "", NOTES[kind]]
    return "\n".join(lines) + "\n"


def _bars(found: dict[str, float | None]) -> Iterator[str]:
    for name, value in found.items():
        word, bar = BARS.get(name, ("", None))
        yield _row(
            f"`{name}`", "not measured" if value is None else f"{value:g}", f"{word} {bar or ''}".strip()
        )
