"""Logs of a rank: parts, tails, and following while it runs."""

import json
import os
import signal

import harness


class Logs(harness.TestCase):
    def gated_printer(self):
        """Prints `line 1`…, and `last` once the file `go` is there."""
        gate = self.root / "go"
        script = f'for i in 1 2 3 4 5; do echo "line $i"; done; while [ ! -e {gate} ]; do sleep 0.05; done; echo last'
        job = self.daemon.submit(harness.command_job("printer", "/bin/sh", "-c", script))
        self.daemon.wait_state(job["id"], "running")
        return job["id"], gate

    def test_following_gives_what_was_there_then_what_comes_then_ends(self):
        job_id, gate = self.gated_printer()
        connection = self.daemon.connect(30)
        connection.request("GET", f"/v1/jobs/{job_id}/logs?rank=0&follow=true", headers=self.daemon.headers())
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        self.assertTrue(answer.headers["Content-Type"].startswith("text/plain"))
        lines = [answer.readline() for _ in range(5)]
        self.assertEqual(lines[-1], b"line 5\n")
        gate.touch()
        self.assertEqual(answer.read(), b"last\n", "the stream ends with the job")
        connection.close()

    def test_tail_and_offset(self):
        job_id, gate = self.gated_printer()
        gate.touch()
        self.daemon.wait_state(job_id, "succeeded")
        whole = self.daemon.rank_log(job_id)
        self.assertEqual(whole, "line 1\nline 2\nline 3\nline 4\nline 5\nlast\n")
        self.assertEqual(self.daemon.text(f"/v1/jobs/{job_id}/logs?rank=0&tail=2"), "line 5\nlast\n")
        self.assertEqual(self.daemon.text(f"/v1/jobs/{job_id}/logs?rank=0&offset=7"), whole[7:])
        self.assert_problem(self.daemon.api("GET", f"/v1/jobs/{job_id}/logs?rank=5"), 404)

    def test_the_command_line_follows(self):
        job_id, gate = self.gated_printer()
        gate.touch()
        self.assertTrue(self.daemon.cli("logs", job_id, "--rank", "0", "-f").stdout.endswith("last\n"))

    def test_lines_of_several_ranks_are_merged_by_the_time_they_were_written(self):
        # Rank 1 writes after it has seen rank 0's line, rank 0 again after it has seen rank 1's.
        turn = self.root / "turn"
        script = (f'if [ $RANK = 0 ]; then echo first; touch {turn}-1; while [ ! -e {turn}-2 ]; do sleep 0.05; done;'
                  f' echo third; else while [ ! -e {turn}-1 ]; do sleep 0.05; done; echo second; sleep 1; touch {turn}-2; fi')
        job = harness.command_job("turns", "/bin/sh", "-c", script)
        job["resources"] = {"nodes": 1, "ranks_per_node": 2}
        job_id = self.daemon.submit(job)["id"]
        self.daemon.wait_state(job_id, "succeeded")
        merged = self.daemon.cli("logs", job_id, "--rank", "all").stdout
        self.assertEqual(merged, "[0] first\n[1] second\n[0] third\n")
        stamped = self.daemon.text(f"/v1/jobs/{job_id}/logs?rank=1&timestamps=true")
        self.assertRegex(stamped, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z 1 second\n$")
        line = json.loads(self.daemon.cli("logs", job_id, "--rank", "all", "--grep", "second", "--json").stdout)
        self.assertEqual((line["rank"], line["generation"], line["text"]), (1, 1, "second"))
        self.assert_problem(self.daemon.api("GET", f"/v1/jobs/{job_id}/logs?timestamps=true&follow=true"), 400)

    def test_a_log_that_is_a_link_is_not_followed_out_of_the_run(self):
        job_id, gate = self.gated_printer()
        gate.touch()
        self.daemon.wait_state(job_id, "succeeded")
        log = self.daemon.data / "runs" / job_id / "a1" / "rank-00000.log"
        log.unlink()
        log.symlink_to(self.daemon.data / "token")
        status, _, data = self.daemon.request("GET", f"/v1/jobs/{job_id}/logs?rank=0")
        self.assertNotEqual(status, 200)
        self.assertNotIn(self.daemon.token.encode(), data)


class LogsOfAWaitingAttempt(harness.TestCase):
    """A job lost its node, and another one has taken the room that its next attempt needs."""

    DAEMON_ARGUMENTS = ("--local-cores", "64", "--local-memory-mb", "1000")

    def submit(self, name, script):
        return self.daemon.submit(harness.command_job(name, "/bin/sh", "-c", script, recovery={},
                                                          resources={"memory_mb_per_node": 1000}))["id"]

    def setUp(self):
        super().setUp()
        self.gate = self.root / "go"
        wait = f"until [ -e {self.gate} ]; do sleep 0.05; done"
        self.job = self.submit("loses", f"echo needle of attempt $LOCKSTEP_ATTEMPT; {wait}")
        harness.wait_until(lambda: self.daemon.job(self.job)["state"] == "running" and self.daemon.rank_log(self.job),
                           30, "its first line")
        other = self.submit("holds", wait)
        self.daemon.wait_for(other, lambda job: "memory" in job.get("pending_reason", ""), what="it waits")

    def lose_the_node(self):
        claim, = [event for event in self.daemon.events(self.job) if event["kind"] == "agent_claimed"]
        os.kill(claim["data"]["pid"], signal.SIGKILL)
        self.daemon.wait_for(self.job, lambda job: len(job["attempts"]) == 2 and "memory" in job.get("pending_reason", ""),
                             what="its second attempt waits")

    def logs(self):
        return self.daemon.request("GET", f"/v1/jobs/{self.job}/logs?rank=0")

    def test_they_are_those_of_the_attempt_before_until_it_begins(self):
        connection = self.daemon.connect(60)
        connection.request("GET", f"/v1/jobs/{self.job}/logs?follow=true", headers=self.daemon.headers())
        followed = connection.getresponse()
        self.assertEqual(followed.headers["Lockstep-Log-Attempt"], "1")
        self.assertEqual(followed.readline(), b"needle of attempt 1\n")
        self.lose_the_node()
        status, headers, text = self.logs()
        self.assertEqual((status, headers["Lockstep-Log-Attempt"], text), (200, "1", b"needle of attempt 1\n"))
        item, = self.daemon.get(f"/v1/jobs/{self.job}/logs/search?q=needle")["items"]
        self.assertEqual(item["text"], "needle of attempt 1")
        self.gate.touch()
        self.assertEqual(followed.read(), b"needle of attempt 2\n", "who follows goes on with the next attempt")
        connection.close()
        self.daemon.wait_state(self.job, "succeeded")
        status, headers, text = self.logs()
        self.assertEqual((status, headers["Lockstep-Log-Attempt"], text), (200, "2", b"needle of attempt 2\n"))

    def test_they_are_there_after_a_cancel_in_the_queue(self):
        self.lose_the_node()
        self.assertIn(self.daemon.api("POST", f"/v1/jobs/{self.job}/cancel")[0], (200, 202))
        self.daemon.wait_state(self.job, "cancelled")
        status, headers, text = self.logs()
        self.assertEqual((status, headers["Lockstep-Log-Attempt"], text), (200, "1", b"needle of attempt 1\n"))


if __name__ == "__main__":
    harness.main()
