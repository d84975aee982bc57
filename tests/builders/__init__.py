"""What tests of several rooms are built from: small tokenizers and models, and invented findings."""
