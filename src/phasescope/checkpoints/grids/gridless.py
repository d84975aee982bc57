"""Models without a token grid, each with the reason; many have fields whose names sound like one."""

from __future__ import annotations

from collections.abc import Callable

from .base import Reading
from .fields import Fields

_DENSE = """
    afmoe albert apertus apertus1p5 apertus1p5_text arcee aria aria_text aya_vision axk1 bart beam bert bert-generation
    biogpt bitnet blenderbot blenderbot-small bloom camembert chameleon codegen cohere cohere2 cohere2_moe
    cohere2_vision cohere_compass cohere_compass_text convbert cpmant ctrl cwm data2vec-text dbrx deberta deberta-v2
    deepseek_v2 deepseek_v3 deepseek_vl deepseek_vl_hybrid diffllama distilbert dory dots1 electra emu3 ernie ernie4_5
    ernie4_5_moe ernie4_5_vl_moe esm esmc eurobert exaone exaone4 exaone4_5 exaone_moe falcon fast_vlm flaubert
    flex_olmo flint fsmt fuyu gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text gemma4 gemma4_text gemma4_unified
    gemma4_unified_text git glm glm4 glm4_moe glm4_moe_lite glm4v glm4v_moe glm46v got_ocr2 gpt-sw3 gpt2 gpt_bigcode
    gpt_neo gpt_neox gpt_neox_japanese gpt_oss gptj granite granite_swa granitemoe granitemoe_swa granitemoeshared gte
    helium hrm_text hunyuan_v1_dense hunyuan_v1_moe hy_v3 hyperclovax ibert idefics3 internlm3 internvl iquestcoder
    jais2 jetmoe jina_embeddings_v3 kolibri1 laguna layoutlm llama llava llava_next llava_onevision longcat_flash luke
    m2m_100 marian mbart megatron-bert mellum mimo_v2_flash minicpm3 minimax_m2 ministral ministral3 mistral mistral3
    mistral4 mixtral mllama mobilebert modernbert modernbert-decoder modernvbert moshi mpnet mpt mt5 musicgen
    musicgen_melody mvp nanochat nemotron neomme nllb-moe nomic_bert olmo olmo2 olmo3 olmoe openai-gpt opt paligemma
    pegasus persimmon phi phi3 phi4_multimodal phimoe plbart prophetnet qwen2 qwen2_5_vl qwen2_5_vl_text qwen2_moe
    qwen2_vl qwen2_vl_text qwen3 qwen3_moe qwen3_vl qwen3_vl_moe qwen3_vl_moe_text qwen3_vl_text rembert roberta
    roberta-prelayernorm roc_bert roformer sarvam_mla sarvam_moe seed_oss smollm3 smolvlm solar_open squeezebert
    stablelm starcoder2 switch_transformers t5 t5gemma t5gemma2 tapas trocr ultrabert ultravbert umt5 vaultgemma
    whisper xglm xlm xlm-roberta xlm-roberta-xl xlnet xmod youtu ernie4_5_vl_moe_text glm4v_moe_text glm4v_text
    glm_ocr glm_ocr_text granite4_vision_text granite_docling_text hunyuan_vl_text molmo2_text paddleocr_vl_text
    qwen2_5_omni_text qwen3_omni_moe_text muse_spark_text muse_glimmer_text moss_transcribe_diarize deepseek_ocr2_text
    gemma4_assistant gemma4_unified_assistant
"""
DENSE = tuple(_DENSE.split())
"""Model types of `transformers` 5.24 whose attention reads every token, or a sliding window of them."""

BAND = ("longformer", "led")
STEP = ("step3p7", "step3p5")
_TOKEN_TOPK = """
    deepseek_v32 glm_moe_dsa axk2 mistral_large4 mistral_large4_text hy_v4 hy_v4_vl hy_v4_vl_text dots3_note
    dots3_note_text
"""
TOKEN_TOPK = tuple(_TOKEN_TOPK.split())
_RECURRENT = """
    mamba2 zamba2 nemotron_h bamba falcon_h1 granitemoehybrid minimax xlstm qwen3_next qwen3_5 qwen3_5_text
    qwen3_5_moe qwen3_5_moe_text kimi_linear olmo_hybrid bailing_hybrid lara_mini mamba falcon_mamba jamba zamba
    rwkv recurrent_gemma zaya
"""
RECURRENT = tuple(_RECURRENT.split())
_CONVOLUTION = """
    lfm2 lfm2_moe lfm3 inkling_text inkling2_text inkling2_loop_text inkling_mm_model
"""
CONVOLUTION = tuple(_CONVOLUTION.split())
ENGINE_BLOCKS = (
    "an engine may add blocks of its own: a hierarchical indexer (HISA) scores blocks of keys first, and single tokens "
    "only in the best; a phase found on such an engine is the engine's, which `phasescope check` tells apart"
)
"""Of models whose indexer scores single tokens."""
CHUNK_FIELDS = ("chunk_size", "mamba_chunk_size", "block_size")


def read_dense(fields: Fields) -> Reading:
    """Attention over every token, or over a band of them that moves with the query.

    Source: `transformers` 5.24: no modeling file of these types cuts the text into blocks (vision and audio left out).
    """
    window = fields.values.get("sliding_window")
    used = fields.values.get("use_sliding_window", True)
    notes = ("its sliding window moves token by token",) if isinstance(window, int) and used else ()
    return Reading((), "dense attention", notes)


def read_step3p7(fields: Fields) -> Reading:
    """Step-3.7's config carries MiniMax-M3's sparse fields, but nothing reads them.

    Source: `transformers` 5.24, models/step3p7: the modeling file has no indexer; its text part calls itself step3p5.
    """
    copied = [name for name in ("sparse_attention_config", "index_block_size") if name in fields]
    notes = (f"{' and '.join(copied)} of this config: no code reads it",) if copied else ()
    return Reading(
        (), "dense and sliding attention; sparse fields in its config are not read by its code", notes
    )


def read_token_topk(fields: Fields) -> Reading:
    """An indexer that scores single tokens.

    Source: `transformers` 5.24: `index_topk` without any field for blocks.
    """
    topk = fields.whole("index_topk", default=2048)
    return Reading((), f"top-{topk:,} selection token by token", (ENGINE_BLOCKS,))


def read_doge(fields: Fields) -> Reading:
    """Dynamic masks that keep single tokens.

    Source: `transformers` 5.24, models/doge: `keep_window_size` is a number of tokens, not a window.
    """
    return Reading((), f"top-{fields.whole('keep_window_size', default=2048):,} selection token by token")


def read_recurrent(fields: Fields) -> Reading:
    """Recurrences, alone or between layers of full attention.

    Source: `transformers` 5.24: the scan over chunks gives what the recurrence token by token gives, up to rounding.
    """
    sizes = [
        f"{name} = {fields.values[name]}" for name in CHUNK_FIELDS if isinstance(fields.values.get(name), int)
    ]
    notes = (f"{', '.join(sizes)}: a chunk of the exact scan; only rounding depends on it",) if sizes else ()
    return Reading((), "an exact recurrence, computed in chunks", notes)


def no_grid(reason: str) -> Callable[[Fields], Reading]:
    """A reader of models that have no grid whatever their config says."""
    return lambda fields: Reading((), reason)


read_band = no_grid("an exact band around each token, though it is computed in chunks")
"""Source: `transformers` 5.24, models/longformer and led: inputs are padded to a multiple of `attention_window` and
computed in chunks, but the band that comes out is exact."""
read_convolution = no_grid("short convolutions and attention, token by token")
read_mixing = no_grid("tokens are mixed over the whole input, without windows")
"""By a Fourier transform, hashes or latent queries."""
