"""The examples do what their pages say."""

from examples.engine_or_model import twins


def test_check_tells_a_model_at_fault_from_an_engine(tmp_path, capsys) -> None:
    """Both twins recall by the needle's position modulo 4; pads behind it change nothing."""
    verdicts = twins.main(["--out", str(tmp_path), "--contexts", "8"])
    for name in verdicts:
        moved = twins.shares(tmp_path / "needle", name, "source_position")
        behind = twins.shares(tmp_path / "end", name, "query_position")
        assert max(moved) - min(moved) > 0.05
        assert max(behind) - min(behind) < 0.05
    assert verdicts["twin A"].decision == "model property"
    assert verdicts["twin A"].effect.period == 4
    assert verdicts["twin B"].decision == "engine fault"
    assert verdicts["twin B"].effect.period == 4
    assert [row.feature for row in verdicts["twin B"].faults] == ["prefill"]
    assert "model property" in capsys.readouterr().out
