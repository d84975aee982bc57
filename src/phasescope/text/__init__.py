"""Text and tokens: tokenizers, prompts, exact pads, where a fact stands, corpora."""
