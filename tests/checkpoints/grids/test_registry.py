"""Which family reads which config; every family of `transformers` against that library's own class."""

from typing import Any

import pytest
from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto

from phasescope import UsageError, WindowGrid
from phasescope.checkpoints.grids import FAMILIES, Target, read_config

TINY = {"num_hidden_layers": 6, "hidden_size": 32, "num_attention_heads": 4}
QSA = {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 256, "indexer_budget": 64}

# Settings that `transformers`' class takes, and what the config that it writes has to be read as: strides, joint
# period, smallest reach.
WRITTEN: list[tuple[str, dict[str, Any], tuple[int, ...], int | None, int | None]] = [
    ("deepseek_v4", {**TINY}, (4, 128), 128, 128),
    ("deepseek_v4", {**TINY, "compress_ratios": [0, 4, 4, 0, 4, 4, 0], "sliding_window": 64}, (4,), 4, 64),
    ("deepseek_v4", {**TINY, "compress_rate_csa": 8, "compress_rate_hca": 12}, (8, 12), 24, 128),
    ("deepseek_v4", {**TINY, "layer_types": ["sliding_attention"] * 6}, (), None, None),
    ("qwen4_exp_text", {**TINY, **QSA, "indexer_compress_ratio": 4}, (4,), 4, 64),
    ("qwen4_exp_text", {**TINY}, (), None, None),
    ("glm5_next_text", {"num_hidden_layers": 6, "index_kpool": 4, "index_topk": 64}, (4,), 4, 64),
    (
        "minimax_m3_vl_text",
        {**TINY, "layer_types": ["full_attention", "minimax_m3_sparse"] * 3},
        (128,),
        128,
        2048,
    ),
    (
        "minimax_m3_vl_text",
        {
            **TINY,
            "sparse_attention_config": {
                "sparse_block_size": 8,
                "sparse_topk_blocks": 3,
                "sparse_attention_freq": [0, 1] * 3,
            },
        },
        (8,),
        8,
        24,
    ),
    ("llama4_text", {**TINY, "attention_chunk_size": 32}, (32,), 32, 32),
    ("llama4_text", {**TINY, "attention_chunk_size": None}, (), None, None),
    ("big_bird", {**TINY, "block_size": 16, "num_random_blocks": 2}, (16,), 16, 144),
    ("big_bird", {**TINY, "attention_type": "original_full"}, (), None, None),
    ("bigbird_pegasus", {"encoder_layers": 3}, (64,), 64, 704),
    (
        "longt5",
        {"num_layers": 3, "encoder_attention_type": "transient-global", "global_block_size": 8},
        (8,),
        8,
        128,
    ),
    ("longt5", {"num_layers": 3}, (), None, None),
    ("pegasus_x", {"encoder_layers": 3, "block_size": 64}, (64,), 64, 32),
    ("pegasus_x", {"encoder_layers": 3, "block_size": 64, "stagger_local_blocks": False}, (64,), 64, 64),
    ("reformer", {"attn_layers": ["local", "lsh"], "local_attn_chunk_length": 32}, (32,), 32, 32),
    ("funnel", {"block_sizes": [2, 2, 2, 2]}, (2, 4, 8), 8, 2),
    ("canine", {"num_hidden_layers": 3}, (4, 128), 128, 0),
    ("nystromformer", {**TINY, "segment_means_seq_len": 64, "num_landmarks": 16}, (4,), 4, 0),
    ("nystromformer", {**TINY}, (), None, None),
    ("mra", {**TINY}, (32,), 32, 256),
    ("step3p7", {}, (), None, None),
    ("deepseek_v32", {**TINY}, (), None, None),
    ("mamba2", {"num_hidden_layers": 2}, (), None, None),
    ("minimax", {**TINY}, (), None, None),
    ("qwen3", {**TINY}, (), None, None),
]


@pytest.mark.parametrize(("kind", "settings", "strides", "period", "reach"), WRITTEN)
def test_what_transformers_writes_is_read(
    kind: str, settings: dict[str, Any], strides: tuple[int, ...], period: int | None, reach: int | None
) -> None:
    """Class, `to_dict`, target: strides, joint period and smallest reach; no grid is a control, with the reason."""
    found = read_config(CONFIG_MAPPING[kind](**settings).to_dict())
    assert (found.strides, found.period, found.reach) == (strides, period, reach)
    assert found.control is (not strides)
    assert bool(found.without) is (not strides)


def test_older_fields_are_read_without_transformers_as_it_reads_them() -> None:
    """A config as upstream ships it gives the layers that `transformers` makes of it."""
    for kind, settings, *_ in WRITTEN:
        raw = read_config({"model_type": kind, **settings})
        written = read_config(CONFIG_MAPPING[kind](**settings).to_dict())
        assert (raw.layers, raw.holes) == (written.layers, written.holes), (kind, settings)


NAMES = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
)
NOT_READ = {  # holders of another model that their bare name does not tell
    *(
        "encoder-decoder",
        "audioflamingo3",
        "glmasr",
        "granite_speech",
    ),
    *(
        "granite_speech_plus",
        "musicflamingo",
        "nemo_speechlm",
        "omniasr",
        "qwen2_audio",
        "qwen3_asr",
        "seamless_m4t",
    ),
    *("seamless_m4t_v2", "vibevoice_asr", "voxtral", "voxtral_realtime"),
}


def test_every_language_model_of_transformers_has_a_family() -> None:
    """A new type of model is unknown until somebody has looked: this test says which ones are left."""
    kinds = {kind for name in NAMES for kind in getattr(modeling_auto, name)}
    assert {kind for kind in kinds if read_config({"model_type": kind}).status == "unknown"} == NOT_READ


HOLDERS = {
    "kimi_k25": "deepseek_v3",
    "muse_spark": "muse_spark_text",
    "glmga": "glm4v_text",
    "minicpmv4_7": "qwen3_5_text",
    "inkling_mm_model": "inkling_text",
    "nemo_speechlm": "nemotron_h",
    "voxtral": "llama",
}


@pytest.mark.parametrize(("kind", "text"), HOLDERS.items())
def test_a_model_of_several_kinds_of_input_is_read_by_the_model_it_holds(kind: str, text: str) -> None:
    """As its own class writes it; and alone, its name says nothing, or what it holds by default."""
    found = read_config(CONFIG_MAPPING[kind]().to_dict())
    assert (found.model_type, found.status) == (text, "none")
    bare = read_config({"model_type": kind})
    assert bare.control or "language model that it holds" in bare.notes[-1]


def test_a_token_level_indexer_may_get_blocks_from_its_engine() -> None:
    """No grid of the model's own; a phase may come from a hierarchical indexer all the same."""
    found = read_config({"model_type": "deepseek_v32"})
    assert found.control
    assert any("HISA" in note for note in found.notes)


def test_no_type_belongs_to_two_families_without_a_mark() -> None:
    """The table is unambiguous."""
    plain = [kind for family in FAMILIES if not family.marks for kind in family.types]
    assert len(plain) == len(set(plain))


def layer_of(found: Target, index: int) -> tuple[str, list[WindowGrid | None]]:
    layer = found.layers[index]
    return layer.kind, [fold.grid for fold in layer.folds]


def test_deepseek_v4_per_layer() -> None:
    """CSA folds windows of 8 every 4 that begin one stride early; HCA windows of 128 side by side."""
    found = read_config(
        {"model_type": "deepseek_v4", "num_hidden_layers": 4, "compress_ratios": [0, 4, 128, 4, 0]}
    )
    assert layer_of(found, 0) == ("sliding_attention", [])
    assert layer_of(found, 1) == ("compressed_sparse_attention", [WindowGrid(8, 4, 4)])
    assert layer_of(found, 2) == ("heavily_compressed_attention", [WindowGrid(128, 128)])
    assert len(found.layers) == 4
    assert any("drafting" in note for note in found.notes)
    fold = found.layers[1].folds[0]
    assert (fold.does, fold.anchor, fold.learned, fold.tail, fold.exact) == (
        "pooled content",
        "slot",
        True,
        True,
        False,
    )


def test_deepseek_v4_with_windows_wider_than_the_raw_window_has_holes() -> None:
    """HCA of 128 beside 64 raw tokens: 63 are read nowhere; CSA is not concerned."""
    found = read_config(
        {
            "model_type": "deepseek_v4",
            "num_hidden_layers": 3,
            "compress_ratios": [4, 128, 128],
            "sliding_window": 64,
        }
    )
    assert [hole.layers for hole in found.holes] == [(1, 2)]
    assert "up to 63 tokens are read nowhere" in found.holes[0].why


def test_deepseek_v41_pools_two_shares_entries_and_chooses_blocks() -> None:
    """Ratio 2 is pooled, ratio 1 is not; blocks of candidates bind only indexes after their source."""
    example = next(family.example for family in FAMILIES if family.name == "DeepSeek-V4.1")
    text = {"model_type": "deepseek_v41_text", **(example or {})}
    found = read_config(
        {"model_type": "deepseek_v41", "vision_config": {"patch_size": 14}, "text_config": text}
    )
    assert layer_of(found, 1) == ("window only", [])
    assert layer_of(found, 2) == ("pooled by 2", [WindowGrid(2, 2)])
    assert layer_of(found, 23) == ("entries of one token", [])
    assert layer_of(found, 24) == ("entries of one token", [WindowGrid(8, 8)])
    assert (found.strides, found.period, found.reach) == ((2, 8), 8, 128)
    assert any("layers 2, 8, 14, 20 make entries" in note for note in found.notes)


def test_glm5_next_with_its_tail_left_out_has_a_hole_and_says_what_it_assumed() -> None:
    """The newest tokens of an unfinished pool are lost; the default pool is not the released one."""
    found = read_config(
        {
            "model_type": "glm5_next",
            "text_config": {"num_hidden_layers": 4, "index_kpool_always_select_tail": False},
        }
    )
    assert [hole.layers for hole in found.holes] == [(3,)]
    assert "15 of the newest tokens" in found.holes[0].why
    assert any("released GLM-5.3-Flash has 4" in note for note in found.notes)
    assert found.layers[3].folds[0].anchor == "first real token"


def test_pegasus_x_moves_every_other_layer_by_half_a_block() -> None:
    """Odd layers have the same stride and another phase."""
    found = read_config({"model_type": "pegasus_x", "encoder_layers": 2, "block_size": 64})
    assert found.grids == (WindowGrid(64, 64), WindowGrid(64, 64, 32))


def test_funnel_keeps_its_first_token_alone_and_drops_the_last() -> None:
    """Windows of block k hold 2^k tokens from token 1 on; each pooling drops a token."""
    found = read_config({"model_type": "funnel", "block_sizes": [1, 1, 1]})
    assert found.grids == (WindowGrid(2, 2, 1), WindowGrid(4, 4, 3))
    assert [list(grid.windows_of(1)) for grid in found.grids] == [[1], [1]]
    assert found.holes[0].layers == (1, 2)
    kept = read_config({"model_type": "funnel", "block_sizes": [1, 1], "separate_cls": False})
    assert (kept.grids, kept.holes) == ((WindowGrid(2, 2),), ())


def test_llama4_without_a_full_layer_reads_nothing_across_chunks() -> None:
    """Unread tokens in all layers."""
    found = read_config({"model_type": "llama4_text", "num_hidden_layers": 2, "no_rope_layers": [1, 1]})
    assert found.holes[0].layers == (0, 1)
    assert read_config({"model_type": "llama4_text", "num_hidden_layers": 4}).holes == ()


def test_step3p7_is_not_misread_for_the_fields_it_copied() -> None:
    """MiniMax-M3's fields in its config do nothing."""
    fields = {"index_block_size": 128, "sparse_attention_config": {"sparse_attention_freq": [1, 1]}}
    inner = {"model_type": "step3p5", "num_hidden_layers": 2, **fields}
    for config in (
        {"model_type": "step3p7", "text_config": inner},
        inner,
        {"model_type": "step3p7", **fields},
    ):
        found = read_config(config)
        assert found.control
        assert any("no code reads it" in note for note in found.notes)


def test_a_field_of_another_family_makes_no_grid() -> None:
    """A dense model stays dense, whatever else its config carries."""
    odd = {"index_kpool": 4, "compress_ratios": [4], "moba_chunk_size": 64, "mem_freq": 50, "block_size": 8}
    assert read_config({"model_type": "qwen3", **odd}).control


def test_fields_of_foreign_code_count_only_where_that_code_runs() -> None:
    """Beacon and SeerAttention call themselves qwen2; transformers loads such a checkpoint as a dense model."""
    beacon = {"model_type": "qwen2", "num_hidden_layers": 2, "beacon_window": 64, "beacon_ratio": [2, 8]}
    assert read_config(beacon).strides == (2, 8, 64)
    assert read_config(beacon, own_code=False).control
    seer = {"model_type": "qwen2", "num_hidden_layers": 2, "seerattn_gate_block_size": 32}
    assert read_config(seer).grids == (WindowGrid(32, 32),)
    assert read_config(seer).reach is None


def test_nsa_moba_minicpm_and_landmark() -> None:
    """Their own fields, and where they begin to matter."""
    assert read_config({"model_type": "nsa", "block_size": 32, "block_counts": 4}).reach == 128
    assert read_config({"model_type": "moba", "moba_chunk_size": 64, "moba_topk": 2}).reach == 128
    sparse = {"kernel_size": 32, "kernel_stride": 16, "block_size": 64, "topk": 8, "dense_len": 8192}
    minicpm = read_config({"model_type": "minicpm", "num_hidden_layers": 2, "sparse_config": sparse})
    assert (minicpm.grids, minicpm.reach) == ((WindowGrid(32, 16), WindowGrid(64, 64)), 8192)
    assert read_config({"model_type": "minicpm"}).control
    mixed = {"model_type": "minicpm_sala", "num_hidden_layers": 2, "sparse_config": sparse}
    sala = read_config({**mixed, "mixer_types": ["lightning-attn", "minicpm4"]})
    assert [bool(layer.folds) for layer in sala.layers] == [False, True]
    assert read_config({"model_type": "llama_with_landmark", "mem_freq": 50}).strides == (50,)


def test_blt_follows_content_unless_every_patch_is_one_byte() -> None:
    """No stride either way."""
    assert read_config({"model_type": "blt"}).status == "content"
    assert read_config({"model_type": "blt", "patching_mode": "space"}).control


def test_an_unknown_type_is_unknown_and_its_suspicious_fields_are_listed() -> None:
    """Never 'no grid'; one level of nested fields is searched too."""
    odd = {
        "model_type": "brandnew",
        "kv_chunk": 7,
        "hidden_size": 8,
        "sparse": {"topk": 3},
        "auto_map": {"A": "b.C"},
    }
    found = read_config({**odd, "use_pooling": False})
    assert (found.status, found.control, found.known_grids) == ("unknown", False, None)
    assert found.suspicious == ("kv_chunk = 7", "sparse.topk = 3")
    assert "never run" in found.notes[0]


def test_an_unknown_text_part_in_a_known_holder_is_unknown() -> None:
    """A vision model may hold any language model."""
    assert read_config({"model_type": "llava", "text_config": {"model_type": "brandnew"}}).status == "unknown"
    assert read_config({"model_type": "llava", "text_config": {"model_type": "deepseek_v4"}}).strides == (
        4,
        128,
    )
    assert read_config({"model_type": "llava", "text_config": {}}).control


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ([], "holds list"),
        ({}, "no model_type"),
        ({"model_type": 5}, "no model_type"),
        ({"model_type": ""}, "no model_type"),
        ({"model_type": "deepseek_v4", "sliding_window": 0}, "sliding_window is 0"),
        ({"model_type": "deepseek_v4", "sliding_window": True}, "sliding_window is True"),
        ({"model_type": "deepseek_v4", "sliding_window": 10**30}, "sliding_window is 1000"),
        ({"model_type": "deepseek_v4", "num_hidden_layers": 10**9}, "1 to 4,096"),
        ({"model_type": "deepseek_v4", "num_hidden_layers": -1}, "num_hidden_layers is -1"),
        (
            {"model_type": "deepseek_v4", "num_hidden_layers": 3, "compress_ratios": [4, 7, 4]},
            r"compress_ratios\[1\] is 7",
        ),
        (
            {"model_type": "deepseek_v4", "num_hidden_layers": 3, "compress_ratios": [4]},
            "one per layer, 3 in all",
        ),
        ({"model_type": "deepseek_v4", "compress_ratios": "4"}, "list of whole numbers"),
        (
            {"model_type": "deepseek_v4", "num_hidden_layers": 2, "layer_types": ["x", "y"]},
            r"layer_types\[0\] is 'x'",
        ),
        (
            {"model_type": "deepseek_v4", "num_hidden_layers": 2, "layer_types": ["sliding_attention"]},
            "1 layers of 2",
        ),
        ({"model_type": "deepseek_v4", "compress_rates": [4]}, "compress_rates is list"),
        ({"model_type": "deepseek_v41"}, "compress_ratios is None"),
        ({"model_type": "qwen4_exp", "indexer_budget": 64}, "indexer_compress_ratio"),
        ({"model_type": "glm5_next", "index_kpool_always_select_tail": "yes"}, "true or false"),
        ({"model_type": "big_bird", "attention_type": "sparse"}, "'block_sparse' or 'original_full'"),
        ({"model_type": "pegasus_x", "block_size": 7}, "block_size is 7"),
        ({"model_type": "reformer", "attn_layers": ["local", "far"]}, "attn_layers"),
        ({"model_type": "funnel", "block_sizes": []}, "block_sizes"),
        ({"model_type": "nystromformer", "segment_means_seq_len": 65}, "multiple of num_landmarks"),
        ({"model_type": "qwen2", "beacon_window": 8, "beacon_stride": 9}, "beacon_stride is 9"),
        (
            {
                "model_type": "minimax_m3_vl",
                "num_hidden_layers": 2,
                "sparse_attention_config": {"sparse_attention_freq": [1]},
            },
            "2 in all",
        ),
        ({"model_type": "llama4", "num_hidden_layers": 3, "no_rope_layers": [1]}, "3 in all"),
        (
            {"model_type": "phasescope_qwen3", "compression": {"compressor": "csa"}},
            "compression: width is missing",
        ),
        ({"model_type": "phasescope_qwen3", "compression": 3}, "compression is 3"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(config: Any, said: str) -> None:
    """What was given, what is allowed."""
    with pytest.raises(UsageError, match=said) as caught:
        read_config(config)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
