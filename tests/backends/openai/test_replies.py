"""Answers as real servers gave them, and answers that nobody should believe."""

from __future__ import annotations

from typing import Any

import pytest

from phasescope.backends.openai.client import UnusableError
from phasescope.backends.openai.lookup import Lookup
from phasescope.backends.openai.replies import Position, prompt_positions, read_answer

from ..conftest import small_tokenizer

LLAMA = {
    "choices": [
        {
            "text": "hre",
            "index": 0,
            "logprobs": {
                "content": [
                    {
                        "id": 88,
                        "token": "h",
                        "bytes": [104],
                        "logprob": -3.125,
                        "top_logprobs": [
                            {"id": 88, "token": "h", "bytes": [104], "logprob": -3.125},
                            {"id": 89, "token": "i", "bytes": [105], "logprob": -3.5},
                        ],
                    },
                    {"id": 257, "token": "re", "bytes": [114, 101], "logprob": -2.75, "top_logprobs": []},
                ]
            },
        }
    ],
    "usage": {"prompt_tokens": 30, "prompt_tokens_details": {"cached_tokens": 29}},
    "id": "chatcmpl-D8um",
}
VLLM = {
    "id": "cmpl-8031",
    "choices": [
        {
            "index": 0,
            "text": "hre",
            "logprobs": {
                "token_logprobs": [-3.125, -2.75],
                "tokens": ["token_id:88", "token_id:257"],
                "top_logprobs": [{"token_id:88": -3.125, "token_id:5": -27.25}, {"token_id:257": -2.75}],
            },
            "token_ids": [88, 257],
            "prompt_token_ids": [300, 301],
        }
    ],
    "usage": {"prompt_tokens": 2, "prompt_tokens_details": None},
}
VLLM_CHAT = {
    "id": "chatcmpl-a6bd",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello"},
            "logprobs": {
                "content": [
                    {
                        "token": "token_id:19556",
                        "logprob": -0.98,
                        "bytes": [72, 101, 108, 108, 111],
                        "top_logprobs": [
                            # The bytes are those of the name, not of the token.
                            {"token": "token_id:9085", "logprob": -2.5, "bytes": [116, 111, 107, 101, 110]}
                        ],
                    }
                ]
            },
        }
    ],
    "prompt_token_ids": [1, 9690],
    "usage": {"prompt_tokens": 31},
}
TRANSFORMERS = {
    "id": "f888",
    "choices": [{"finish_reason": "length", "index": 0, "text": " of ours"}],
    "usage": {"completion_tokens": 2, "prompt_tokens": 4},
}


def changed(answer: Any, **fields: Any) -> Any:
    """The answer with other fields in its choice."""
    return answer | {"choices": [answer["choices"][0] | fields]}


def test_llama_cpp_gives_records_with_ids() -> None:
    """Also to completions; the ids of the continuation follow from them."""
    answer = read_answer(LLAMA)
    assert (answer.text, answer.ids, answer.prompt_tokens, answer.cached_tokens) == ("hre", (88, 257), 30, 29)
    assert answer.positions is not None
    assert answer.positions[0] == Position(88, -3.125, {88: -3.125, 89: -3.5})
    assert answer.prompt_ids is None


def test_vllm_gives_lists_and_echoes_the_prompt() -> None:
    """Tokens are named by id on demand."""
    answer = read_answer(VLLM)
    assert (answer.ids, answer.prompt_ids, answer.cached_tokens) == ((88, 257), (300, 301), None)
    assert answer.positions is not None
    assert answer.positions[0].top == {88: -3.125, 5: -27.25}


def test_vllm_chats_echo_beside_the_choice_and_name_tokens_by_id() -> None:
    """What stands in `bytes` then is not the token."""
    answer = read_answer(VLLM_CHAT)
    assert (answer.text, answer.ids, answer.prompt_ids) == ("Hello", (19556,), (1, 9690))
    assert answer.positions is not None
    assert answer.positions[0].top == {9085: -2.5}


def test_a_server_that_gives_text_alone_has_no_ids_and_no_log_probabilities() -> None:
    """They are not there, rather than empty."""
    answer = read_answer(TRANSFORMERS)
    assert (answer.text, answer.ids, answer.positions, answer.prompt_tokens) == (" of ours", None, None, 4)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "without choices"),
        ([], "without choices"),
        (None, "without choices"),
        ({"choices": []}, "without choices"),
        ({"choices": ["x"]}, "without choices"),
        ({"choices": LLAMA["choices"] * 2}, "more than one choice"),
        (changed(LLAMA, text=None), "without text"),
        (changed(LLAMA, text=7), "without text"),
    ],
)
def test_an_answer_that_is_none_says_why(body: Any, reason: str) -> None:
    """In the same words for the same defect."""
    with pytest.raises(UnusableError, match=reason):
        read_answer(body)


def test_a_chat_without_content_has_said_nothing() -> None:
    """A model that only reasoned, or refused."""
    assert read_answer(changed(VLLM_CHAT, message={"content": None}, logprobs=None)).text == ""


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        [],
        {"content": None},
        {"content": [{"token": "h"}]},
        {"content": [{"token": "h", "logprob": "much"}]},
        {"content": [{"token": "h", "logprob": 3.0}]},
        {"content": ["h"]},
        {"tokens": ["h"], "token_logprobs": []},
        {"tokens": ["h"], "token_logprobs": [None]},
        {"tokens": [5], "token_logprobs": [-1.0]},
    ],
)
def test_log_probabilities_in_no_known_shape_are_none(logprobs: Any) -> None:
    """Better none than wrong ones: a probability above 1 is none."""
    assert read_answer(changed(LLAMA, logprobs=logprobs)).positions is None


def test_a_name_that_stands_for_two_tokens_is_no_name() -> None:
    """Two tokens whose bytes are no text of their own look the same."""
    records = [
        {"token": name, "logprob": value} for name, value in (("\ufffd", -1.0), ("\ufffd", -2.0), ("b", -3.0))
    ]
    told = changed(LLAMA, logprobs={"content": [{"token": "b", "logprob": -3.0, "top_logprobs": records}]})
    positions = read_answer(told).positions
    assert positions is not None
    assert positions[0].top == {"b": -3.0}


def test_a_text_names_a_token_only_if_it_is_encoded_to_it() -> None:
    """Ids come first; without a tokenizer no text is a name."""
    small = small_tokenizer()
    (word,) = small.encode(" bab")
    control = next(iter(small.special_ids))
    position = Position(" bab", -0.5, {" dad": -2.0, word + 1: -4.0})
    lookup = Lookup(small)
    assert lookup.find(position, word) == -0.5
    assert lookup.find(position, small.encode(" dad")[0]) == -2.0
    assert lookup.find(position, word + 1) == -4.0
    assert lookup.find(Position("", -1.0, {}), control) is None
    assert Lookup(None).find(position, word) is None
    assert lookup.find_all(position, [word, word + 1]) == (-0.5, -4.0)
    assert lookup.find_all(position, [word, 3]) is None
    assert lookup.find_all(position, []) is None


def test_the_prompt_s_own_log_probabilities_come_ranked_or_echoed() -> None:
    """The first token has none; whatever was generated behind the prompt is left out."""
    ranked = changed(VLLM, prompt_logprobs=[None, {"301": {"logprob": -11.0}, "29": {"logprob": -1.5}}])
    assert [p.top for p in prompt_positions(ranked, 2)[:2]] == [{}, {301: -11.0, 29: -1.5}]
    echoed = {
        "tokens": ["token_id:300", "token_id:301", "token_id:30"],
        "token_logprobs": [None, -11.0, -2.25],
        "top_logprobs": [None, {"token_id:29": -1.5}, None],
    }
    first, second, _ = prompt_positions(changed(VLLM, logprobs=echoed), 2)
    assert first.logprob is None
    assert second == Position(301, -11.0, {29: -1.5})
    for told in (changed(VLLM, logprobs=None), changed(VLLM, prompt_logprobs=[None])):
        with pytest.raises(UnusableError, match="log-probabilities of the prompt missing"):
            prompt_positions(told, 2)
