"""What counts as a right text, by name, by pattern, and by the user's own function."""

import pytest

from phasescope import UsageError
from phasescope.text.scorers import Scorer


@pytest.mark.parametrize(
    ("given", "text", "score"),
    [
        ("exact", " yes\n", 1),
        ("exact", "yes, sir", 0),
        ("begins", " yes, sir", 1),
        ("contains", "oh yes", 1),
        ("contains", "no", 0),
        ("regex:(?i)i can(no|')t", "Sorry, I can't help", 1),
        ("regex:^no$", "no\nyes", 0),
    ],
)
def test_the_built_in_scorers(given, text, score):
    """The text is compared with the expected 'yes'."""
    assert Scorer.load(given).score(text, "yes") == score


def test_a_function_of_the_users_own_is_run_and_named_by_the_digest_of_its_file(tmp_path):
    """Another file, another digest, so that a resumed run cannot mix two scorers."""
    path = tmp_path / "own.py"
    path.write_text("def refuses(text):\n    return 'cannot' in text\n")
    scorer = Scorer.load(f"{path}:refuses")
    assert (scorer.score("I cannot", ""), scorer.score("Sure", "")) == (1.0, 0.0)
    path.write_text("def refuses(text):\n    return 0.5\n")
    other = Scorer.load(f"{path}:refuses")
    assert other.score("x", "") == 0.5
    assert scorer.digest != other.digest


@pytest.mark.parametrize(
    "given",
    ["", "exactly", "regex:(", "no_such_module:f", "json:no_such_function", "missing.py:f", "os.path:sep"],
)
def test_a_scorer_that_cannot_be_loaded_is_one_line(given):
    """Unknown names, broken patterns, modules and functions that are not there."""
    with pytest.raises(UsageError) as error:
        Scorer.load(given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("body", ["1 / 0", "'much'", "2", "None", "float('nan')"])
def test_a_function_that_fails_or_answers_nonsense_is_one_line(tmp_path, body):
    """Its error is told, not raised."""
    path = tmp_path / "own.py"
    path.write_text(f"def f(text):\n    return {body}\n")
    with pytest.raises(UsageError, match="failed on 'a text'"):
        Scorer.load(f"{path}:f").score("a text", "")
