"""Jobs that go on with fewer nodes and grow back (resources.min_nodes): real agents and ranks on the local
scheduler. A node is cut off by freezing its agent, crashes with its agent, and is gone with the agent's
keeper."""

import collections
import os
import re
import signal
import time
import unittest

import harness


class ElasticCase(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.root / "run"
        self.folder.mkdir()

    def submit(self, nodes=3, min_nodes=2, recovery=None, **fields):
        job = harness.python_job("elastic", "elastic_steps.py", self.folder,
                                 resources={"nodes": nodes, "min_nodes": min_nodes, "ranks_per_node": 2},
                                 recovery=recovery if recovery is not None else {}, **fields)
        return self.daemon.submit(job)["id"]

    def agent_of(self, job_id, node, attempt=1):
        """The pid of the agent that has a node of the allocation, by its claim."""
        claims = [e for e in self.daemon.events(job_id) if e["kind"] in ("agent_claimed", "node_returned") and
                  e["attempt"] == attempt and e["data"].get("node_rank", e["data"].get("slot")) == node]
        return claims[-1]["data"]["pid"]

    @staticmethod
    def keeper_of(agent):
        with open(f"/proc/{agent}/stat", encoding="ascii") as stat:
            return int(stat.read().rsplit(")", 1)[1].split()[1])

    def generations(self, job_id, attempt=1):
        return self.daemon.job(job_id)["attempts"][attempt - 1]["generations"]

    def wait_generation(self, job_id, number, nodes, attempt=1):
        """Until that generation runs with that many nodes and has made steps."""
        def runs(job):
            if len(job["attempts"]) < attempt or len(job["attempts"][attempt - 1]["generations"]) < number:
                return False
            one = job["attempts"][attempt - 1]["generations"][number - 1]
            self.assertEqual(one["nodes"], nodes, job)
            return one.get("running_at") and job["state"] == "running" and len(self.starts(attempt, number)) == 2 * nodes
        self.daemon.wait_for(job_id, runs, 60, f"generation {number} with {nodes} nodes")
        first = self.starts(attempt, number)[0]["step"]
        self.daemon.wait_for(job_id, lambda job: job.get("step", 0) >= first + 12, 60, "steps")

    def starts(self, attempt=1, generation=None):
        names = ("rank", "attempt", "generation", "pid", "step", "world", "node")
        path = self.folder / "starts"
        lines = [dict(zip(names, map(int, line.split()), strict=True)) for line in
                 path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
        return [line for line in lines if line["attempt"] == attempt and
                (generation is None or line["generation"] == generation)]

    def finish(self, job_id):
        """Lets the ranks end, and checks that each generation was of one world and from one checkpoint."""
        harness.write_whole(self.folder / "last", str(self.daemon.job(job_id)["step"] + 60))
        done = self.daemon.wait_state(job_id, harness.FINAL, 90)
        self.assertEqual(done["state"], "succeeded", done)
        for attempt in done["attempts"]:
            for generation in attempt["generations"]:
                ranks = self.starts(attempt["number"], generation["number"])
                self.assertEqual(sorted(rank["rank"] for rank in ranks), list(range(generation["world_size"])))
                self.assertEqual({rank["world"] for rank in ranks}, {generation["world_size"]})
                self.assertEqual(len({rank["step"] for rank in ranks}), 1, ranks)
        return done

    def causes(self, job):
        return [[g.get("cause", {}).get("class") for g in a["generations"]] for a in job["attempts"]]


class Frozen(ElasticCase):
    def test_a_node_that_falls_silent_is_left_out_and_taken_back(self):
        job_id = self.submit(recovery={"grow_after_seconds": 60})
        self.wait_generation(job_id, 1, 3)
        agent = self.agent_of(job_id, 1)
        os.kill(agent, signal.SIGSTOP)
        try:
            self.wait_generation(job_id, 2, 2)
            job = self.daemon.job(job_id)
            lost = job["attempts"][0]["nodes"][1]
            self.assertEqual(job["attempts"][0]["lost_nodes"], [lost])
            self.assertEqual(self.generations(job_id)[1]["message"], f"goes on with 2 of 3 nodes: {lost} is lost")
            self.check_small(job_id, lost)
        finally:
            os.kill(agent, signal.SIGCONT)
        self.wait_generation(job_id, 3, 3)
        self.check_grown(job_id, lost)
        done = self.finish(job_id)
        self.assertEqual(self.causes(done), [["node_lost", "node_returned", None]])
        self.assertNotIn("lost_nodes", done["attempts"][0])
        self.assertGreater(done["ettr"], 0)
        # The ranks that the frozen agent had are gone: their generation was over.
        old = [line["pid"] for line in self.starts(1, 1)]
        self.assertEqual([pid for pid in old if self.runs(pid)], [])

    @staticmethod
    def runs(pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                return b"elastic_steps.py" in file.read()
        except OSError:
            return False

    def check_small(self, job_id, lost):
        """What is seen while it runs on two nodes."""
        ranks = self.daemon.get(f"/v1/jobs/{job_id}/ranks")
        self.assertEqual((ranks["total"], len(ranks["items"])), (4, 4))
        self.assertNotIn(lost, {rank["node"] for rank in ranks["items"]})
        self.assertEqual(self.metric("lockstep_job_nodes"), 2)
        self.assertEqual(self.metric("lockstep_job_nodes_requested"), 3)
        self.assertEqual(self.metric("lockstep_job_ranks_expected"), 4)
        shown = self.daemon.cli("show", job_id).stdout
        self.assertIn("3 × 2 ranks, at least 2 nodes", shown)
        self.assertRegex(shown, r"runs on +2 of 3 nodes")
        self.assertIn(f"goes on with 2 of 3 nodes: {lost} is lost", shown)
        series = self.daemon.series(job_id)
        self.assertEqual(sorted(series), list(range(6)), "what the ranks of before had said stays")

    def check_grown(self, job_id, lost):
        kinds = [event["kind"] for event in self.daemon.events(job_id)]
        self.assertEqual(kinds.count("node_returned"), 1)
        small, large = self.generations(job_id)[1:]
        self.assertEqual(small["cause"]["message"], f"{lost} is there: the ranks are started again on 3 of 3 nodes")
        self.assertEqual(large["message"], "3 of 3 nodes again")
        # It was taken right after a checkpoint: nothing was done twice but what came after that.
        self.assertGreaterEqual(large["resumed_from_step"], self.starts(1, 2)[0]["step"])
        self.assertEqual(self.metric("lockstep_job_nodes"), 3)
        shown = self.daemon.cli("show", job_id).stdout
        self.assertNotIn("runs on", shown)
        story = self.daemon.cli("events", job_id).stdout
        self.assertIn("node_returned", story)

    def metric(self, name):
        lines = [line for line in self.daemon.text("/metrics").splitlines() if line.startswith(name + "{")]
        self.assertEqual(len(lines), 1, lines)
        return float(lines[0].split()[-1])


class Killed(ElasticCase):
    def test_a_killed_agent_is_started_again_and_its_node_goes_on(self):
        job_id = self.submit()
        self.wait_generation(job_id, 1, 3)
        os.kill(self.agent_of(job_id, 1), signal.SIGKILL)
        self.wait_generation(job_id, 2, 3)
        done = self.finish(job_id)
        self.assertEqual(self.causes(done), [["node_lost", None]])
        self.assertIn("ended and was started again", done["attempts"][0]["generations"][0]["cause"]["message"])

    def test_a_node_that_is_gone_for_good_is_done_without(self):
        job_id = self.submit()
        self.wait_generation(job_id, 1, 3)
        os.kill(self.keeper_of(self.agent_of(job_id, 0)), signal.SIGKILL)
        self.wait_generation(job_id, 2, 2)
        places = {line["node"] for line in self.starts(1, 2)}
        self.assertEqual(places, {0, 1}, "those behind have moved up")
        done = self.finish(job_id)
        self.assertEqual(self.causes(done), [["node_lost", None]])
        self.assertEqual(len(done["attempts"]), 1)

    def test_too_few_nodes_are_another_attempt_with_all_of_them(self):
        job_id = self.submit()
        self.wait_generation(job_id, 1, 3)
        os.kill(self.keeper_of(self.agent_of(job_id, 2)), signal.SIGKILL)
        self.wait_generation(job_id, 2, 2)
        os.kill(self.keeper_of(self.agent_of(job_id, 1)), signal.SIGKILL)
        self.wait_generation(job_id, 1, 3, attempt=2)
        done = self.finish(job_id)
        self.assertEqual(self.causes(done), [["node_lost", "node_lost"], [None]])

    def test_too_few_nodes_end_the_job_where_no_attempt_is_left(self):
        job_id = self.submit(recovery={"max_attempts": 1})
        self.wait_generation(job_id, 1, 3)
        for node in (2, 1):
            os.kill(self.keeper_of(self.agent_of(job_id, node)), signal.SIGKILL)
        done = self.daemon.wait_state(job_id, harness.FINAL, 90)
        self.assertEqual(done["state"], "failed", done)
        self.assertEqual(done["cause"]["class"], "node_lost")

    def test_without_recovery_it_is_refused(self):
        job = harness.command_job("elastic", "true", resources={"nodes": 3, "min_nodes": 2})
        self.assert_problem(self.daemon.api("POST", "/v1/jobs", job), 400, "/resources/min_nodes", "needs /recovery")


class Daemon(ElasticCase):
    def test_a_daemon_that_dies_while_a_node_is_away_takes_it_back(self):
        job_id = self.submit(recovery={"grow_after_seconds": 0})
        self.wait_generation(job_id, 1, 3)
        agent = self.agent_of(job_id, 2)
        os.kill(agent, signal.SIGSTOP)
        try:
            self.wait_generation(job_id, 2, 2)
            self.daemon.kill9()
        finally:
            os.kill(agent, signal.SIGCONT)
        self.daemon.start()
        self.wait_generation(job_id, 3, 3)
        done = self.finish(job_id)
        self.assertEqual(self.causes(done), [["node_lost", "node_returned", None]])


@unittest.skipUnless((harness.BIN / "lockstep-train").exists(), "SKIPPED: lockstep-train is not built here")
class Native(ElasticCase):
    """The native trainer, which divides what is left of an epoch among the ranks that there are."""

    def test_it_trains_on_with_fewer_nodes_and_with_all_again(self):
        job_id = self.daemon.submit({
            "name": "elastic", "framework": "native", "resources": {"nodes": 3, "min_nodes": 2}, "working_directory": str(self.folder),
            "train": {"model": "mnist_convnet", "batch_size": 16, "max_steps": 1_000_000, "epochs": 1_000_000, "learning_rate": 0.001,
                      "checkpoint_every_steps": 10},
            "checkpoint": {"directory": str(self.folder / "checkpoints")}, "recovery": {"grow_after_seconds": 30}})["id"]
        self.wait_world(job_id, 1, 3)
        agent = self.agent_of(job_id, 1)
        os.kill(agent, signal.SIGSTOP)
        try:
            self.wait_world(job_id, 2, 2)
        finally:
            os.kill(agent, signal.SIGCONT)
        self.wait_world(job_id, 3, 3)
        self.daemon.api("POST", f"/v1/jobs/{job_id}/cancel")
        done = self.daemon.wait_state(job_id, harness.FINAL, 60)
        self.assertEqual(self.causes(done)[0][:2], ["node_lost", "node_returned"])
        begins = [one.get("resumed_from_step", -1) for one in done["attempts"][0]["generations"][1:]]
        self.assertLess(0, begins[0])
        self.assertLess(begins[0], begins[1], "what two nodes have trained counts")
        series = self.daemon.series(job_id)
        self.assertEqual(sorted(series), [0, 1, 2])
        begin = series[0][0][3]  # rank 0's: what a frozen agent had not sent yet is from hundreds of steps later
        for rank, points in series.items():
            self.assertLess(points[-1][3], begin / 2, (rank, begin, points[-1]))

    def test_a_request_for_a_checkpoint_does_not_damage_the_heap_of_a_rank_that_multiplies(self):
        job_id = self.daemon.submit({
            "name": "asked", "framework": "native", "resources": {"nodes": 2}, "working_directory": str(self.folder),
            "train": {"model": "mnist_convnet", "batch_size": 16, "max_steps": 1_000_000, "epochs": 1_000_000},
            "checkpoint": {"directory": str(self.folder / "checkpoints")}})["id"]
        self.daemon.wait_for(job_id, lambda job: job.get("step", 0) > 20, 90, "it trains")
        pids = [rank["pid"] for rank in self.daemon.get(f"/v1/jobs/{job_id}/ranks")["items"]]
        for _ in range(1000):
            for pid in pids:
                os.kill(pid, signal.SIGUSR2)
            time.sleep(0.007)  # about a step: each has its own place in it
        step = self.daemon.job(job_id)["step"]
        job = self.daemon.wait_for(job_id, lambda job: job["step"] > step + 20 and job.get("checkpoint_step", -1) > 0, 60,
                                   "it trains on")
        self.assertEqual(job["attempts"][0]["generations"][0].get("cause"), None)

    def wait_world(self, job_id, number, nodes):
        """Until that generation has kept a checkpoint of its own."""
        generation = self.daemon.wait_generation(job_id, number, 90)
        self.assertEqual(generation["nodes"], nodes, generation)
        begin = generation.get("resumed_from_step", 0)
        self.daemon.wait_for(job_id, lambda job: job.get("checkpoint_step", -1) > begin, 90, f"a checkpoint of generation {number}")


@unittest.skipUnless(harness.has_module("torch"), "python3-torch is not installed")
class Samples(ElasticCase):
    """deploy/examples/train_elastic.py, which has nothing of Lockstep's, and what it says of each step's samples."""
    SAMPLES = 1200

    def submit_torch(self):
        script = harness.SOURCE / "deploy" / "examples" / "train_elastic.py"
        arguments = ["--epochs", 3, "--samples", self.SAMPLES, "--global-batch", 12, "--save-every", 4,
                     "--step-seconds", 0.06, "--show-samples"]
        return self.daemon.submit({
            "name": "elastic", "framework": "pytorch", "command": [harness.PYTHON, *map(str, [script, *arguments])],
            "resources": {"nodes": 3, "min_nodes": 2}, "environment": {"OMP_NUM_THREADS": "1"},
            "recovery": {"grow_after_seconds": 1}})["id"]

    def test_no_sample_is_lost_or_trained_twice_in_an_epoch_that_shrinks_and_grows(self):
        job_id = self.submit_torch()
        self.daemon.wait_for(job_id, lambda job: job.get("step", 0) >= 9, 90, "steps of three")
        agent = self.agent_of(job_id, 1)
        os.kill(agent, signal.SIGSTOP)
        try:
            self.wait_world(job_id, 2)
        finally:
            os.kill(agent, signal.SIGCONT)
        self.wait_world(job_id, 3)
        done = self.daemon.wait_state(job_id, harness.FINAL, 120)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertEqual([g["world_size"] for g in done["attempts"][0]["generations"]], [3, 2, 3])
        epochs, batches = self.trained(done)
        self.assertEqual({batches[step] for step in batches}, {12}, "the global batch stays")
        for epoch, samples in epochs.items():
            self.assertEqual(set(samples), set(range(self.SAMPLES)), f"epoch {epoch}: none is missing")
            twice = sum(samples.values()) - self.SAMPLES
            self.assertLessEqual(twice, 2 * 3, f"epoch {epoch}: no more than fills up the shares")
        print(f"\n  {len(batches)} steps in worlds of 3, 2 and 3; repeated to fill up: "
              f"{ {epoch: sum(samples.values()) - self.SAMPLES for epoch, samples in epochs.items()} }", flush=True)

    def wait_world(self, job_id, world):
        def there(job):
            newest = job["attempts"][0]["generations"][-1]
            return newest["world_size"] == world and newest.get("running_at") and newest["number"] > 1
        self.daemon.wait_for(job_id, there, 60, f"a world of {world}")
        number = len(self.generations(job_id))
        # It has trained on: its ranks have said which epoch they are in, and made a step.
        harness.wait_until(lambda: len(self.starts_of(job_id, 0)) == number and self.starts_of(job_id, 0)[-1], 60,
                           f"steps of generation {number}")

    def starts_of(self, job_id, rank):
        """Per generation the (epoch, step) lines that came after its first."""
        parts = re.split(r"^rank \d+ of \d+: .*$", self.daemon.rank_log(job_id, rank), flags=re.MULTILINE)
        return [re.findall(r"^epoch (\d+) step (\d+) ", part, re.MULTILINE) for part in parts[1:]]

    def trained(self, job):
        """({epoch: {sample: how often}}, {step: samples of all ranks}) of what the final weights have seen: of each
        generation the steps up to the checkpoint that the next one began from."""
        steps = {}  # (step, generation): {rank: (epoch, samples)}
        begins = {}
        said = []
        for rank in range(3):
            generation = 0
            for line in self.daemon.rank_log(job["id"], rank).splitlines():
                if found := re.fullmatch(r"rank \d+ of (\d): epoch \d+, \d+ samples of it used, step (\d+)", line):
                    # Rank 2 is not in the second generation.
                    generation += 2 if (rank, generation) == (2, 1) else 1
                    self.assertEqual(int(found[1]), {1: 3, 2: 2, 3: 3}[generation])
                    begins.setdefault(generation, set()).add(int(found[2]))
                elif found := re.fullmatch(r"samples of epoch (\d+) step (\d+) of (\d): \[(.*)\]", line):
                    # Said before the ranks meet in the step, so whoever made it has said so. What the agent that
                    # was frozen had not read yet comes behind what the rank says elsewhere meanwhile.
                    numbers = [int(number) for number in found[4].split(",")]
                    said.append((rank, int(found[1]), int(found[2]), int(found[3]), numbers))
        self.assertEqual({len(first) for first in begins.values()}, {1}, "all ranks began at the same step")
        begin = {generation: first.pop() for generation, first in begins.items()}
        for rank, epoch, step, world, numbers in said:
            of_three = 3 if step > begin[3] else 1
            steps.setdefault((step, 2 if world == 2 else of_three), {})[rank] = (epoch, numbers)
        self.assertLess(0, begin[2], "it went on from a checkpoint")
        self.assertLess(begin[2], begin[3], "the small world made steps that count")
        epochs, batches = collections.defaultdict(collections.Counter), collections.Counter()
        for (step, generation), ranks in steps.items():
            if step <= begin.get(generation + 1, step):
                self.assertEqual(len(ranks), {1: 3, 2: 2, 3: 3}[generation], f"step {step}")
                self.assertEqual(len({epoch for epoch, _ in ranks.values()}), 1)
                for epoch, numbers in ranks.values():
                    epochs[epoch].update(numbers)
                    batches[step] += len(numbers)
        self.assertEqual(sorted(batches), list(range(1, max(batches) + 1)), "each step once")
        self.assertEqual(sorted(epochs), [1, 2, 3])
        return epochs, batches


if __name__ == "__main__":
    harness.main()
