"""docs/use/cluster.md: the files it gives are ones that work, as far as one machine can tell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mixlens import cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/use/cluster.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def known_options(command: str) -> None:
    """Every option of the command is one that `mixlens run` has."""
    told = CliRunner().invoke(cli.app, ["run", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
    used = re.findall(r"--[a-z-]+", command)
    assert used
    for option in used:
        assert option in told


def test_the_slurm_script_is_a_script(tmp_path: Path) -> None:
    (tmp_path / "job").write_text(block("bash"))
    subprocess.run(["bash", "-n", str(tmp_path / "job")], check=True)
    known_options(block("bash").splitlines()[-1])


def test_the_manifest_is_one() -> None:
    yaml = pytest.importorskip("yaml")
    told = yaml.safe_load(block("yaml"))
    assert (told["apiVersion"], told["kind"]) == ("ray.io/v1", "RayJob")
    assert told["spec"]["entrypoint"].startswith("mixlens run /corpus/")
    known_options(told["spec"]["entrypoint"])
    ray = told["spec"]["rayClusterSpec"]
    assert f"ray=={ray['rayVersion']}" in (ROOT / "constraints.txt").read_text().split()
    (workers,) = ray["workerGroupSpecs"]
    assert f"--workers {workers['maxReplicas']}" in told["spec"]["entrypoint"]
    for group in (ray["headGroupSpec"], workers):
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
    (mounted,) = ray["headGroupSpec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert mounted["name"] == ray["headGroupSpec"]["template"]["spec"]["volumes"][0]["name"]


SRUN = r"""#!/bin/bash
# Every node is this machine: the command as often as there are nodes.
count=1
while [[ $1 == --* ]]; do
    [[ $1 == --nodes=* ]] && count=${1#--nodes=}
    shift
done
[[ $1 == hostname ]] && { echo 127.0.0.1; exit; }
[[ $1 == ray ]] && set -- "$@" --num-cpus=1 --num-gpus=0 --object-store-memory=80000000
trap 'kill $(jobs -p) 2>/dev/null' EXIT TERM
for ((node = 0; node < count; node++)); do "$@" & done
wait
"""


@pytest.mark.skipif(
    not os.environ.get("MIXLENS_SLOW"), reason="needs a minute and MIXLENS_SLOW=1, as `make test-portable` sets it"
)
def test_the_slurm_script_runs_with_every_node_on_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from mixlens import data

    (tmp_path / "bin").mkdir()
    for name, content in {
        "srun": SRUN,
        "scontrol": "#!/bin/bash\necho one\necho two\n",
        "python": f'#!/bin/bash\nexec {sys.executable} "$@"\n',
        "mixlens": f'#!/bin/bash\nexec {sys.executable} -m mixlens "$@"\n',
    }.items():
        (tmp_path / "bin" / name).write_text(content)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "x.txt").write_text("\n".join(example.text for example in data.load("agreement", n=700, seed=1)) + "\n")
    (tmp_path / "job").write_text(block("bash"))
    path = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    slurm = {"SLURM_JOB_NODELIST": "one,two", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_ID": str(os.getpid())}
    asked = {"DATA": str(tmp_path / "x.txt"), "MODEL": "agreement", "OUT": str(tmp_path / "run"), "PATH": path}
    ran = subprocess.run(
        ["bash", str(tmp_path / "job")],
        env={**os.environ, **slurm, **asked, "PYTHONPATH": str(ROOT), "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"700 rows in {tmp_path / 'run/shards'}" in ran.stdout
