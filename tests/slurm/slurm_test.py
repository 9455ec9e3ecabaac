#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/slurm/trireme.sbatch under a real Slurm: a private cluster of this machine (tests/stops/slurm.sh).

    tests/slurm/slurm_test.py PROGRAM

One job is preempted by another one, requeued by its administrator, sent SIGTERM, and reaches its time limit; each time
it saves, begins again where it was saved, and its final weights are those of a run that nothing disturbed. Jobs that
must not begin again do not. Ends with 77 where the packages slurm-wlm and munge are missing, or without root.
"""

import atexit
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TEMPLATE = os.path.join(ROOT, "deploy/slurm/trireme.sbatch")
CLUSTER = os.path.join(ROOT, "tests/stops/slurm.sh")
WAIT_SECONDS = 120  # generous: for a loaded machine
NODES = 2

MORE_CONF = """PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=normal Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=20 OverSubscribe=NO State=UP
PartitionName=urgent Nodes=ALL PriorityTier=9 PreemptMode=OFF OverSubscribe=NO State=UP
"""
MODEL = 'family = "llama"\nlayers = 2\nhidden = 16\nheads = 2\nffn = 32\nvocab = 256\nmax_seq = 32\n'
# The learning rate does not depend on training.steps, and four workers give the same bits on 1, 2 and 4 ranks.
RUN = """[job]
dump_folder = "run"
[model]
name = "tiny.toml"
[optimizer]
lr = 1e-3
[lr_scheduler]
total_steps = 1000000
[training]
dataset_path = "text.txt"
local_batch_size = 1
global_batch_size = 4
seq_len = 16
steps = 1000000
dtype = "fp32"
[parallelism]
logical_dp = 4
[checkpoint]
interval = 0
[validation]
enable = false
[metrics]
log_freq = 5
[system]
device = "cpu"
threads = 1
"""


def missing():
    for program in ("/usr/bin/srun", "/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/sbin/munged"):
        if not os.access(program, os.X_OK):
            return f"{program} is not installed (packages slurm-wlm, munge)"
    return "a private Slurm cluster needs root" if os.getuid() != 0 else ""


def output_of(*words, check=True):
    result = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WAIT_SECONDS)
    if check and result.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: exit code {result.returncode}\n{result.stdout}")
    return result.stdout


def start_cluster():
    folder = tempfile.mkdtemp(prefix="slurm_test_")
    with open(os.path.join(folder, "more.conf"), "w") as file:
        file.write(MORE_CONF)
    os.environ["SLURM_CRED_EXPIRE"] = "5"
    output_of(CLUSTER, "start", folder, str(os.getpid()), str(NODES))
    os.environ["SLURM_CONF"] = os.path.join(folder, "slurm.conf")

    def stop():
        subprocess.run([CLUSTER, "stop", folder], check=False)
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)


class Job:
    """A job of the template in a folder of its own, which holds the run."""

    def __init__(self, folder, options, words):
        self.log_path = os.path.join(folder, f"job{len(glob.glob(os.path.join(folder, 'job*.out')))}.out")
        self.folder = folder
        self.number = output_of(
            "sbatch", "--parsable", "--chdir", folder, "--output", self.log_path, *options, TEMPLATE, "run.toml", *words
        ).strip()

    def log(self):
        try:
            with open(self.log_path, errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def shown(self):
        text = output_of("scontrol", "show", "job", self.number)
        return dict(re.findall(r"(JobState|ExitCode|Restarts|Reason)=(\S+)", text))

    def wait_for(self, what, holds):
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            if holds():
                return
            time.sleep(0.1)
        raise AssertionError(f"job {self.number} does not reach: {what}; {self.shown()}\n{self.log()}")

    def step(self):
        """Returns the last step of metrics.jsonl; -1 without one."""
        try:
            with open(os.path.join(self.folder, "run/metrics.jsonl"), "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return -1
        steps = [json.loads(line)["step"] for line in lines[1:-1] if line.startswith(b'{"')]
        return steps[-1] if steps else -1

    def starts(self):
        return len(re.findall(r"start-up  first step finished", self.log()))

    def saved_steps(self):
        return [int(step) for step in re.findall(r"stopped   step (\d+) is saved", self.log())]

    def resumed_steps(self):
        return [int(step) for step in re.findall(r"resume    step (\d+) of", self.log())]

    def wait_for_start(self, number):
        """Waits until the start of this number has finished 20 steps."""
        self.wait_for(f"start {number}", lambda: self.starts() >= number)
        begun = self.step()
        self.wait_for(f"20 steps of start {number}", lambda: self.step() >= begun + 20)

    def wait_for_state(self, *states):
        self.wait_for(" or ".join(states), lambda: self.shown()["JobState"] in states)
        return self.shown()


class SlurmTest(unittest.TestCase):
    program = ""

    @classmethod
    def setUpClass(cls):
        start_cluster()
        os.environ["TRIREME"] = cls.program
        os.environ["RANKS"] = "2"

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="slurm_run_")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.write("tiny.toml", MODEL)
        self.write("text.txt", "".join(f"{i} bottles stand on the wall.\n" for i in range(100)))
        self.write("run.toml", RUN)

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w") as file:
            file.write(text)

    def hash_of_weights(self, run):
        with open(os.path.join(self.folder, run, "weights/final/model.safetensors"), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def finish(self, job):
        """Ends the job at its next checkpoint, runs some steps more as another job, and compares the weights."""
        step = job.step()
        output_of("scancel", job.number)
        self.assertEqual(job.wait_for_state("CANCELLED")["Restarts"], str(job.starts() - 1))
        job.wait_for("the save", lambda: len(job.saved_steps()) == job.starts())
        job.wait_for("the end of the script", lambda: "Slurm decides" in job.log().rsplit("start ", 1)[1])
        steps = max(job.saved_steps()) + 20
        self.assertGreaterEqual(steps, step)
        last = Job(self.folder, ["--partition=normal"], [f"--training.steps={steps}"])
        shown = last.wait_for_state("COMPLETED", "FAILED", "CANCELLED")
        self.assertEqual((shown["JobState"], shown["ExitCode"]), ("COMPLETED", "0:0"), last.log())
        self.assertEqual(last.resumed_steps(), [max(job.saved_steps())])
        output_of(
            "env", "--chdir", self.folder, self.program, "train", "run.toml", f"--training.steps={steps}",
            "--job.dump_folder=quiet",
        )
        self.assertEqual(self.hash_of_weights("run"), self.hash_of_weights("quiet"))
        print(f"   weights of {steps} steps after {job.starts()} starts: {self.hash_of_weights('run')}, as without a stop")

    def test_every_requeue_resumes_and_the_weights_are_those_of_a_quiet_run(self):
        job = Job(self.folder, ["--partition=normal"], ["--parallelism.data_parallel_shard_degree=2"])
        job.wait_for_start(1)
        print("-- a job of a partition with priority preempts it")
        urgent = output_of(
            "sbatch", "--parsable", "--partition=urgent", f"--nodes={NODES}", "--exclusive", "--output=/dev/null",
            "--wrap", "sleep 1",
        ).strip()
        self.assertTrue(urgent)
        job.wait_for_start(2)
        self.assertEqual(job.shown()["Restarts"], "1")
        print("-- scontrol requeue")
        output_of("scontrol", "requeue", job.number)
        job.wait_for_start(3)
        self.assertEqual(job.shown()["Restarts"], "2")
        print("-- scancel --signal=TERM: the template requeues it")
        output_of("scancel", "--signal=TERM", job.number)
        job.wait_for_start(4)
        self.assertEqual(job.shown()["Restarts"], "3")
        print("-- SIGUSR2 to the script, as before the time limit")
        output_of("scancel", "--signal=USR2", "--batch", job.number)
        job.wait_for_start(5)
        self.assertEqual(job.shown()["Restarts"], "4")
        self.assertEqual(job.resumed_steps(), job.saved_steps(), job.log())
        self.assertEqual(len(job.saved_steps()), 4, job.log())
        print(f"   saved and resumed at the steps {job.saved_steps()}")
        # KillWait is 30 s, so the grace time is 30 s and not the 180 s of --signal.
        self.assertIn("elastic.grace_s is 30 s", job.log())
        self.finish(job)

    def test_two_nodes_stop_and_resume_together(self):
        job = Job(
            self.folder, ["--partition=normal", f"--nodes={NODES}"], ["--parallelism.data_parallel_shard_degree=4"]
        )
        job.wait_for_start(1)
        self.assertIn("rank 0 of 4, local rank 0 of 2 on node 0", job.log())
        output_of("scontrol", "requeue", job.number)
        job.wait_for_start(2)
        output_of("scancel", "--signal=TERM", job.number)
        job.wait_for_start(3)
        self.assertEqual(job.resumed_steps(), job.saved_steps(), job.log())
        self.finish(job)

    def test_the_time_limit_stops_and_requeues(self):
        # Slurm counts minutes, and sends the signal up to a minute early: at once.
        job = Job(self.folder, ["--partition=normal", "--time=1", "--signal=B:USR2@60"], [])
        job.wait_for_start(1)
        job.wait_for("a second start", lambda: job.starts() >= 2)
        self.assertIn("the job is requeued", job.log())
        self.assertEqual(job.resumed_steps()[0], job.saved_steps()[0], job.log())
        output_of("scancel", job.number)
        job.wait_for_state("CANCELLED")

    def test_what_must_not_begin_again_does_not(self):
        refused = Job(self.folder, ["--partition=normal"], ["--training.steps=-5", "--job.dump_folder=refused"])
        diverged = Job(
            self.folder, ["--partition=normal"],
            ["--optimizer.lr=1000", "--training.steps=60", "--training.dtype=bf16", "--job.dump_folder=diverged",
             "--parallelism.data_parallel_shard_degree=2"],
        )
        os.environ["MAX_REQUEUES"] = "0"
        self.addCleanup(os.environ.pop, "MAX_REQUEUES")
        stopped = Job(
            self.folder, ["--partition=normal"],
            ["--job.dump_folder=run", "--parallelism.data_parallel_shard_degree=2"],
        )
        shown = refused.wait_for_state("FAILED", "COMPLETED")
        self.assertEqual((shown["JobState"], shown["ExitCode"], shown["Restarts"]), ("FAILED", "2:0", "0"))
        shown = diverged.wait_for_state("FAILED", "COMPLETED")
        self.assertEqual((shown["JobState"], shown["ExitCode"]), ("FAILED", "93:0"), diverged.log())
        self.assertIn("not to be started again", diverged.log())
        stopped.wait_for_start(1)
        output_of("scancel", "--signal=TERM", stopped.number)
        shown = stopped.wait_for_state("FAILED", "COMPLETED")
        self.assertEqual((shown["JobState"], shown["ExitCode"], shown["Restarts"]), ("FAILED", "75:0", "0"))
        self.assertIn("not requeued: MAX_REQUEUES", stopped.log())


if __name__ == "__main__":
    if len(sys.argv) < 2 or not os.access(sys.argv[1], os.X_OK):
        sys.exit("usage: slurm_test.py PROGRAM [TEST...]")
    problem = missing()
    if problem:
        print(f"skipped: {problem}")
        sys.exit(77)
    SlurmTest.program = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
