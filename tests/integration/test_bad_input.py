"""Bad input gets a clear answer that names what is wrong, and harms nothing that was accepted."""

import ctypes
import json
import os
import subprocess
import time

import harness

SPEC = {"name": "fine", "framework": "command", "command": ["/bin/true"]}


class BadRequest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.before = self.daemon.submit(SPEC)

    def tearDown(self):
        # Whatever was sent: the daemon answers, and the job from before is done.
        self.assertEqual(self.daemon.wait_state(self.before["id"], harness.FINAL)["state"], "succeeded")
        self.assertEqual(len(self.daemon.get("/v1/jobs")["items"]), 1, "something bad was accepted")

    def post(self, body, **headers):
        return self.daemon.api("POST", "/v1/jobs", body, headers)

    def test_malformed_json_names_the_place(self):
        self.assert_problem(self.post(b'{"name": "x", }'), 400)
        self.assert_problem(self.post(b""), 400)
        self.assert_problem(self.post(b'{"name": "\xff"}'), 400)
        self.assert_problem(self.post(b'{"name": "a", "name": "b"}'), 400)

    def test_a_hundred_levels_of_nesting(self):
        self.assert_problem(self.post(b'{"train":' * 100 + b"1" + b"}" * 100), 400)
        self.assert_problem(self.post(b"[" * 500_000), 400)

    def test_a_body_of_two_mebibytes_is_refused_and_the_answer_can_be_read(self):
        body = json.dumps({**SPEC, "labels": {"x": "y" * (2 << 20)}}).encode()
        done = subprocess.run(
            ["curl", "-sS", "-o", "-", "-w", "\n%{http_code}", "-H", f"Authorization: Bearer {self.daemon.token}",
             "-H", "Content-Type: application/json", "--data-binary", "@-", f"{self.daemon.url}/v1/jobs"],
            input=body, capture_output=True, timeout=30, check=True)
        document, _, status = done.stdout.decode().rpartition("\n")
        self.assert_problem((int(status), json.loads(document)), 413)

    def test_unknown_fields_are_named_by_path(self):
        self.assert_problem(self.post({**SPEC, "bogus": 1}), 400, "/bogus")
        self.assert_problem(self.post({**SPEC, "resources": {"node": 2}}), 400, "/resources/node")

    def test_wrong_types_are_named_by_path(self):
        self.assert_problem(self.post({**SPEC, "resources": {"nodes": "two"}}), 400, "/resources/nodes")
        self.assert_problem(self.post({**SPEC, "resources": {"nodes": 1.5}}), 400, "/resources/nodes")
        self.assert_problem(self.post({**SPEC, "command": "rm -rf"}), 400, "/command")
        self.assert_problem(self.post([SPEC]), 400)

    def test_every_mistake_is_named_at_once(self):
        answer = self.post({"name": "a b", "framework": "command", "command": [],
                            "resources": {"nodes": 0, "ranks_per_node": True}})
        for pointer in ("/name", "/command", "/resources/nodes", "/resources/ranks_per_node"):
            self.assert_problem(answer, 400, pointer)

    def test_a_name_with_a_newline(self):
        self.assert_problem(self.post({**SPEC, "name": "a\nb"}), 400, "/name")
        self.assert_problem(self.post({**SPEC, "name": "../../etc"}), 400, "/name")

    def test_impossible_sizes(self):
        self.assert_problem(self.post({**SPEC, "resources": {"nodes": -1}}), 400, "/resources/nodes")
        self.assert_problem(self.post({**SPEC, "resources": {"nodes": 10**9}}), 400, "/resources/nodes")
        self.assert_problem(self.post({**SPEC, "resources": {"nodes": 10**30}}), 400)
        self.assert_problem(self.post({**SPEC, "resources": {"nodes": 16384, "ranks_per_node": 1024}}), 400,
                            "/resources")
        self.assert_problem(self.post({**SPEC, "resources": {"memory_mb_per_node": 64_000_000}}), 400,
                            "/resources/memory_mb_per_node")
        self.assert_problem(self.post({**SPEC, "resources": {"gpus_per_node": 64}}), 400,
                            "/resources/gpus_per_node")

    def test_what_this_version_cannot_do_is_refused_not_ignored(self):
        self.assert_problem(self.post({**SPEC, "framework": "mxnet"}), 400, "/framework")
        self.assert_problem(self.post({**SPEC, "framework": "pytorch",
                                       "roles": [{"name": "ps", "count": 1}]}), 400, "/roles/0/name")
        self.assert_problem(self.post({**SPEC, "framework": "mpi"}), 400, "/launch")
        self.assert_problem(self.post({**SPEC, "train": {"epochs": 1}}), 400, "/train")
        self.assert_problem(self.post({"name": "n", "framework": "native", "train": {"precision": "fp8"}}), 400,
                            "/train/precision")

    def test_bad_paths_and_parameters(self):
        self.assert_problem(self.daemon.api("GET", "/v1/jobs/ls-00000000000000000000000000"), 404)
        self.assert_problem(self.daemon.api("GET", "/v1/jobs/..%2f..%2ftoken"), 400)
        self.assert_problem(self.daemon.api("GET", "/nothing"), 404)
        self.assert_problem(self.daemon.api("DELETE", "/v1/jobs"), 405)
        self.assert_problem(self.daemon.api("GET", "/v1/jobs?limit=0"), 400, "?limit")
        self.assert_problem(self.daemon.api("GET", "/v1/jobs?limt=5"), 400, "?limt")
        self.assert_problem(self.daemon.api("GET", "/v1/jobs?cursor=%00"), 400)
        base = f"/v1/jobs/{self.before['id']}"
        self.assert_problem(self.daemon.api("GET", f"{base}/series?metric=loss&points=0"), 400, "?points")
        self.assert_problem(self.daemon.api("GET", f"{base}/series?metric=loss&ranks=9-1"), 400, "?ranks")
        self.assert_problem(self.daemon.api("GET", f"{base}/logs?rank=99999999999999999999"), 400, "?rank")
        self.assert_problem(self.daemon.api("POST", "/v1/jobs", b"x", {"Content-Type": "text/plain"}), 415)


class BadJob(harness.TestCase):
    def run_job(self, spec, seconds=60):
        job = self.daemon.submit(spec)
        return self.daemon.wait_state(job["id"], harness.FINAL, seconds)

    def test_a_command_that_does_not_exist(self):
        job = self.run_job(harness.command_job("missing", "no-such-program", "--flag",
                                               resources={"nodes": 2, "ranks_per_node": 1}))
        self.assertEqual(job["state"], "failed")
        self.assertEqual(job["cause"]["class"], "user_error", job["cause"])
        self.assertIn("no-such-program", job["cause"]["message"])

    def test_a_working_directory_that_is_not_there(self):
        job = self.run_job(harness.command_job("nowhere", "/bin/true", working_directory="/no/such/folder"))
        self.assertEqual(job["state"], "failed")
        self.assertEqual(job["cause"]["class"], "user_error", job["cause"])
        self.assertIn("/no/such/folder", job["cause"]["message"])

    def test_a_rank_that_prints_200_megabytes_harms_neither_the_disk_nor_the_daemon(self):
        job = self.daemon.submit(harness.command_job(
            "loud", "/bin/sh", "-c", "head -c 200000000 /dev/zero | tr '\\0' 'x' | fold -w 99; echo the end"))
        took = []
        while True:
            began = time.monotonic()
            state = self.daemon.job(job["id"])["state"]
            took.append(time.monotonic() - began)
            if state in harness.FINAL:
                break
            self.assertLess(took[-1], 5 * harness.PATIENCE)
        self.assertEqual(state, "succeeded")
        # Of each twenty answers: a single one may wait for whatever else the machine does.
        self.assertLess(sorted(took)[len(took) * 95 // 100], 2, "the daemon answers while a rank floods its agent")
        log = self.daemon.data / "runs" / job["id"] / "a1" / "rank-00000.log"
        used = os.stat(log).st_blocks * 512
        self.assertLess(used, 80 << 20, "the middle of a long log is given back to the disk")
        self.assertIn("the end", self.daemon.text(f"/v1/jobs/{job['id']}/logs?rank=0&tail=3"))
        begin = self.daemon.text(f"/v1/jobs/{job['id']}/logs?rank=0&offset=0")
        self.assertTrue(begin.startswith("x" * 99))

    def test_a_rank_that_ignores_sigterm_is_killed(self):
        job = self.daemon.submit(harness.command_job(
            "deaf", harness.PYTHON, "-c",
            "import signal, time\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "print('deaf', flush=True)\n"
            "while True: time.sleep(1)\n"))
        self.daemon.wait_state(job["id"], "running")
        harness.wait_until(lambda: "deaf" in self.daemon.rank_log(job["id"]), 20, "the rank is deaf")
        self.assertIn(self.daemon.api("POST", f"/v1/jobs/{job['id']}/cancel")[0], (200, 202))
        done = self.daemon.wait_state(job["id"], harness.FINAL, 45)
        self.assertEqual(done["state"], "cancelled", done)

        def nobody_left():
            return not any(f"runs/{job['id']}" in argument for argument in _command_lines())

        harness.wait_until(nobody_left, 20, "its agent is gone")

    def test_reports_that_are_not_json_or_huge_do_not_harm_the_rank(self):
        job = self.run_job(harness.python_job("liar", "bad_reports.py"))
        self.assertEqual(job["state"], "succeeded", job)
        self.assertIn("sent", self.daemon.rank_log(job["id"]))
        self.assertEqual(self.daemon.series(job["id"])[0], [[7, 0.125, 0.125, 0.125]])


def _command_lines():
    for pid in harness.processes_with("lockstep-agent"):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                yield file.read().decode(errors="replace")
        except OSError:
            continue


class FullDisk(harness.TestCase):
    """The data directory is on a file system of 16 MiB."""

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to mount a small file system")
        # Only this process and its children see the mount; nothing is left behind.
        if ctypes.CDLL(None, use_errno=True).unshare(0x00020000) != 0:
            self.skipTest("may not make a mount namespace here")
        subprocess.run(["mount", "--make-rprivate", "/"], check=False, capture_output=True)
        super().setUp()

    def test_a_full_disk_refuses_and_keeps_what_was_accepted(self):
        self.daemon.stop()
        small = self.root / "small"
        small.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", small], capture_output=True,
                                 check=False)
        if mounted.returncode != 0:
            self.skipTest(f"cannot mount a tmpfs: {mounted.stderr.decode().strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", str(small)], check=False)
        self.daemon.data = small / "data"
        self.daemon.start()
        accepted = [self.daemon.submit(SPEC)["id"]]
        self.daemon.wait_state(accepted[0], "succeeded")
        ballast = small / "ballast"
        with open(ballast, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"\0" * 4096)
            except OSError:
                pass
        refused = None
        for number in range(3000):
            status, answer = self.daemon.api("POST", "/v1/jobs", {**SPEC, "name": f"n{number}"})
            if status != 201:
                refused = (status, answer)
                break
            accepted.append(answer["id"])
        self.assertIsNotNone(refused, "a full disk accepted 3000 jobs")
        self.assertIn(refused[0], (503, 507), refused)
        self.assert_problem(refused, refused[0])
        self.assertIsNone(self.daemon.process.poll(), "the daemon is alive")
        ballast.unlink()

        def accepts_again():
            try:
                status, answer = self.daemon.api("POST", "/v1/jobs", {**SPEC, "name": "after"})
            except harness.Unreachable:
                return False
            if status == 201:
                accepted.append(answer["id"])
            return status == 201

        harness.wait_until(accepts_again, 30, "there is room again")
        self.daemon.restart()
        for job_id in accepted:
            self.assertEqual(self.daemon.job(job_id)["id"], job_id)
        self.assertEqual(self.daemon.wait_state(accepted[-1], harness.FINAL)["state"], "succeeded")

    def test_output_that_a_full_disk_has_lost_is_told_with_the_job(self):
        runs = self.daemon.data / "runs"
        runs.mkdir(exist_ok=True)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", runs], capture_output=True, check=False)
        if mounted.returncode != 0:
            self.skipTest(f"cannot mount a tmpfs: {mounted.stderr.decode().strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", str(runs)], check=False)
        script = "head -c 1500000 /dev/zero | tr '\\0' x; if [ $RANK = 1 ]; then head -c 1500000 /dev/zero | tr '\\0' y; fi"
        done = self.daemon.wait_state(self.daemon.submit(harness.command_job(
            "talks", "/bin/sh", "-c", script, resources={"nodes": 1, "ranks_per_node": 2}, preflight={"mode": "off"}))["id"], harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)
        said = [text for text in done.get("warnings", []) if "bytes of its output" in text]
        self.assertRegex(" ".join(said), r"rank 1 lost \d{6,} bytes of its output: the disk was full")
        self.assertIn(said[0], self.daemon.cli("show", done["id"]).stdout)
        told = [event for event in self.daemon.events(done["id"]) if event["kind"] == "warning"]
        self.assertIn(1, [event.get("rank") for event in told], told)


if __name__ == "__main__":
    harness.main()
