"""A lost rank or node is a new generation in the same allocation, or another attempt: real processes
on the local scheduler. What each start looked like is in the fixture's own file."""

import contextlib
import os
import signal
import time

import harness


class RecoveryCase(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.root / "run"
        self.folder.mkdir()

    def submit(self, how, *, steps=60, rank=1, step=23, times=1, nodes=2, ranks_per_node=2, spares=0, **fields):
        resources = {"nodes": nodes, "ranks_per_node": ranks_per_node}
        if spares:
            resources["spares"] = spares
        fields.setdefault("recovery", {})
        job = harness.python_job("recovers", "fail_once.py", self.folder, steps, rank, step, how, times,
                                 resources=resources, **fields)
        return self.daemon.submit(job)["id"]

    def starts(self):
        """[(rank, attempt, generation, pid, first step)]"""
        path = self.folder / "starts"
        return [tuple(map(int, line.split())) for line in path.read_text().splitlines()] if path.exists() else []

    def ended(self, job_id, state="succeeded", seconds=90):
        done = self.daemon.wait_state(job_id, harness.FINAL, seconds)
        self.assertEqual(done["state"], state, done)
        return done

    def generations(self, job):
        return [[g.get("cause", {}).get("class") for g in a["generations"]] for a in job["attempts"]]

    def check_one_generation_at_a_time(self, world):
        """Every generation started each rank once, and all from the same step."""
        seen = {}
        for rank, attempt, generation, _, first in self.starts():
            seen.setdefault((attempt, generation), []).append((rank, first))
        for key, ranks in seen.items():
            self.assertEqual(sorted(rank for rank, _ in ranks), list(range(world)), f"{key}: {ranks}")
            self.assertEqual(len({first for _, first in ranks}), 1, f"{key}: {ranks}")
        return seen

    def agent_of(self, job_id, node, attempt=1):
        """The pid of the agent that claimed a node of the allocation."""
        claims = [e for e in self.daemon.events(job_id) if e["kind"] == "agent_claimed" and
                  e["attempt"] == attempt and e["data"]["node_rank"] == node]
        return claims[-1]["data"]["pid"]

    def wait_step(self, job_id, step):
        self.daemon.wait_for(job_id, lambda job: job.get("step", 0) >= step, 60, f"step {step}")


class Ranks(RecoveryCase):
    def test_a_rank_that_exits_is_a_new_generation_from_the_checkpoint(self):
        job_id = self.submit("exit")
        done = self.ended(job_id)
        self.assertEqual(self.generations(done), [["rank_exit", None]])
        first, second = done["attempts"][0]["generations"]
        self.assertEqual(first["cause"]["rank"], 1)
        self.assertEqual(first["cause"]["exit_code"], 3)
        self.assertEqual(second["resumed_from_step"], 20)
        seen = self.check_one_generation_at_a_time(4)
        self.assertEqual({key: ranks[0][1] for key, ranks in seen.items()}, {(1, 1): 1, (1, 2): 21})
        losses = self.daemon.series(job_id)
        for rank in range(4):
            self.assertEqual([p[0] for p in losses[rank]], list(range(1, 61)), f"rank {rank}: each step once")
        kinds = [event["kind"] for event in self.daemon.events(job_id)]
        self.assertEqual(kinds.count("generation_started"), 2)
        self.assertEqual(kinds.count("generation_ended"), 2)

    def test_a_rank_that_is_killed_is_named_and_costs_less_than_a_second(self):
        job_id = self.submit("kill")
        done = self.ended(job_id)
        self.assertEqual(self.generations(done), [["rank_signal", None]])
        cause = done["attempts"][0]["generations"][0]["cause"]
        self.assertEqual((cause["rank"], cause["signal"]), (1, 9))

    def test_ranks_that_mind_no_sigterm_are_killed_and_hold_nothing_up(self):
        job_id = self.submit("deaf")
        done = self.ended(job_id, seconds=60)
        self.assertEqual(self.generations(done), [["rank_exit", None]])
        self.check_one_generation_at_a_time(4)

    def test_a_crash_loop_is_told_from_bad_luck(self):
        job_id = self.submit("exit", times=100, recovery={"max_restarts": 50})
        done = self.ended(job_id, "failed")
        self.assertEqual(self.generations(done), [["rank_exit"] * 3])
        self.assertIn("crash loop: 3 generations in a row", done["cause"]["message"])
        self.assertEqual(done["cause"]["class"], "rank_exit")
        self.assertEqual(done["cause"]["exit_code"], 3)

    def test_restarts_are_counted(self):
        job_id = self.submit("exit", times=100, recovery={"max_restarts": 1})
        done = self.ended(job_id, "failed")
        self.assertEqual(self.generations(done), [["rank_exit", "rank_exit"]])
        self.assertIn("restarted 1 times already", done["cause"]["message"])

    def test_a_stopped_rank_is_a_hang_and_is_named(self):
        job_id = self.submit("stop", watch={"hang_seconds": 8})
        done = self.ended(job_id)
        self.assertEqual(self.generations(done), [["hang", None]])
        cause = done["attempts"][0]["generations"][0]["cause"]
        self.assertEqual(cause["rank"], 1, cause)
        self.assertIn("its process is stopped", cause["message"])
        self.check_one_generation_at_a_time(4)
        item, = self.daemon.get(f"/v1/jobs/{job_id}/evidence")["items"]
        self.assertEqual([item["ranks"][0][key] for key in ("rank", "state")], [1, "T"])
        self.assertEqual(sorted(rank["rank"] for rank in item["ranks"]), [0, 1, 2, 3])


class Evidence(RecoveryCase):
    """What is known of a hang when the ranks that hung are long gone."""

    def file(self, job_id, rank, name):
        return self.daemon.cli("evidence", job_id, "--rank", rank, "--what", name).stdout

    def test_a_rank_that_spins_is_found_with_its_stack_and_the_others_with_theirs(self):
        job_id = self.submit("spin", watch={"hang_seconds": 8})
        done = self.ended(job_id)
        self.assertEqual(self.generations(done), [["hang", None]])
        item, = self.daemon.get(f"/v1/jobs/{job_id}/evidence")["items"]
        self.assertEqual((item["attempt"], item["generation"], item["step"]), (1, 1, 22), item)
        lagging = item["ranks"][0]
        # All wait for it at the same step: it is the only one that computes.
        self.assertEqual((lagging["rank"], lagging["state"]), (1, "R"), item)
        self.assertEqual(lagging["step"], 22)
        self.assertIn("command: ", self.file(job_id, 1, "state"))
        self.assertIn("fail_once.py", self.file(job_id, 1, "state"))
        # Its own Python says where it is: no tool is needed for that.
        self.assertIn("spins_forever", lagging["frame"])
        self.assertIn("spins_forever", self.file(job_id, 1, "stack"))
        cause = done["attempts"][0]["generations"][0]["cause"]
        self.assertIn("rank 1 alone is in fail_once.py:", cause["message"])
        self.assertIn("spins_forever", cause["message"])
        show = self.daemon.cli("show", job_id).stdout
        self.assertIn("no rank has made a step", show)
        self.assertLess(show.index("\n   1  "), show.index("\n   0  "), show)
        events = [event["kind"] for event in self.daemon.events(job_id)]
        self.assertLess(events.index("evidence_taken"), events.index("fault"))
        # What the dead daemon knew is kept: only the event log and the files.
        self.daemon.restart()
        self.assertEqual(self.daemon.get(f"/v1/jobs/{job_id}/evidence")["items"], [item])

    def test_a_hang_that_is_not_restarted_ends_the_job_with_its_evidence(self):
        job = harness.python_job("plain", "fail_once.py", self.folder, 60, 1, 23, "stop", watch={"hang_seconds": 8},
                                 recovery={"max_restarts": 0, "on": ["hang"]},
                                 resources={"nodes": 1, "ranks_per_node": 2})
        job_id = self.daemon.submit(job)["id"]
        done = self.ended(job_id, "failed")
        self.assertEqual(done["cause"]["class"], "hang")
        item, = self.daemon.get(f"/v1/jobs/{job_id}/evidence")["items"]
        self.assertEqual(item["ranks"][0]["rank"], 1)
        self.assertIn("state T", self.file(job_id, 1, "state"))

    def test_a_person_may_look_at_ranks_that_run(self):
        job_id = self.submit("exit", times=0, steps=400)
        self.wait_step(job_id, 5)
        table = self.daemon.cli("evidence", job_id, "--now").stdout
        self.assertIn("asked for by", table)
        done = self.ended(job_id)
        self.assertEqual(self.generations(done), [[None]], "nothing was ended")
        self.assertEqual(self.daemon.cli("evidence", job_id, "--now", check=False).returncode, 6)
        status, _ = self.daemon.api("GET", f"/v1/jobs/{job_id}/evidence/agent.json")[:2]
        self.assertEqual(status, 404)


class Nodes(RecoveryCase):
    def test_a_killed_agent_without_a_spare_is_another_attempt(self):
        job_id = self.submit("exit", times=0, steps=100)
        self.wait_step(job_id, 12)
        os.kill(self.agent_of(job_id, 1), signal.SIGKILL)
        done = self.ended(job_id)
        self.assertEqual(self.generations(done), [["node_lost"], [None]])
        self.assertEqual(done["attempts"][0]["cause"]["class"], "node_lost")
        seen = self.check_one_generation_at_a_time(4)
        self.assertGreater(seen[(2, 1)][0][1], 5, "it goes on from a checkpoint")

    def test_a_spare_takes_the_place_of_a_killed_agents_node(self):
        job_id = self.submit("exit", times=0, steps=150, spares=1)
        self.daemon.wait_for(job_id, lambda job: job["attempts"] and len(job["attempts"][0]["nodes"]) == 3, 30, "the spare is there")
        self.wait_step(job_id, 12)
        members = {rank["node"] for rank in self.daemon.get(f"/v1/jobs/{job_id}/ranks")["items"]}
        slot = int(sorted(members)[0].rsplit("-n", 1)[1])
        os.kill(self.agent_of(job_id, slot), signal.SIGKILL)
        done = self.ended(job_id)
        self.assertEqual(self.generations(done), [["node_lost", None]], "the same allocation")
        self.assertEqual(done["attempts"][0]["lost_nodes"], [sorted(members)[0]])
        self.check_one_generation_at_a_time(4)
        after = {rank["node"] for rank in self.daemon.get(f"/v1/jobs/{job_id}/ranks")["items"]}
        self.assertEqual(len(after & members), 1)
        self.assertNotIn(sorted(members)[0], after)

    def test_a_frozen_agent_is_given_up_for_a_spare_and_fenced_when_it_thaws(self):
        job_id = self.submit("exit", times=0, steps=400, spares=1)
        self.daemon.wait_for(job_id, lambda job: job["attempts"] and len(job["attempts"][0]["nodes"]) == 3, 30, "the spare is there")
        self.wait_step(job_id, 12)
        members = {rank["node"] for rank in self.daemon.get(f"/v1/jobs/{job_id}/ranks")["items"]}
        agent = self.agent_of(job_id, int(sorted(members)[0].rsplit("-n", 1)[1]))
        began = time.monotonic()
        age = next(node["agent_age_seconds"] for node in self.daemon.get(f"/v1/jobs/{job_id}/nodes")["items"]
                   if node["node"] == sorted(members)[0])
        os.kill(agent, signal.SIGSTOP)
        try:
            self.daemon.wait_for(job_id, lambda job: len(job["attempts"][0]["generations"]) == 2, 30,
                                 "the next generation")
            self.assertGreater(time.monotonic() - began + age, 3.9, "not before it was silent for 4 s")
        finally:
            os.kill(agent, signal.SIGCONT)
        done = self.ended(job_id)
        self.assertEqual(self.generations(done), [["node_lost", None]])
        self.check_one_generation_at_a_time(4)

        def gone():
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                with open(f"/proc/{agent}/stat", encoding="ascii") as stat:
                    return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
            return True
        harness.wait_until(gone, 20, "the thawed agent has left")


class Daemon(RecoveryCase):
    def test_a_rank_that_fails_while_the_daemon_is_dead_is_restarted_when_it_is_back(self):
        job_id = self.submit("free", step=300, steps=400)  # a barrier needs the daemon
        self.wait_step(job_id, 5)
        self.daemon.kill9()
        harness.wait_until(lambda: (self.folder / "accidents").exists(), 30, "the accident")
        self.daemon.start()
        done = self.ended(job_id)
        self.assertEqual(self.generations(done), [["rank_exit", None]])
        self.check_one_generation_at_a_time(4)

    def test_kills_of_the_daemon_around_a_restart_start_nothing_twice(self):
        job_id = self.submit("deaf", step=12, steps=80)
        for _ in range(6):
            self.daemon.wait_for(job_id, lambda job: True, 30, "it answers")
            time.sleep(0.4)  # anywhere in what follows; no outcome depends on where
            self.daemon.restart()
        done = self.ended(job_id)
        self.assertEqual([a["number"] for a in done["attempts"]], [1])
        self.check_one_generation_at_a_time(4)

    def test_a_person_may_restart_the_ranks_and_ask_for_a_checkpoint(self):
        job_id = self.submit("exit", times=0, steps=200, recovery={"max_restarts": 0})
        self.wait_step(job_id, 10)
        self.assertEqual(self.daemon.api("POST", f"/v1/jobs/{job_id}/restart")[0], 200)
        self.daemon.wait_for(job_id, lambda job: len(job["attempts"][0]["generations"]) == 2, 30, "the second")
        done = self.ended(job_id)
        self.assertEqual(self.generations(done), [["restart_requested", None]])
        for verb in ("restart", "checkpoint"):
            self.assertEqual(self.daemon.api("POST", f"/v1/jobs/{job_id}/{verb}")[0], 409, verb)


if __name__ == "__main__":
    harness.main()
