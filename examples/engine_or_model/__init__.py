"""One symptom, two causes: a model at fault and an engine at fault."""
