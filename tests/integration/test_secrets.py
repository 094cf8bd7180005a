"""Secrets of users: a job's ranks and its setup get them, nothing else does: no document, event, answer or log of
Lockstep's has a value, no other user can use or list them, and one that is gone names itself."""

import json

import harness

VALUE = "s3cr3t-7b1f0c55aa90e2d4"
OTHER = "rotated-4419d0aa17bc8812"


class Users(harness.TestCase):
    def call(self, method, path, body=None, token=None):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.daemon.api(method, path, body, headers)

    def put(self, name, value, token=None):
        status, answer = self.call("PUT", f"/v1/secrets/{name}", {"value": value}, token)
        self.assertEqual(status, 200, answer)
        self.assertNotIn(value, json.dumps(answer))
        return answer

    def token(self, **fields):
        status, made = self.call("POST", "/v1/tokens", {"name": "test", **fields})
        self.assertEqual(status, 201, made)
        return made["token"]

    def files_with(self, value):
        return {str(file.relative_to(self.daemon.data)) for file in self.daemon.data.rglob("*")
                if file.is_file() and not file.is_symlink() and value.encode() in file.read_bytes()}


class Secrets(Users):
    def test_ranks_and_setup_have_it_and_no_file_but_the_stores(self):
        self.put("MY_KEY", VALUE)
        user = self.daemon.get("/v1/whoami")["user"]
        own = f"secrets/{user}/MY_KEY"
        self.assertEqual((self.daemon.data / own).stat().st_mode & 0o777, 0o600)
        script = ('test ${#MY_KEY} = ' + str(len(VALUE)) + ' && test "$SEEN" = yes && echo it is $MY_KEY here; '
                  'printf %s "$MY_KEY" | cut -c1-9; printf %s "$MY_KEY" | cut -c10- ; echo "loss=0.5 step=1"')
        spec = harness.command_job("uses", "/bin/sh", "-c", script, secrets=["MY_KEY"],
                                   setup=f'set -x; [ "$MY_KEY" = {VALUE[:4]}"{VALUE[4:]}" ] && export SEEN=yes',
                                   resources={"ranks_per_node": 2})
        shown = self.call("POST", "/v1/jobs/render", spec)[1]
        self.assertEqual(shown["environment"]["MY_KEY"], "***")
        job = self.daemon.submit(spec)
        done = self.daemon.wait_state(job["id"], harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)
        log = self.daemon.rank_log(job["id"])
        self.assertIn("it is *** here", log)
        written, = self.daemon.data.rglob("setup-00000.log")
        self.assertIn("++ '[' *** = *** ']'\n++ export SEEN=yes\n", written.read_text())
        self.assertEqual(self.daemon.get(f"/v1/jobs/{job['id']}/spec")["secrets"], ["MY_KEY"])
        self.assertEqual(self.files_with(VALUE), {own})
        self.assertNotIn(VALUE, self.daemon.text(f"/v1/jobs/{job['id']}/events"))
        listed = self.daemon.get("/v1/secrets")["items"]
        self.assertEqual([one["name"] for one in listed], ["MY_KEY"])
        self.assertNotIn(VALUE, json.dumps(listed))
        audit = (self.daemon.data / "audit.log").read_text()
        self.assertIn("/v1/secrets/MY_KEY", audit)

    def test_a_setup_that_prints_it_and_fails_is_told_without_it(self):
        self.put("MY_KEY", VALUE)
        for printed, kept in (("echo first $MY_KEY", "first ***\n"),
                              # More than is kept, one line of it: the cut is in the middle of a value.
                              ('yes "$MY_KEY" | head -c 20000000 | tr -d "\\n"; echo; echo last $MY_KEY', "last ***\n")):
            job = self.daemon.submit(harness.command_job("fails", "true", secrets=["MY_KEY"],
                                                         setup=f"{printed}; echo $MY_KEY >&2; exit 3"))["id"]
            done = self.daemon.wait_state(job, harness.FINAL)
            self.assertEqual(done["state"], "failed", done)
            self.assertIn("setup failed with exit code 3", json.dumps(done["cause"]))
            written = (self.daemon.data / "runs" / job / "a1" / "setup-00000.log").read_text()
            self.assertTrue(written.endswith(kept + "***\n"), written[-200:])
            self.assertNotIn(VALUE, written)
            self.assertNotIn(VALUE, json.dumps(done))
        self.assertLess(len(written), 1000)
        self.assertEqual(len(self.files_with(VALUE)), 1)

    def test_what_a_rank_dies_of_is_told_without_it(self):
        self.put("MY_KEY", VALUE)
        job = self.daemon.submit(harness.command_job(
            "dies", "/usr/bin/python3", "-c", "import os; raise ValueError('bad key ' + os.environ['MY_KEY'])",
            secrets=["MY_KEY"]))
        done = self.daemon.wait_state(job["id"], harness.FINAL)
        self.assertEqual(done["state"], "failed")
        self.assertIn("bad key ***", json.dumps(done["cause"]))
        self.assertEqual(len(self.files_with(VALUE)), 1)

    def test_a_job_gets_what_is_set_when_it_starts_also_after_a_restart_of_the_daemon(self):
        self.put("MY_KEY", VALUE)
        self.daemon.restart()
        self.put("MY_KEY", OTHER)
        job = self.daemon.submit(harness.command_job(
            "newest", "/bin/sh", "-c", f'[ "$MY_KEY" = {OTHER} ]', secrets=["MY_KEY"]))
        done = self.daemon.wait_state(job["id"], harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)

    def test_one_that_is_not_there_is_named_at_submission(self):
        spec = harness.command_job("misses", "/bin/true", secrets=["MY_KEY"])
        for path in ("/v1/jobs", "/v1/jobs/render"):
            self.assert_problem(self.call("POST", path, spec), 400, pointer="/secrets/0",
                                text="lockstep secret set MY_KEY")
        spec["secrets"] = ["RANK"]
        self.assert_problem(self.call("POST", "/v1/jobs", spec), 400, pointer="/secrets/0")
        self.assertEqual(self.call("PUT", "/v1/secrets/LD_PRELOAD", {"value": "x"})[0], 400)
        self.assertEqual(self.call("PUT", "/v1/secrets/A", {"value": ""})[0], 400)
        self.assertEqual(self.call("PUT", "/v1/secrets/A", {"value": "x" * 32769})[0], 400)
        self.assertEqual(self.call("DELETE", "/v1/secrets/A")[0], 404)

    def test_one_that_is_removed_before_the_start_is_the_cause(self):
        self.put("MY_KEY", VALUE)
        go = self.root / "go"
        first = self.daemon.submit(harness.command_job(
            "first", "/bin/sh", "-c", f"until [ -e {go} ]; do sleep 0.05; done"))
        second = self.daemon.submit(harness.command_job(
            "second", "/bin/true", secrets=["MY_KEY"], after=[first["id"]]))
        self.assertEqual(self.call("DELETE", "/v1/secrets/MY_KEY")[0], 204)
        go.touch()
        done = self.daemon.wait_state(second["id"], harness.FINAL)
        self.assertEqual(done["state"], "failed")
        self.assertEqual(done["cause"]["class"], "user_error")
        self.assertIn("the secret MY_KEY, which it needs, was removed before it started", done["cause"]["message"])

    def test_what_others_and_narrowed_tokens_may(self):
        self.put("MY_KEY", VALUE)
        write = self.token(scopes=["read", "write"])
        self.assertEqual(self.call("PUT", "/v1/secrets/MY_KEY", {"value": "x"}, write)[0], 403)
        self.assertEqual(self.call("DELETE", "/v1/secrets/MY_KEY", None, write)[0], 403)
        self.assertEqual(self.call("GET", "/v1/secrets", None, write)[0], 200)
        viewer = self.token(user="vic", role="viewer")
        self.assertEqual(self.call("GET", "/v1/secrets", None, viewer)[1]["items"], [])
        self.assertEqual(self.call("PUT", "/v1/secrets/A", {"value": "x"}, viewer)[0], 403)
        rotates = self.token(scopes=["secrets"])
        self.put("MY_KEY", OTHER, rotates)
        self.assertEqual(self.call("POST", "/v1/jobs", harness.command_job("j", "/bin/true"), rotates)[0], 403)

    def test_the_command_line(self):
        def cli(*words, stdin=None, check=True):
            return self.daemon.cli(*words, stdin=stdin, check=check)

        cli("secret", "set", "MY_KEY", stdin=VALUE + "\n")
        self.assertIn("MY_KEY", cli("secret", "list").stdout)
        ran = cli("run", "--wait", "--secret", "MY_KEY", "--", "/bin/sh", "-c", f'[ "$MY_KEY" = {VALUE} ] && echo it fits')
        self.assertIn("it fits", self.daemon.rank_log(self.daemon.get("/v1/jobs")["items"][0]["id"]), ran.stdout)
        self.assertRegex(cli("show", "last").stdout, r"(?m)^secrets +MY_KEY$")
        refused = cli("secret", "set", "LOCKSTEP_X", stdin="x", check=False)
        self.assertEqual(refused.returncode, 2, refused.stderr)
        cli("secret", "rm", "MY_KEY")
        self.assertEqual(self.daemon.get("/v1/secrets")["items"], [])


class OthersSecrets(Users):
    DAEMON_ARGUMENTS = ("--shared-account",)

    def test_nobody_elses_can_be_used_listed_or_removed(self):
        self.put("MY_KEY", VALUE)
        eve = self.token(user="eve")
        spec = harness.command_job("steals", "/bin/true", secrets=["MY_KEY"])
        self.assert_problem(self.call("POST", "/v1/jobs", spec, eve), 400, pointer="/secrets/0")
        self.assertEqual(self.call("GET", "/v1/secrets", None, eve)[1]["items"], [])
        self.assertEqual(self.call("DELETE", "/v1/secrets/MY_KEY", None, eve)[0], 404)
        self.put("MY_KEY", OTHER, eve)
        job = self.daemon.submit(harness.command_job("own", "/bin/sh", "-c", f'[ "$MY_KEY" = {VALUE} ]',
                                                     secrets=["MY_KEY"]))
        self.assertEqual(self.daemon.wait_state(job["id"], harness.FINAL)["state"], "succeeded")


class Account(harness.TestCase):
    """All jobs run as lockstepd's user: others submit only where that is meant."""

    def test_others_get_no_token_that_submits(self):
        for rights in ({}, {"role": "admin"}, {"scopes": ["write"]}):
            refused = self.daemon.api("POST", "/v1/tokens", {"name": "t", "user": "ada", **rights})
            self.assert_problem(refused, 403, pointer="/user", text="--shared-account")
        for rights in ({"role": "viewer"}, {"scopes": ["read", "metrics"]}):
            status, made = self.daemon.api("POST", "/v1/tokens", {"name": "t", "user": "ada", **rights})
            self.assertEqual(status, 201, made)
        self.assertNotIn("shared_account", self.daemon.get("/v1/whoami"))
        self.assertNotIn("shared_account", self.daemon.get("/v1/cluster"))

    def test_tokens_of_before_are_named_at_the_start_and_submit_nothing(self):
        self.daemon.stop()
        self.daemon.arguments = ("--shared-account",)
        self.daemon.start()
        self.assertIs(self.daemon.get("/v1/whoami")["shared_account"], True)
        self.assertIs(self.daemon.get("/v1/cluster")["shared_account"], True)
        self.assertIn("can do what that user can", self.daemon.cli("whoami").stdout)
        status, made = self.daemon.api("POST", "/v1/tokens", {"name": "t", "user": "ada"})
        self.assertEqual(status, 201, made)
        own = {"Authorization": f"Bearer {made['token']}"}
        spec = harness.command_job("hers", "/bin/true")
        status, job = self.daemon.api("POST", "/v1/jobs", spec, own)
        self.assertEqual(status, 201, job)
        self.daemon.wait_state(job["id"], "succeeded")
        self.daemon.stop()
        self.daemon.arguments = ()
        self.daemon.start()
        self.assert_problem(self.daemon.api("POST", "/v1/jobs", spec, own), 403, text="--shared-account")
        self.assertEqual(self.daemon.api("GET", f"/v1/jobs/{job['id']}", None, own)[0], 200)
        self.assertIn("a user has tokens that cannot submit", self.daemon.log.read_text())


if __name__ == "__main__":
    harness.main()
