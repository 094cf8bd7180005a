"""Ranks of real jobs that NCCL joins, its ids over the keys of their generation: with the double of NCCL and of the
CUDA driver (tests/support/nccl_double), which proves Lockstep's half, and the same with the real ones where there is a
GPU (`tests/gpu`; ctest's gpu.nccl).

On one GPU all ranks share it (NCCL_MULTI_RANK_GPU_ENABLE, NCCL 2.30). LOCKSTEP_NCCL_LIBRARY: another libnccl.so.2."""

import os
import re
import signal
import subprocess
import time

import gpu_tests
import harness

TESTS = harness.BIN.parent / "tests"
PROGRAM = TESTS / "nccl_rank"
DOUBLE = TESTS / "nccl_double" / "libnccl.so.2"


class Case(harness.TestCase):
    def setUp(self):
        if not PROGRAM.exists():
            self.skipTest("nccl_rank is not built: no Gloo")
        super().setUp()

    RESOURCES = {"nodes": 2, "ranks_per_node": 2}

    def submit(self, *arguments, **fields):
        job = harness.command_job("nccl", PROGRAM, *arguments, resources=self.RESOURCES, **fields)
        return self.daemon.submit(job)["id"]

    def desyncs(self, job_id):
        return [event["data"] for event in self.daemon.events(job_id)
                if event["kind"] == "anomaly" and event["data"]["anomaly"] == "desync"]

    def logs(self, job_id, ranks=4):
        return {rank: self.daemon.rank_log(job_id, rank) for rank in range(ranks)}

    def check_results(self, job_id, ranks=4, steps=10):
        done = self.daemon.wait_state(job_id, harness.FINAL, 120)
        logs = self.logs(job_id, ranks)
        self.assertEqual(done["state"], "succeeded", f"{done}\n{logs}")
        for rank, log in logs.items():
            self.assertIn("every type was right", log, f"rank {rank}")
            self.assertIn("every result was right", log, f"rank {rank}")
        series = self.daemon.series(job_id)
        for rank in range(ranks):
            self.assertEqual([point[0] for point in series[rank]], list(range(1, steps + 1)), f"rank {rank}")
        return done


class Ranks:
    """What four ranks go through, on the double as on a GPU: a mixin of Case, which says where."""

    def libraries(self):
        """Arguments of nccl_rank, and the job's environment."""
        raise NotImplementedError

    def start(self, *arguments, **fields):
        libraries, environment = self.libraries()
        return self.submit(*libraries, *arguments, environment=environment, **fields)

    def test_four_ranks_meet_over_the_keys_of_their_agents(self):
        job_id = self.start()
        self.check_results(job_id)
        self.assertEqual("the DOUBLE of NCCL" in self.daemon.rank_log(job_id, 3), self.IS_DOUBLE)
        print("\n".join(self.logs(job_id).values()))

    def test_four_ranks_meet_by_several_ids(self):
        # As jobs of more than 128 ranks do.
        job_id = self.start("--roots", "2")
        self.check_results(job_id)
        self.assertIn("joins by 2 ids", self.daemon.rank_log(job_id, 3))

    def test_a_killed_rank_is_a_new_generation_with_ids_of_its_own(self):
        job_id = self.start("--die", "2", "5", recovery={})
        done = self.check_results(job_id)
        first, second = done["attempts"][0]["generations"]
        self.assertEqual((first["cause"]["class"], first["cause"]["rank"]), ("rank_signal", 2), done)
        self.assertNotIn("cause", second)

    def test_a_rank_killed_while_the_others_initialise_is_the_cause_and_nobody_hangs(self):
        began = time.monotonic()
        job_id = self.start("--die", "1", "0")
        done = self.daemon.wait_state(job_id, harness.FINAL, 40)
        self.assertEqual(done["state"], "failed", done)
        self.assertEqual((done["cause"]["class"], done["cause"]["rank"]), ("rank_signal", 1), done)
        gpu_tests.figure("a rank killed inside NCCL's init: from submission to the job's end", time.monotonic() - began, "s")

    def test_the_rank_that_skips_an_operation_is_the_cause_and_not_the_first_that_noticed(self):
        job_id = self.start("--skip", "2", "--silence", "3000")
        done = self.daemon.wait_state(job_id, harness.FINAL, 120)
        self.assertEqual(done["state"], "failed", done)
        self.assertEqual(done["cause"]["rank"], 2, done)
        self.assertIn("rank 2 is behind", done["cause"]["message"], done)

    def check_three_left(self, job_id, steps, last):
        """Rank 2 has left after step `last`; no generation but the first, and the others have right sums of three."""
        done = self.daemon.wait_state(job_id, harness.FINAL, 120)
        logs = self.logs(job_id)
        self.assertEqual(done["state"], "succeeded", f"{done}\n{logs}")
        self.assertEqual(len(done["attempts"][0]["generations"]), 1, done)
        series = self.daemon.series(job_id)
        self.assertIn("left, and the others go on", logs.pop(2))
        self.assertEqual([point[0] for point in series[2]], list(range(1, last + 1)))
        for place, (rank, log) in enumerate(logs.items()):
            took = re.search(f"shrunk to rank {place} of 3 without rank 2 in ([0-9.]+) s", log)
            self.assertTrue(took, f"rank {rank}\n{log}")
            self.assertIn("every result was right", log, f"rank {rank}")
            self.assertEqual([point[0] for point in series[rank]], list(range(1, steps + 1)), f"rank {rank}")
        return float(took[1])

    def test_a_rank_that_leaves_is_shrunk_out_and_the_three_others_go_on(self):
        took = self.check_three_left(self.start("--leave", "2", "5"), 10, 4)
        gpu_tests.figure("a rank leaves: to shrink a communicator of four ranks to three", took, "s")

    def test_a_rank_that_others_wait_for_is_shrunk_out_and_they_do_the_step_again(self):
        job_id = self.start("--skip", "2", "--silence", "3000", "--elastic", "1")
        took = self.check_three_left(job_id, 10, 4)
        self.assertIn("rank 2 is behind", self.daemon.rank_log(job_id, 2))
        gpu_tests.figure("a rank is waited for in vain: to shrink a communicator of four ranks to three", took, "s")

    def test_a_library_that_does_not_load_is_said_by_name(self):
        libraries, environment = self.libraries()
        job_id = self.submit(*libraries, "--nccl", "/no/such/libnccl.so.2", environment=environment)
        done = self.daemon.wait_state(job_id, harness.FINAL, 120)
        self.assertEqual(done["state"], "failed", done)
        self.assertIn("cannot load /no/such/libnccl.so.2", self.daemon.rank_log(job_id, done["cause"]["rank"]))

    def test_the_rank_that_skips_an_operation_is_named_within_ten_seconds(self):
        job_id = self.start("--skip", "2")
        job = self.daemon.wait_for(job_id, lambda job: "desync" in job, 60, "somebody is named")
        age = self.daemon.get(f"/v1/jobs/{job_id}/ranks")["items"][2]["report_age_seconds"]
        self.assertLess(age, 10, "seconds since its last step")
        gpu_tests.figure("a rank that skips an all-reduce: from its last step until it is named", age, "s")
        self.assertEqual(job["desync"]["rank"], 2, job)
        self.assertRegex(job["desync"]["message"], "rank 2 has not launched AllReduce [0-9]+ of NCCL's communicator "
                         "0x[0-9a-f]+, where 3 ranks wait for it")
        self.assertIn("has not launched AllReduce", self.daemon.cli("show", job_id).stdout)
        self.assertEqual(job["anomalies"], {"desync": 1})

        def measured():
            ranks = self.daemon.get(f"/v1/jobs/{job_id}/ranks")["items"]
            # The others have launched more than the one that they wait in.
            return [rank.get("nccl_lag", -1) > 0 for rank in ranks] == [False, False, True, False]
        harness.wait_until(measured, 30, "the lag of each rank")
        metrics = self.daemon.text("/metrics")
        self.assertRegex(metrics, rf'lockstep_rank_nccl_lag{{job_id="{job_id}"[^}}]*rank="2"[^}}]*}} [1-9]')
        self.assertRegex(metrics, rf'lockstep_rank_nccl_collectives_total{{job_id="{job_id}"[^}}]*rank="0"[^}}]*}} [1-9]')
        self.assertEqual(len(self.desyncs(job_id)), 1, "told once")


class WithTheDouble(Ranks, Case):
    IS_DOUBLE = True

    def libraries(self):
        return ("--nccl", DOUBLE, "--cuda", DOUBLE), {"NCCL_RAS_ADDR": f"127.0.0.1:{harness.quiet_port()}"}

    def test_a_rank_with_other_ids_is_the_cause(self):
        job_id = self.start("--other-ids", "2")
        done = self.daemon.wait_state(job_id, harness.FINAL, 60)
        self.assertEqual((done["state"], done["cause"]["rank"]), ("failed", 2), f"{done}\n{self.logs(job_id)}")
        self.assertIn("rank 2 has other NCCL ids than rank 0", self.daemon.rank_log(job_id, 2))

    def test_a_rank_that_never_comes_is_named_by_the_cause(self):
        for absent in (2, 0):  # rank 0 makes the id
            job_id = self.start("--absent", str(absent), "--init", "3000")
            done = self.daemon.wait_state(job_id, harness.FINAL, 60)
            self.assertEqual((done["state"], done["cause"].get("rank")), ("failed", absent), done)
            self.assertIn(f"missing: rank {absent}", done["cause"]["message"], f"{done}\n{self.logs(job_id)}")


class RasOfTheDouble(Case):
    """What the agent makes of NCCL's RAS: the double's words are those of NCCL's sources (tests/support/ras_words.hpp)."""

    def submit(self, *arguments, **fields):
        environment = {"NCCL_RAS_ADDR": f"127.0.0.1:{harness.quiet_port()}"}
        return super().submit("--nccl", DOUBLE, "--cuda", DOUBLE, *arguments, environment=environment, **fields)

    def test_it_is_the_cause_of_the_hang_that_follows(self):
        job_id = self.submit("--skip", "2", watch={"hang_seconds": 12}, recovery={"max_restarts": 0, "on": ["hang"]})
        done = self.daemon.wait_state(job_id, harness.FINAL, 120)
        self.assertEqual((done["cause"]["class"], done["cause"]["rank"]), ("hang", 2), done)
        self.assertIn("rank 2 has not launched AllReduce", done["cause"]["message"])

    def test_a_stopped_process_is_named_and_then_goes_on(self):
        job_id = self.submit("--steps", "1000000")
        ranks = self.daemon.wait_for(job_id, lambda job: job.get("step", 0) > 100, 60, "it trains") and \
            self.daemon.get(f"/v1/jobs/{job_id}/ranks")["items"]
        # Two looks at least have to know how far it was.
        harness.wait_until(lambda: "nccl_lag" in self.daemon.get(f"/v1/jobs/{job_id}/ranks")["items"][1], 30, "RAS answers")
        os.kill(ranks[1]["pid"], signal.SIGSTOP)
        try:
            job = self.daemon.wait_for(job_id, lambda job: "desync" in job, 60, "somebody is named")
        finally:
            os.kill(ranks[1]["pid"], signal.SIGCONT)
        self.assertEqual(job["desync"]["rank"], 1, job)
        self.assertIn("rank 1 does not answer NCCL's RAS, and 3 ranks wait for it", job["desync"]["message"])
        self.daemon.wait_for(job_id, lambda job: "desync" not in job, 60, "it has gone on")
        self.assertEqual([one.get("over", False) for one in self.desyncs(job_id)], [False, True])

    def test_nobody_is_named_while_all_go_on(self):
        job_id = self.submit("--steps", "1000000")
        # Counts are told every ten seconds: three looks and more lie between two of them.
        harness.wait_until(lambda: len(self.daemon.series(job_id, "nccl_collectives", x="time").get(0, ())) > 2, 60,
                           "RAS was asked ten times")
        self.assertEqual(self.desyncs(job_id), [])

    def submit_in_namespaces(self, script, *arguments):
        """Each rank in a process namespace of its own, as in a container."""
        try:
            subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            self.skipTest("no process namespaces here (unshare)")
        command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, PROGRAM, "--nccl",
                   DOUBLE, "--cuda", DOUBLE, *arguments]
        environment = {"NCCL_RAS_ADDR": f"127.0.0.1:{harness.quiet_port()}"}
        return self.daemon.submit(harness.command_job(
            "nccl", *command, resources=self.RESOURCES, environment=environment))["id"]

    def test_a_rank_in_a_process_namespace_of_its_own_is_named(self):
        # So many processes have been there before that each rank's has another number.
        later = 'for i in $(seq 0 "$LOCKSTEP_RANK"); do /bin/true; done; "$0" "$@"; exit $?'
        job_id = self.submit_in_namespaces(later, "--skip", "2")
        job = self.daemon.wait_for(job_id, lambda job: "desync" in job, 60, "somebody is named")
        self.assertEqual(job["desync"]["rank"], 2, job)

    def test_ranks_that_call_themselves_the_same_are_not_mistaken_for_each_other(self):
        job_id = self.submit_in_namespaces('exec "$0" "$@"', "--skip", "2")
        job = self.daemon.wait_for(
            job_id, lambda job: any("several have the same number" in text for text in job.get("warnings", ())), 60,
            "it is told")
        self.assertNotIn("desync", job)

    def test_an_older_nccl_is_said_to_be_so_once(self):
        job_id = self.submit("--skip", "2", "--double", "ras-json=0")
        self.daemon.wait_for(job_id, lambda job: sum("from 2.28.7 on it does" in text for text in job.get("warnings", ())) == 1,
                             60, "it is told")


def real_nccl():
    return gpu_tests.real_nccl(harness.BIN.parent, harness.SOURCE / "build")


@gpu_tests.needs_gpu
class WithARealGpu(Ranks, Case):
    # One node: without this lockstepd gives the ranks no GPU to see, and each node its own.
    RESOURCES = {"nodes": 1, "ranks_per_node": 4, "gpus_per_node": 1}
    IS_DOUBLE = False

    def setUp(self):
        why = gpu_tests.no_gpu()
        if why:
            self.skipTest(why)
        self.library = real_nccl()
        if self.library is None:
            self.skipTest("a GPU, but no libnccl.so.2: deploy/install-deps --cuda, or LOCKSTEP_NCCL_LIBRARY")
        why = gpu_tests.no_sharing(self.library)
        if why:
            self.skipTest(why)
        super().setUp()

    def libraries(self):
        # NCCL promises room for two ranks of a GPU (its guide, NCCL_MULTI_RANK_GPU_ENABLE): four take less each. Its RAS is
        # found where the agent says, as in any job with GPUs.
        return ("--nccl", self.library, "--floats", "1048576"), {
            "NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "4", "NCCL_DEBUG": "WARN"}

    def test_a_stopped_process_is_named_within_ten_seconds(self):
        job_id = self.start("--steps", "1000000")
        self.daemon.wait_for(job_id, lambda job: job.get("step", 0) > 100, 60, "it trains")
        # Two looks at least have to know how far it was.
        harness.wait_until(lambda: "nccl_lag" in self.daemon.get(f"/v1/jobs/{job_id}/ranks")["items"][1], 30, "RAS answers")
        pid = self.daemon.get(f"/v1/jobs/{job_id}/ranks")["items"][1]["pid"]
        os.kill(pid, signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            job = self.daemon.wait_for(job_id, lambda job: "desync" in job, 60, "somebody is named")
        finally:
            os.kill(pid, signal.SIGCONT)
        took = time.monotonic() - stopped
        gpu_tests.figure("a rank stopped on a GPU: until it is named", took, "s")
        self.assertEqual(job["desync"]["rank"], 1, job)
        self.assertLess(took, 10)
        self.daemon.cli("cancel", job_id)


if __name__ == "__main__":
    harness.main()
