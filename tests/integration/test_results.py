"""What the command line says of real jobs when they have ended: the losses of a sweep, the logs of ranks that
failed and of those that were started again, and what a job that succeeded has reached."""

import json
import pathlib
import re

import harness

# Three steps; the last loss is twice the best, which is the learning rate. Nothing of one that is no number.
TUNED = ("import sys\n"
         "rate, seed = float(sys.argv[1]), sys.argv[2]\n"
         "print('seed', seed)\n"
         "for step, loss in enumerate((3 * rate, rate, 2 * rate), 1):\n"
         "    print(f'step {step} loss {loss:.4f}', flush=True)\n")

# The ranks take turns: each says its line after the one before is in its rank's log, and some stamps later.
# Then rank BAD fails.
TURNS = """
import os, pathlib, sys, time
rank, world, bad = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(sys.argv[1])
generation = os.environ["LOCKSTEP_GENERATION"]
log = pathlib.Path(sys.argv[2], "runs", os.environ["LOCKSTEP_JOB_ID"], "a1", f"rank-{rank:05}.log")
folder = pathlib.Path("turns-" + generation)
folder.mkdir(exist_ok=True)
def turn(number):
    while number and not (folder / str(number - 1)).exists():
        time.sleep(0.01)
    line = f"turn {number} of rank {rank}"
    print(line, flush=True)
    while log.read_text().split("generation " + generation)[-1].count(line + chr(10)) == 0:
        time.sleep(0.01)
    time.sleep(0.05)
    (folder / str(number)).touch()
for number in range(rank, 3 * world, world):
    turn(number)
while not (folder / str(3 * world - 1)).exists():
    time.sleep(0.01)
if rank == bad:
    print("cannot go on", flush=True)
    sys.exit(3)
time.sleep(600)
"""


class Results(harness.TestCase):
    def end(self, spec, state, seconds=120):
        done = self.daemon.wait_state(self.daemon.submit(spec)["id"], harness.FINAL, seconds)
        self.assertEqual(done["state"], state, done)
        return done["id"]

    def test_a_sweep_by_placeholders_is_listed_by_its_best_loss(self):
        written = self.root / "job.json"
        self.daemon.cli("run", "--dry-run", "-o", written, "--name", "tuned", "--", harness.PYTHON, "-c", TUNED,
                        "{lr}", "{seed}")
        spec = json.loads(written.read_text())
        spec["sweep"] = {"parameters": {"lr": [0.3, 0.1, "none", 0.2], "seed": [7]}}
        written.write_text(json.dumps(spec))
        done = self.daemon.cli("submit", "--wait", written, check=False)
        self.assertEqual(done.returncode, 1, "one of them failed: " + done.stdout + done.stderr)
        first = done.stdout.split()[0]
        jobs = json.loads(self.daemon.cli("jobs", "--sweep", first, "--json").stdout)["items"]
        rate_of = {job["id"]: job["sweep"]["parameters"]["lr"] for job in jobs}
        self.assertEqual(sorted(map(str, rate_of.values())), ["0.1", "0.2", "0.3", "none"])
        # By any job of it, by its name, by what a shell has at hand.
        for name in (first, jobs[0]["id"], "last"):
            head, *rows = [line.split() for line in self.daemon.cli("jobs", "--sweep", name).stdout.splitlines()]
            self.assertEqual(head, ["ID", "lr", "seed", "STATE", "STEP", "LAST", "LOSS", "BEST", "LOSS"])
            self.assertEqual([row[1:] for row in rows], [["0.1", "7", "succeeded", "3", "0.2000", "0.1000"],
                                                         ["0.2", "7", "succeeded", "3", "0.4000", "0.2000"],
                                                         ["0.3", "7", "succeeded", "3", "0.6000", "0.3000"],
                                                         ["none", "7", "failed", "-", "-", "-"]])
            self.assertEqual([str(rate_of[row[0]]) for row in rows], [row[1] for row in rows])
        self.assertIn("seed 7\n", self.daemon.cli("logs", first).stdout)
        self.assertIn("1 of 4 (lr 0.3, seed 7)", self.daemon.cli("show", first).stdout)

    def turns(self, name, bad, state="failed", **fields):
        folder = self.root / name
        folder.mkdir()
        return self.end(harness.command_job(
            name, harness.PYTHON, "-c", TURNS, bad, self.daemon.data, working_directory=str(folder),
            resources={"nodes": 1, "ranks_per_node": 3}, **fields), state)

    def logs(self, job, *arguments):
        """(what --json says, the texts without it)."""
        told = [json.loads(line) for line in self.daemon.cli("logs", job, *arguments, "--json").stdout.splitlines()]
        return told, self.daemon.cli("logs", job, *arguments).stdout.splitlines()

    def test_logs_of_a_job_that_failed_on_one_rank(self):
        job = self.turns("one-fails", 1)
        turns = [f"turn {number} of rank {number % 3}" for number in range(9)]
        told, text = self.logs(job, "--rank", "all")
        self.assertEqual([line["text"] for line in told], [*turns, "cannot go on"])
        self.assertEqual([line["rank"] for line in told], [0, 1, 2] * 3 + [1])
        self.assertEqual({line["generation"] for line in told}, {1})
        times = [line["time"] for line in told]
        self.assertEqual(times, sorted(times))
        self.assertEqual(text, [f"[{line['rank']}] {line['text']}" for line in told])
        # The others were ended because of it: they have not failed.
        told, text = self.logs(job, "--failed")
        self.assertEqual({line["rank"] for line in told}, {1}, told)
        self.assertEqual(text, [*turns[1::3], "cannot go on"])
        told, text = self.logs(job, "--rank", "all", "--grep", "turn [1-4]")
        self.assertEqual(([line["text"] for line in told], len(text)), (turns[1:5], 4))
        told, _ = self.logs(job, "--rank", "all", "--since", times[5])
        self.assertEqual([line["text"] for line in told], [*turns[5:], "cannot go on"])
        told, _ = self.logs(job, "--failed", "--since", times[2], "--grep", "turn")
        self.assertEqual([line["text"] for line in told], turns[4::3])
        told, _ = self.logs(job, "--rank", "all", "--since", "1d", "--grep", "no such line")
        self.assertEqual(told, [])

    def test_logs_of_a_job_that_was_restarted(self):
        job = self.turns("restarted", 2, recovery={"max_restarts": 1})
        lines = [f"[{number % 3}] turn {number} of rank {number % 3}" for number in range(9)] + ["[2] cannot go on"]
        told, text = self.logs(job, "--rank", "all")
        # The log of each rank says so, too.
        starts = [f"[{rank}] [lockstep: generation 2 starts]" for rank in range(3)]
        self.assertEqual(text[:11], [*lines, "--- generation 2 ---"])
        self.assertEqual((sorted(text[11:14]), text[14:]), (starts, lines))
        self.assertEqual([line["generation"] for line in told], [1] * 10 + [2] * 13)
        self.assertEqual([line["time"] for line in told], sorted(line["time"] for line in told))
        _, text = self.logs(job, "--failed", "--grep", "cannot")
        self.assertEqual(text, ["cannot go on", "--- generation 2 ---", "cannot go on"])
        # What came since the second start has no mark: all of it is of that one.
        told, text = self.logs(job, "--rank", "all", "--since", told[10]["time"])
        self.assertEqual((sorted(text[:3]), text[3:]), (starts, lines))
        self.assertEqual({line["generation"] for line in told}, {2})

    def test_a_job_that_succeeded_says_what_it_has_reached_and_where_it_is(self):
        spec = harness.small_native_job("reached", learning_rate=0.003)
        spec["train"]["checkpoint_every_steps"] = 50
        job = self.end(spec, "succeeded", 180)
        shown = self.daemon.cli("show", job).stdout
        losses = [point[3] for point in self.daemon.series(job)[0]]
        accuracy = [point[3] for point in self.daemon.series(job, "accuracy")[0]]
        found = {name: re.search(rf"(?m)^{name} +(.+)$", shown) for name in ("loss", "accuracy", "logs", "checkpoint")}
        self.assertTrue(all(found.values()), shown)
        self.assertAlmostEqual(float(re.match(r"[\d.e-]+", found["loss"][1])[0]), losses[-1], delta=0.0002)
        self.assertAlmostEqual(float(re.search(r"lowest ([\d.e-]+)|$", found["loss"][1])[1] or losses[-1]), min(losses),
                               delta=0.0002)
        self.assertAlmostEqual(float(re.match(r"[\d.e-]+", found["accuracy"][1])[0]), accuracy[-1], delta=0.0002)
        self.assertTrue((pathlib.Path(found["logs"][1]) / "rank-00000.log").is_file(), shown)
        path, step = re.fullmatch(r"(.+) \(step (\d+)\)", found["checkpoint"][1]).groups()
        self.assertTrue(pathlib.Path(path).exists(), shown)
        self.assertEqual(int(step), self.daemon.job(job)["checkpoint_step"])


if __name__ == "__main__":
    harness.main()
