"""Two users, a viewer and an admin on one daemon: nobody sees, stops or reads the logs of another's job,
tokens end when they expire or are revoked, open streams with them, and a restart forgets neither.
"""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import threading
import time

import harness

# What has ended is noticed by a sweep of 500 ms; the rest is room for a busy machine.
STREAM_END = 5 * harness.PATIENCE


class Tokens(harness.TestCase):
    DAEMON_ARGUMENTS = ("--shared-account",)

    def setUp(self):
        super().setUp()
        self.admin = self.daemon.token
        self.ada = self.make("ada")["token"]
        self.bob = self.make("bob")["token"]
        self.viewer = self.make("vic", role="viewer")["token"]

    def make(self, user, **fields):
        status, made = self.daemon.api("POST", "/v1/tokens", {"name": "test", "user": user, **fields})
        self.assertEqual(status, 201, made)
        return made

    def api(self, token, method, path, body=None, **headers):
        return self.daemon.api(method, path, body, {"Authorization": f"Bearer {token}", **headers})

    def lockstep(self, token, *arguments, stdin=None):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}
        environment.update(LOCKSTEP_URL=self.daemon.url, LOCKSTEP_TOKEN=token)
        return subprocess.run([harness.BIN / "lockstep", *arguments], input=stdin, text=True, check=False,
                              capture_output=True, timeout=60, env=environment)

    def talking_job(self, token, name="talker"):
        """A running job that has printed `hello` and goes on until the file `go` is there."""
        gate = self.root / "go"
        script = f"echo hello; while [ ! -e {gate} ]; do sleep 0.05; done; echo last"
        status, job = self.api(token, "POST", "/v1/jobs", harness.command_job(name, "/bin/sh", "-c", script))
        self.assertEqual(status, 201, job)
        self.daemon.wait_state(job["id"], "running")
        harness.wait_until(lambda: "hello" in self.daemon.rank_log(job["id"]), 20, "the rank prints")
        return job["id"], gate

    @contextlib.contextmanager
    def reading(self, token, path):
        """The lines that a stream has sent so far, and an event that is set when it ends."""
        connection = self.daemon.connect(60)
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        sock = connection.sock  # getresponse() takes it away
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        lines, ended = [], threading.Event()

        def read():
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                while line := answer.readline():
                    lines.append(line.decode())
            ended.set()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield lines, ended
        finally:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            reader.join(20)
            connection.close()

    # --- users --------------------------------------------------------------------------------
    def test_a_job_is_hidden_from_other_users(self):
        job, gate = self.talking_job(self.ada)
        self.assertEqual(self.daemon.job(job)["user"], "ada")
        nothing = "ls-01ARZ3NDEKTSV4RRFFQ69G5FAV"
        for method, rest in (("GET", ""), ("GET", "/spec"), ("GET", "/script"), ("GET", "/events"),
                             ("GET", "/ranks"), ("GET", "/series"), ("GET", "/logs"),
                             ("GET", "/logs?follow=true"), ("GET", "/logs?rank=0&tail=5"),
                             ("POST", "/cancel")):
            foreign = self.api(self.bob, method, f"/v1/jobs/{job}{rest}")
            self.assert_problem(foreign, 404)
            unknown = self.api(self.bob, method, f"/v1/jobs/{nothing}{rest}")
            same = json.dumps(unknown).replace(nothing, job)
            self.assertEqual(json.dumps(foreign), same, f"{method} {rest}")
        for query in ("", "?user=ada", "?name=talker", "?state=running"):
            self.assertEqual(self.api(self.bob, "GET", f"/v1/jobs{query}")[1]["items"], [], query)
        self.assertEqual([j["id"] for j in self.api(self.ada, "GET", "/v1/jobs")[1]["items"]], [job])
        for arguments in (("show", job), ("logs", job, "-f"), ("cancel", job), ("ranks", job)):
            self.assertEqual(self.lockstep(self.bob, *arguments).returncode, 3, arguments)
        self.assertEqual(self.daemon.job(job)["state"], "running", "nobody stopped it")
        gate.touch()
        self.daemon.wait_state(job, "succeeded")
        self.assertEqual(self.lockstep(self.ada, "logs", job).stdout, "hello\nlast\n")
        self.assert_problem(self.api(self.bob, "GET", f"/v1/jobs/{job}/logs"), 404)

    def test_the_event_stream_tells_of_own_jobs_only(self):
        with self.reading(self.bob, "/v1/events?topics=jobs") as (bobs, _), \
                self.reading(self.ada, "/v1/events?topics=jobs") as (adas, _):
            job, gate = self.talking_job(self.ada)
            gate.touch()
            self.daemon.wait_state(job, "succeeded")
            harness.wait_until(lambda: any("finished" in line for line in adas), 20, "ada hears of the end")
            self.assertTrue(any(job in line for line in adas))
            # A job of bob's, so that what came to bob's stream before has come.
            status, own = self.api(self.bob, "POST", "/v1/jobs", harness.command_job("b", "true"))
            self.assertEqual(status, 201)
            harness.wait_until(lambda: any(own["id"] in line for line in bobs), 20, "bob hears of their own")
            self.assertFalse(any(job in line for line in bobs), bobs)
        with self.reading(self.bob, "/v1/events?last_event_id=0") as (bobs, _):
            harness.wait_until(lambda: any(own["id"] in line for line in bobs), 20, "what was is told")
            self.assertFalse(any(job in line for line in bobs), bobs)

    def test_a_viewer_reads_everything_and_changes_nothing(self):
        job, gate = self.talking_job(self.ada)
        self.assertEqual(self.api(self.viewer, "GET", f"/v1/jobs/{job}")[0], 200)
        self.assertIn("hello", self.lockstep(self.viewer, "logs", job).stdout)
        self.assertEqual([j["id"] for j in self.api(self.viewer, "GET", "/v1/jobs")[1]["items"]], [job])
        self.assert_problem(self.api(self.viewer, "POST", f"/v1/jobs/{job}/cancel"), 403)
        self.assert_problem(self.api(self.viewer, "POST", "/v1/jobs", harness.command_job("x", "true")), 403)
        self.assert_problem(self.api(self.viewer, "POST", "/v1/tokens", {"name": "x"}), 403)
        self.assertEqual(self.lockstep(self.viewer, "cancel", job).returncode, 5)
        gate.touch()
        self.daemon.wait_state(job, "succeeded")

    def test_an_admin_ends_anybodys_job(self):
        job, _ = self.talking_job(self.ada)
        self.assertEqual(self.api(self.admin, "POST", f"/v1/jobs/{job}/cancel")[0], 200)
        self.daemon.wait_state(job, "cancelled")

    def test_the_same_key_of_two_users_is_two_jobs(self):
        spec = harness.command_job("k", "true")
        _, adas = self.api(self.ada, "POST", "/v1/jobs", spec, **{"Idempotency-Key": "nightly"})
        status, bobs = self.api(self.bob, "POST", "/v1/jobs", spec, **{"Idempotency-Key": "nightly"})
        self.assertEqual(status, 201)
        self.assertNotEqual(adas["id"], bobs["id"])
        self.assertEqual(bobs["user"], "bob")

    def audit(self):
        text = (self.daemon.data / "audit.log").read_text()
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]

    # --- the end of a token -------------------------------------------------------------------
    def test_revocation_works_at_once_and_ends_open_streams(self):
        job, gate = self.talking_job(self.ada)
        own = self.api(self.ada, "GET", "/v1/whoami")[1]["token"]
        self.assert_problem(self.api(self.bob, "DELETE", f"/v1/tokens/{own}"), 404)
        with self.reading(self.ada, "/v1/events?topics=jobs") as (_, events_end), \
                self.reading(self.ada, f"/v1/jobs/{job}/logs?follow=true") as (log, log_end), \
                self.reading(self.viewer, f"/v1/jobs/{job}/logs?follow=true") as (other, other_end):
            harness.wait_until(lambda: log and other, 20, "the logs are followed")
            self.assertEqual(self.api(self.admin, "DELETE", f"/v1/tokens/{own}")[0], 204)
            begin = time.monotonic()
            self.assertEqual(self.api(self.ada, "GET", "/v1/whoami")[0], 401)
            self.assertTrue(events_end.wait(STREAM_END), "the event stream ends")
            self.assertTrue(log_end.wait(STREAM_END), "the followed log ends")
            print(f"streams of a revoked token end after {time.monotonic() - begin:.2f} s")
            self.assertFalse(other_end.is_set(), "somebody else's goes on")
            gate.touch()
            harness.wait_until(lambda: "last\n" in other, 20, "and is told the rest")
            self.assertNotIn("last\n", log)
        for what in ({"operation": "revokeToken", "status": 204, "owner": "ada"},
                     {"refused": "token", "path": "/v1/whoami", "owner": "ada", "token": own}):
            harness.wait_until(lambda what=what: any(what.items() <= line.items() for line in self.audit()), 20,
                               f"the audit log has {what}")
        self.daemon.wait_state(job, "succeeded")

    def test_a_stream_ends_when_its_token_expires(self):
        job, gate = self.talking_job(self.ada)
        short = self.make("ada", expires_in=10)["token"]
        with self.reading(short, f"/v1/jobs/{job}/logs?follow=true") as (_, ended):
            self.assertTrue(ended.wait(10 + STREAM_END), "the stream ends")
        self.assertEqual(self.api(short, "GET", "/v1/whoami")[0], 401)
        gate.touch()
        self.daemon.wait_state(job, "succeeded")

    def test_a_restart_keeps_tokens_and_their_ends(self):
        gone = self.make("bob")
        self.assertEqual(self.api(gone["token"], "DELETE", f"/v1/tokens/{gone['id']}")[0], 204)
        job, gate = self.talking_job(self.ada)
        before = self.daemon.get("/v1/tokens?all=true")["items"]
        self.daemon.restart()
        # What was made and revoked is the same; last_used_at is only to the minute.
        kept = [[t.get(k) for k in ("id", "user", "role", "expires_at", "revoked_at")]
                for t in self.daemon.get("/v1/tokens?all=true")["items"]]
        self.assertEqual(kept, [[t.get(k) for k in ("id", "user", "role", "expires_at", "revoked_at")]
                                for t in before])
        self.assertEqual(self.daemon.token, self.admin, "the first token stays as it is")
        self.assertEqual(self.api(gone["token"], "GET", "/v1/whoami")[0], 401)
        self.assertEqual(self.api(self.ada, "GET", f"/v1/jobs/{job}")[0], 200)
        self.assert_problem(self.api(self.bob, "GET", f"/v1/jobs/{job}"), 404)
        gate.touch()
        self.daemon.wait_state(job, "succeeded")

    def test_a_revoked_first_token_is_made_anew_by_a_restart(self):
        own = self.daemon.get("/v1/whoami")["token"]
        self.assertEqual(self.daemon.api("DELETE", f"/v1/tokens/{own}")[0], 204)
        self.assertEqual(self.daemon.api("GET", "/v1/whoami")[0], 401)
        self.daemon.restart()
        self.assertNotEqual(self.daemon.token, self.admin)
        self.assertEqual(self.daemon.get("/v1/whoami")["role"], "admin")
        self.assertEqual(self.api(self.admin, "GET", "/v1/whoami")[0], 401)

    # --- the command line ---------------------------------------------------------------------
    def test_the_command_line_makes_lists_and_revokes(self):
        made = self.lockstep(self.admin, "token", "create", "laptop", "--user", "eve", "--expires", "1h")
        self.assertEqual(made.returncode, 0, made.stderr)
        secret = made.stdout.strip()
        self.assertNotIn(secret, made.stderr)
        self.assertRegex(self.lockstep(secret, "whoami").stdout, r"^eve, user \(metrics, read, write, secrets\)")
        listed = json.loads(self.lockstep(secret, "token", "list", "--json").stdout)["items"]
        self.assertEqual([(t["name"], t["user"]) for t in listed], [("laptop", "eve")])
        self.assertNotIn(secret, json.dumps(listed))
        self.assertEqual(self.lockstep(secret, "token", "create", "x", "--user", "ada").returncode, 5)
        done = self.lockstep(secret, "token", "revoke", listed[0]["id"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.lockstep(secret, "whoami").returncode, 5)
        self.assertNotIn(secret, self.daemon.log.read_text(), "no secret in the log")
        for file in self.daemon.data.glob("lockstep.db*"):
            self.assertNotIn(secret.removeprefix("lks_").encode(), file.read_bytes(), file.name)


if __name__ == "__main__":
    harness.main()
