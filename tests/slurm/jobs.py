"""Runs submitted to the cluster of a test: started, watched, interrupted, compared."""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import fault_runs
from fault_runs import num_lines
from run_files import read_lines
from tiny import TOOL, command

SWEEP_TOOL = TOOL.with_name("sweep.py")
SHORT = {"SOLVER.STEPS": [0, 18], "SOLVER.MAX_EPOCH": 24}  # 59 steps, 8 s on a calm machine
LONG_SECONDS = 45
"""Of training, so that a time limit of a minute comes in between: Slurm warns after 10 to 40 s."""
TIMEOUT_SECONDS = 300


def environment(cluster=None):
    """One thread for each process, and how to find the cluster."""
    return {**os.environ, "OMP_NUM_THREADS": "1", **(cluster.environment if cluster else {})}


def call(tool, arguments, cluster=None):
    """Runs a tool in a process of its own; what it said."""
    done = subprocess.run(
        [sys.executable, str(tool), *map(str, arguments)],
        check=False,
        env=environment(cluster),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def submit(cluster, config, output, *options):
    """The job id."""
    wanted = [*command(config, output), "--launcher", "slurm", "--partition", "low", *options]
    text = call(TOOL, wanted, cluster)
    return re.search(r"job (\d+) is submitted", text)[1]


def wait_for(condition, what):
    fault_runs.wait_for(condition, what, TIMEOUT_SECONDS)


def wait_for_step(output, step):
    wait_for(lambda: num_lines(output / "metrics.jsonl") >= step, f"step {step}")


def longer(finished):
    """The keys of a run that trains about LONG_SECONDS here, by the steps of a finished run."""
    seconds = [line["step_seconds"] for line in read_lines(finished / "metrics.jsonl")]
    epochs = math.ceil(SHORT["SOLVER.MAX_EPOCH"] * LONG_SECONDS / sum(seconds))
    return {"SOLVER.STEPS": [0, 3 * epochs / 4], "SOLVER.MAX_EPOCH": epochs}


def wait_for_result(cluster, output):
    """Returns when the run is finished, fails when it has left the queue without."""
    result = output / "result.json"
    wait_for(lambda: result.exists() or not cluster.call("squeue", "--noheader"), "result")
    assert result.exists(), log(output)


def wait_until_gone(cluster, job):
    wait_for(
        lambda: job not in cluster.call("squeue", "--noheader", "--format=%A"), "end of the job"
    )


def task_pid(job, rank):
    """The process of a task of a job; None before it has started."""
    wanted = {f"SLURM_JOB_ID={job}".encode(), f"SLURM_PROCID={rank}".encode()}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted <= {*found} and b"submitit.core._submit" in command:
            return int(folder.name)
    return None


def log(output):
    """What the processes of a run said, those of Slurm too."""
    paths = sorted(output.glob("launches/*/*_log.err"))
    return "\n".join(f"{path.name}:\n{path.read_text()}" for path in paths)


def preempt(cluster):
    """A job of the higher partition takes both nodes for a moment."""
    whole = ("--nodes=2", "--exclusive", "--output=/dev/null")
    cluster.call("sbatch", "--partition=high", *whole, "--wrap=sleep 1")


def starts_after(output):
    """Steps that each start went on after."""
    return [line["after_step"] for line in read_lines(Path(output) / "starts.jsonl")]
