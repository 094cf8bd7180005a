"""Logs of a rank: parts, tails, and following while it runs."""

import json

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


if __name__ == "__main__":
    harness.main()
