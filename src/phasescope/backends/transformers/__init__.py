"""Models of `transformers` on this machine; needs torch."""
