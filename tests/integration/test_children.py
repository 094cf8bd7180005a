"""Launch node: every process that a launcher starts is a rank of its own. Real launchers, unmodified
scripts; what is not installed is skipped aloud."""

import re
import subprocess
import sys
import unittest

import harness
from harness import FIXTURES, PYTHON

TORCH = harness.has_module("torch")
NO_TORCH = f"no module torch for {PYTHON}"


def torchrun(*options):
    """Debian's torch 1.13 under Python 3.11 parses only the stream numbers 1 and 2 of its options."""
    return [PYTHON, "-m", "torch.distributed.run", *options]


def debian_torch():
    code = "import sys, torch; sys.exit(0 if torch.__version__.startswith('1.13') else 1)"
    return TORCH and subprocess.run([PYTHON, "-c", code], check=False).returncode == 0


class Children(harness.TestCase):
    def end(self, spec, state="succeeded", seconds=240):
        job = self.daemon.submit(spec)
        done = self.daemon.wait_state(job["id"], harness.FINAL, seconds)
        self.assertEqual(done["state"], state, done)
        return done

    def ranks(self, job):
        return self.daemon.get(f"/v1/jobs/{job}/ranks")["items"]

    def assert_own_series(self, job, world, steps, offset=100):
        """Rank r's losses lie between r × offset and (r + 1) × offset: nobody else's are among them."""
        series = self.daemon.series(job)
        self.assertEqual(sorted(series), list(range(world)))
        for rank, points in series.items():
            self.assertEqual(len(points), steps, (rank, points))
            for point in points:
                self.assertTrue(rank * offset <= point[3] < (rank + 1) * offset, (rank, point))

    @unittest.skipUnless(TORCH, NO_TORCH)
    def test_torchrun_2x4_that_prints(self):
        # With a mark before each line, as --tee makes it; Debian's torchrun knows no other way.
        options = ("--redirects", "1", "--tee", "1") if debian_torch() else ("--tee", "3")
        done = self.end({"name": "printed", "framework": "pytorch", "launch": "node",
                         "resources": {"nodes": 2, "ranks_per_node": 4},
                         "command": torchrun(*options) + [str(FIXTURES / "launched.py")]})
        self.assert_own_series(done["id"], 8, 10)
        self.assertEqual([(r["rank"], r["node_rank"], r["local_rank"], r["state"]) for r in self.ranks(done["id"])],
                         [(r, r // 4, r % 4, "succeeded") for r in range(8)])
        self.assertEqual([w for w in done.get("warnings", []) if "share cores" not in w], [])
        self.assertIn("step: 10, loss: 1", self.daemon.rank_log(done["id"], 1))

    @unittest.skipUnless(TORCH, NO_TORCH)
    @unittest.skipIf(debian_torch(), "Debian's torchrun under Python 3.11 needs --tee")
    def test_torchrun_2x4_without_any_option(self):
        done = self.end({"name": "plain", "framework": "pytorch", "launch": "node",
                         "resources": {"nodes": 2, "ranks_per_node": 4},
                         "command": torchrun() + [str(FIXTURES / "launched.py")]})
        self.assert_own_series(done["id"], 8, 10)
        # Each prints into a pipe of its own: the log of one rank has nothing of another.
        self.assertEqual(self.daemon.rank_log(done["id"], 5).count("loss: "), 10)

    @unittest.skipUnless(TORCH, NO_TORCH)
    def test_torchrun_2x2_that_reports(self):
        options = ("--redirects", "1", "--tee", "1") if debian_torch() else ()
        done = self.end({"name": "reported", "framework": "pytorch", "launch": "node",
                         "resources": {"nodes": 2, "ranks_per_node": 2},
                         "command": torchrun(*options) + [str(FIXTURES / "launched.py"), "report"]})
        self.assert_own_series(done["id"], 4, 10)

    @unittest.skipUnless(TORCH, NO_TORCH)
    def test_start_processes_as_the_guide_of_keras_does_it(self):
        done = self.end({"name": "keras-guide", "framework": "pytorch", "launch": "node",
                         "resources": {"nodes": 1, "ranks_per_node": 2},
                         "command": [PYTHON, str(FIXTURES / "start_processes.py"), "2"]})
        series = self.daemon.series(done["id"])
        self.assertEqual(sorted(series), [0, 1])
        for rank, points in series.items():
            self.assertEqual([p[0] for p in points], [1, 2, 3, 4, 5])
            # The targets of rank 1 are 10 higher.
            self.assertTrue(all((p[3] > 50) == (rank == 1) for p in points), series)
        self.assertEqual(self.daemon.rank_log(done["id"], 1).count("Loss: "), 5)

    @unittest.skipUnless(TORCH, NO_TORCH)
    def test_mp_spawn_2x2(self):
        done = self.end({"name": "spawn", "framework": "pytorch", "launch": "node",
                         "resources": {"nodes": 2, "ranks_per_node": 2},
                         "command": [PYTHON, str(FIXTURES / "spawn_digits.py"), "2"]})
        series = self.daemon.series(done["id"])
        self.assertEqual(sorted(series), [0, 1, 2, 3])
        for points in series.values():
            self.assertEqual(len(points), 20)
            self.assertLess(points[-1][3], points[0][3])
        # Of the ranks that have a log of their own, and of their launchers.
        attempt = self.daemon.data / "runs" / done["id"] / "a1"
        text = "".join(path.read_text() for path in sorted(attempt.glob("rank-*.log")))
        found = re.findall(r"rank (\d) of 4 on node (\d): checksum (\S+)", text)
        self.assertEqual(sorted((rank, node) for rank, node, _ in found),
                         [("0", "0"), ("1", "0"), ("2", "1"), ("3", "1")])
        self.assertEqual(len({checksum for _, _, checksum in found}), 1, "they have not trained together")

    @unittest.skipUnless(TORCH, NO_TORCH)
    def test_the_rank_that_raised_is_the_cause_and_not_the_launcher(self):
        options = ("--redirects", "1", "--tee", "1") if debian_torch() else ("--tee", "3")
        done = self.end({"name": "raised", "framework": "pytorch", "launch": "node",
                         "resources": {"nodes": 1, "ranks_per_node": 2},
                         "command": torchrun(*options) + [str(FIXTURES / "launched.py"), "fail", "1"]}, "failed")
        self.assertEqual((done["cause"]["rank"], done["cause"].get("exit_code")), (1, 1), done["cause"])
        self.assertIn("label 17 out of range on rank 1", done["cause"]["message"])
        states = {r["rank"]: r["state"] for r in self.ranks(done["id"])}
        self.assertEqual(states[1], "failed", states)

    @unittest.skipUnless(TORCH, NO_TORCH)
    def test_a_world_size_of_one_is_a_warning(self):
        code = ("import os, torch.distributed as d\n"
                "place = 'file://' + os.path.join(os.getcwd(), 'meet-' + os.environ['RANK'])\n"
                "d.init_process_group('gloo', init_method=place, rank=0, world_size=1)\n")
        done = self.end({"name": "alone", "framework": "pytorch",
                         "resources": {"nodes": 1, "ranks_per_node": 2}, "command": [PYTHON, "-c", code]})
        self.assertIn("a world size 1 of an expected 2", " ".join(done.get("warnings", [])))

    def test_paddle_that_says_it_is_alone_is_a_warning(self):
        text = "UserWarning: Currently not a parallel execution environment, `init_parallel_env` will not do anything."
        done = self.end(harness.command_job("paddle", "/bin/echo", text, resources={"ranks_per_node": 2}))
        self.assertIn("not a parallel execution environment", " ".join(done["warnings"]))
        kinds = [e["kind"] for e in self.daemon.get(f"/v1/jobs/{done['id']}/events")["items"]]
        self.assertIn("warning", kinds)

    def test_paddle_whose_data_reader_says_another_world_is_a_warning(self):
        line = "start data reader (trainers_num: {}, trainer_id: 0)".format
        done = self.end(harness.command_job("paddle", "/bin/echo", line(3), resources={"ranks_per_node": 2}))
        self.assertIn("a rank has a world size 3 of an expected 2", " ".join(done["warnings"]))
        servers = [{"name": "ps", "count": 1}, {"name": "worker", "count": 1}]
        for trainers, roles in ((2, []), (1, servers)):  # with servers the trainers are fewer than the ranks
            done = self.end(harness.command_job("paddle", "/bin/echo", line(trainers), roles=roles,
                                                resources={"ranks_per_node": 2}))
            self.assertNotIn("world size", " ".join(done.get("warnings", [])))

    def test_a_loss_that_is_nan_only_at_the_end_is_an_anomaly(self):
        script = "for i in 1 2 3; do echo \"step: $i, loss: 0.5\"; done; echo 'step: 4, loss: nan'"
        done = self.end(harness.command_job("nan", "/bin/sh", "-c", script))
        seen = [e for e in self.daemon.get(f"/v1/jobs/{done['id']}/events")["items"] if e["kind"] == "anomaly"]
        self.assertEqual([(e["data"]["anomaly"], e["data"]["step"]) for e in seen], [("nonfinite", 4)])

    def test_a_launcher_with_more_processes_than_ranks_is_a_warning(self):
        script = ("import os, subprocess, sys\n"
                  "child = ['sh', '-c', '$LOCKSTEP_AGENT report step=1 loss=$RANK']\n"
                  "for i in range(3):\n"
                  "    subprocess.run(child, env=dict(os.environ, RANK=str(i), LOCAL_RANK=str(i)), check=True)\n")
        done = self.end(harness.command_job("many", sys.executable, "-c", script, launch="node",
                                            resources={"ranks_per_node": 2}))
        self.assertIn("calls itself rank 2", " ".join(done["warnings"]))
        series = self.daemon.series(done["id"])
        self.assertEqual({rank: [p[3] for p in points] for rank, points in series.items()}, {0: [0], 1: [1]})

    def test_the_log_of_a_rank_without_an_output_of_its_own_is_its_launchers(self):
        done = self.end(harness.command_job("log", "/bin/echo", "hello", launch="node",
                                            resources={"ranks_per_node": 2}))
        status, headers, body = self.daemon.request("GET", f"/v1/jobs/{done['id']}/logs?rank=1")
        self.assertEqual((status, body), (200, b"hello\n"))
        self.assertEqual({k.lower(): v for k, v in dict(headers).items()}["lockstep-log-rank"], "0")


    @unittest.skipUnless(harness.has_module("accelerate"), f"no module accelerate for {PYTHON}")
    def test_accelerate_launch(self):
        done = self.end({"name": "accelerate", "framework": "accelerate", "launch": "node",
                         "resources": {"nodes": 1, "ranks_per_node": 2},
                         "environment": {"ACCELERATE_USE_CPU": "true"},
                         "command": [PYTHON, "-m", "accelerate.commands.launch", "--multi_gpu",
                                     "--num_machines", "1", "--num_processes", "2",
                                     "--main_process_port", "{master_port}", str(FIXTURES / "launched.py")]})
        self.assert_own_series(done["id"], 2, 10)

    @unittest.skipUnless(TORCH, NO_TORCH)
    def test_a_new_generation_has_new_children(self):
        done = self.end({"name": "again", "framework": "pytorch", "launch": "node",
                         "resources": {"nodes": 1, "ranks_per_node": 2}, "recovery": {"max_restarts": 1},
                         "command": ["/bin/sh", "-c", '[ "$LOCKSTEP_GENERATION" = 1 ] && exec "$0" "$@" fail 1; exec "$0" "$@"']
                         + torchrun(*(("--redirects", "1", "--tee", "1") if debian_torch() else ()))
                         + [str(FIXTURES / "launched.py")]})
        self.assertEqual([g["cause"]["rank"] for g in done["attempts"][0]["generations"][:1]], [1])
        self.assertEqual([r["state"] for r in self.ranks(done["id"])], ["succeeded"] * 2)
        self.assertTrue(all(points[-1][0] == 10 for points in self.daemon.series(done["id"]).values()))


if __name__ == "__main__":
    harness.main()
