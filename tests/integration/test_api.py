"""The HTTP API as a client meets it: lists, keys, render, events, streams, who may do what."""

import json
import re

import harness

SPEC = harness.command_job("api", "/bin/true")


class Api(harness.TestCase):
    def finished_job(self, name="api", **fields):
        job = self.daemon.submit({**SPEC, "name": name, **fields})
        return self.daemon.wait_state(job["id"], "succeeded")

    def test_pages_of_a_list_hold_every_job_once_newest_first(self):
        ids = [self.daemon.submit({**SPEC, "name": f"n{i}", "labels": {"parity": str(i % 2)}})["id"]
               for i in range(7)]
        seen = []
        cursor = ""
        while True:
            page = self.daemon.get(f"/v1/jobs?limit=3{cursor}")
            self.assertLessEqual(len(page["items"]), 3)
            seen += [job["id"] for job in page["items"]]
            if not page.get("next_cursor"):
                break
            cursor = f"&cursor={page['next_cursor']}"
        self.assertEqual(seen, ids[::-1])
        self.assertEqual([j["id"] for j in self.daemon.get("/v1/jobs?name=n4")["items"]], [ids[4]])
        odd = [j["id"] for j in self.daemon.get("/v1/jobs?label=parity:1")["items"]]
        self.assertEqual(odd, [ids[5], ids[3], ids[1]])
        for job_id in ids:
            self.daemon.wait_state(job_id, "succeeded")
        self.assertEqual(len(self.daemon.get("/v1/jobs?state=succeeded")["items"]), 7)
        self.assertEqual(self.daemon.get("/v1/jobs?state=failed")["items"], [])

    def test_a_key_makes_a_repeated_submission_the_same(self):
        key = {"Idempotency-Key": "tonight"}
        first = self.daemon.submit(SPEC, key)
        status, again = self.daemon.api("POST", "/v1/jobs", SPEC, key)
        self.assertIn(status, (200, 201))
        self.assertEqual(again["id"], first["id"])
        self.daemon.restart()
        self.assertEqual(self.daemon.api("POST", "/v1/jobs", SPEC, key)[1]["id"], first["id"])
        self.assert_problem(self.daemon.api("POST", "/v1/jobs", {**SPEC, "name": "other"}, key), 422)
        self.assertEqual(len(self.daemon.get("/v1/jobs")["items"]), 1)
        self.assertNotEqual(self.daemon.submit(SPEC)["id"], first["id"])

    def test_what_was_rendered_is_what_is_submitted(self):
        rendered = self.daemon.api("POST", "/v1/jobs/render", SPEC)[1]
        self.assertIn("render_hash", rendered)
        self.assertEqual(self.daemon.get("/v1/jobs")["items"], [], "rendering submits nothing")
        wrong = {"If-Match": '"0000"'}
        self.assert_problem(self.daemon.api("POST", "/v1/jobs", SPEC, wrong), 412)
        job = self.daemon.submit(SPEC, {"If-Match": f'"{rendered["render_hash"]}"'})
        self.daemon.wait_state(job["id"], "succeeded")
        changed = {**SPEC, "environment": {"A": "b"}}
        self.assertNotEqual(self.daemon.api("POST", "/v1/jobs/render", changed)[1]["render_hash"],
                            rendered["render_hash"])

    def test_the_rendered_environment_has_the_names_of_the_real_one(self):
        for framework, nodes in (("command", 1), ("pytorch", 2), ("jax", 1)):
            with self.subTest(framework=framework, nodes=nodes):
                spec = {"name": "names", "framework": framework, "command": ["/usr/bin/env"],
                        "resources": {"nodes": nodes}, "environment": {"X_PORT": "0"}}
                rendered = self.daemon.api("POST", "/v1/jobs/render", spec)[1]["environment"]
                job = self.daemon.submit(spec)
                self.daemon.wait_state(job["id"], "succeeded")
                lines = self.daemon.text(f"/v1/jobs/{job['id']}/logs?rank=0").splitlines()
                real = {found[1] for line in lines if (found := re.match(r"([A-Za-z_]\w*)=", line))}
                self.assertIn("LOCKSTEP_RANK", real)
                self.assertEqual(rendered["X_PORT"], "0")
                # The node's own: what lockstepd had, whose child the agent is, its GPUs and the way past its proxy.
                nodes_own = {*self.daemon.environment(), "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "no_proxy", "NO_PROXY"}
                self.assertEqual(sorted(real - set(rendered) - nodes_own), [])
                # It may have no port of RDMA.
                self.assertEqual(sorted(set(rendered) - real - {"NCCL_IB_HCA"}), [])

    def test_the_spec_is_given_back_complete(self):
        job = self.finished_job()
        spec = self.daemon.get(f"/v1/jobs/{job['id']}/spec")
        self.assertEqual(spec["command"], ["/bin/true"])
        self.assertEqual(spec["resources"]["nodes"], 1, "defaults are filled in")
        self.daemon.wait_state(self.daemon.submit(spec)["id"], "succeeded")

    def test_events_tell_the_story_in_order_and_from_any_place(self):
        job = self.finished_job()
        events = self.daemon.events(job["id"])
        kinds = [event["kind"] for event in events]
        self.assertEqual(kinds[0], "submitted")
        self.assertEqual(kinds[-1], "finished")
        for earlier, later in (("attempt_created", "attempt_placed"), ("attempt_placed", "generation_started"),
                               ("generation_started", "ranks_started"), ("ranks_started", "rank_exited")):
            self.assertLess(kinds.index(earlier), kinds.index(later))
        seqs = [event["seq"] for event in events]
        self.assertEqual(seqs, sorted(set(seqs)))
        self.assertEqual(self.daemon.events(job["id"], seqs[2]), events[3:])
        self.assertNotIn("ticket", json.dumps(events))

    def test_the_stream_resumes_after_the_last_event_seen(self):
        stream = self.daemon.stream("/v1/events?topics=jobs")
        job = self.daemon.submit(SPEC)
        first = []
        for message in stream:
            first.append(message)
            if len(first) == 3:
                break
        stream.close()
        self.daemon.wait_state(job["id"], "succeeded")
        self.daemon.restart()
        rest = []
        stream = self.daemon.stream("/v1/events?topics=jobs", {"Last-Event-ID": first[-1]["id"]})
        for message in stream:
            rest.append(message)
            if message["event"] == "finished":
                break
        stream.close()
        streamed = [int(message["id"]) for message in first + rest]
        stored = [event["seq"] for event in self.daemon.events(job["id"])]
        self.assertEqual(streamed, stored, "nothing is missing and nothing comes twice")
        self.assertEqual(json.loads(rest[-1]["data"])["kind"], "finished")

    def test_a_live_stream_carries_the_ranks(self):
        folder = self.root / "gate"
        folder.mkdir()
        (folder / "go").touch()
        job = self.daemon.submit(harness.python_job("live", "gated_steps.py", folder, 200, 1))
        stream = self.daemon.stream(f"/v1/events?topics=ranks.{job['id']},job.{job['id']}")
        seen = set()
        for message in stream:
            seen.add(message["event"])
            if "ranks" in seen or message["event"] == "finished":
                break
        stream.close()
        self.assertIn("ranks", seen)

    def test_the_description_names_every_route(self):
        openapi = self.daemon.get("/openapi.json")
        self.assertTrue(openapi["openapi"].startswith("3.1"))
        for path in ("/v1/jobs", "/v1/jobs/{id}", "/v1/jobs/{id}/series", "/v1/jobs/{id}/logs", "/v1/events"):
            self.assertIn(path, openapi["paths"])

    def test_health_and_readiness(self):
        for path in ("/healthz", "/readyz"):
            self.assertEqual(self.daemon.request("GET", path, headers={"Authorization": None})[0], 200, path)


class Access(harness.TestCase):
    def test_no_token_and_a_wrong_token_are_refused_everywhere(self):
        for token in (None, "Bearer wrong", "Basic dXNlcjpwYXNz"):
            for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/v1/events"),
                                 ("GET", "/v1/whoami"),
                                 ("POST", "/v1/jobs/ls-00000000000000000000000000/cancel")):
                body = SPEC if method == "POST" else None
                status, headers, data = self.daemon.request(method, path, body, {"Authorization": token})
                self.assertEqual(status, 401, (method, path, token))
                self.assertTrue(headers["WWW-Authenticate"].startswith("Bearer"))
                self.assert_problem((status, json.loads(data)), 401)
        self.assertEqual(self.daemon.get("/v1/jobs")["items"], [])

    def test_another_site_may_not_submit_through_a_browser(self):
        answer = self.daemon.api("POST", "/v1/jobs", SPEC, {"Origin": "https://elsewhere.example"})
        self.assert_problem(answer, 403)
        self.assertEqual(self.daemon.get("/v1/jobs")["items"], [])

    def test_another_host_name_is_not_this_service(self):
        self.assert_problem(self.daemon.api("GET", "/v1/jobs", headers={"Host": "rebound.example"}), 421)

    def test_the_token_file_is_for_its_owner_only(self):
        self.assertEqual((self.daemon.data / "token").stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.daemon.data.stat().st_mode & 0o077, 0)

    def test_environment_values_are_not_logged(self):
        job = self.daemon.submit({**SPEC, "environment": {"MY_KEY": "s3cret-value"}})
        self.daemon.wait_state(job["id"], "succeeded")
        self.assertNotIn("s3cret-value", self.daemon.log.read_text())
        for log in (self.daemon.data / "runs").glob("**/*.log"):
            self.assertNotIn("s3cret-value", log.read_text(errors="replace"))


if __name__ == "__main__":
    harness.main()
