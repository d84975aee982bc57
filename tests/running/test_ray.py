"""Ray actors write the bytes of one process, though one is killed; and what can't be had is one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from phasescope.running.runner import run
from tests.running.test_processes import conditions, files

pytest.importorskip("ray")

RAY = """
import json, os, sys, time
from pathlib import Path
from phasescope import UsageError
from phasescope.running.ray import Ray
from phasescope.running.runner import run
from tests.running.test_processes import conditions

out, graves = Path(sys.argv[1]), Path(sys.argv[2])
engine = Ray(workers=2)
mortal = conditions(folder=str(graves), dies={"c0001": 1})
reports = []
run(mortal, out, 3, lambda *done: reports.append(done), engine)
facts = {"usage": os.environ["RAY_USAGE_STATS_ENABLED"], "reports": reports}

import ray
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)  # a cluster of the user's, too small
try:
    run(mortal, out, 3, engine=Ray(workers=5))
except UsageError as error:
    facts["refused"] = str(error)
facts["left_alone"] = ray.is_initialized()
print(json.dumps(facts))
"""


@pytest.mark.slow
def test_ray_actors_write_the_bytes_of_one_process_though_one_is_killed(tmp_path: Path) -> None:
    """Its batch goes to a new actor; a cluster without room is refused at once, and left as it was."""
    root = Path(__file__).parents[2]
    run(conditions(), tmp_path / "one", seed=3)
    graves = tmp_path / "graves"
    graves.mkdir()
    paths = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", RAY, str(tmp_path / "two"), str(graves)],
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert files(tmp_path / "two") == files(tmp_path / "one")
    assert len(list(graves.iterdir())) == 1
    assert facts["usage"] == "0"
    assert facts["reports"] == [[12 * batch, 144] for batch in range(13)]
    assert facts["refused"] == "5 workers need 5 CPUs, the Ray cluster has 1; give fewer workers"
    assert facts["left_alone"]
