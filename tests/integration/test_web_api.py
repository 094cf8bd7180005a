"""What the web page asks of lockstepd: the page itself, signing in and out, charts, search, streams."""

import base64
import gzip
import json
import os
import re
import stat
import subprocess
import urllib.parse

import harness


class Web(harness.TestCase):
    """A browser, as far as HTTP goes: it keeps the cookie that it was given."""

    cookie = None

    def browser(self, method, path, body=None, **headers):
        """(status, headers, bytes) without a token, with the cookie if there is one."""
        headers = {"Authorization": None, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if self.cookie:
            headers.setdefault("Cookie", self.cookie)
        return self.daemon.request(method, path, body, headers)

    def sign_in(self, **body):
        status, headers, data = self.browser("POST", "/v1/session", body, X_Lockstep_Request="1")
        self.assertEqual(status, 200, data)
        line = headers["Set-Cookie"]
        self.cookie = line.split(";")[0]
        return json.loads(data), line

    def code(self, token=None):
        extra = {"Authorization": f"Bearer {token}"} if token else None
        status, made = self.daemon.api("POST", "/v1/session/codes", headers=extra)
        self.assertEqual(status, 201, made)
        return made["code"]


class Page(Web):
    def setUp(self):
        super().setUp()
        self.folder = self.root / "web"
        (self.folder / "assets").mkdir(parents=True)
        (self.folder / "index.html").write_text("<!doctype html><title>dev</title>")
        (self.folder / "assets" / "app-1.js").write_text("let x = 1;")
        (self.root / "secret.js").write_text("secret")
        (self.folder / "assets" / "link.js").symlink_to(self.root / "secret.js")

    def test_the_page_or_that_there_is_none(self):
        status, headers, body = self.browser("GET", "/")
        self.assertEqual(status, 200)
        self.assertIn(b"<title>", body)
        self.assertTrue(headers["Content-Type"].startswith("text/html"))
        policy = headers["Content-Security-Policy"]
        for part in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'",
                     "require-trusted-types-for 'script'"):
            self.assertIn(part, policy)
        self.assertNotIn("unsafe", policy)
        if "ETag" not in headers:
            self.assertIn(b"without its web page", body)
            return
        self.assertEqual(headers["Cache-Control"], "no-cache")
        self.assertEqual(self.browser("GET", "/", If_None_Match=headers["ETag"])[0], 304)
        packed = self.browser("GET", "/", Accept_Encoding="gzip")
        self.assertEqual(gzip.decompress(packed[2]), body)
        self.assertNotEqual(packed[1]["ETag"], headers["ETag"])
        # What the page asks for is there, under relative addresses, and may be kept for ever.
        assets = re.findall(rb'(?:src|href)="(assets/[^"]+)"', body)
        self.assertTrue(assets, body)
        for asset in assets:
            status, headers, _ = self.browser("GET", "/" + asset.decode())
            self.assertEqual(status, 200, asset)
            self.assertIn("immutable", headers["Cache-Control"])

    def test_a_folder_takes_its_place(self):
        self.daemon.stop()
        self.daemon.arguments = ("--web-root", self.folder)
        self.daemon.start()
        self.assertIn(b"dev", self.browser("GET", "/")[2])
        (self.folder / "index.html").write_text("changed")
        self.assertEqual(self.browser("GET", "/")[2], b"changed")
        self.assertEqual(self.browser("GET", "/assets/app-1.js")[2], b"let x = 1;")
        for path in ("/assets/none.js", "/assets/.hidden", "/assets/..", "/assets/%2e%2e"):
            self.assertIn(self.browser("GET", path)[0], (400, 404), path)
        self.assertNotIn(b"secret", self.browser("GET", "/assets/link.js")[2])


class Sessions(Web):
    def test_a_code_signs_in_once_and_signing_out_ends_it(self):
        self.assertEqual(self.browser("GET", "/v1/whoami")[0], 401)
        code = self.code()
        who, line = self.sign_in(code=code)
        self.assertEqual(who["role"], "admin")
        for word in ("HttpOnly", "SameSite=Strict", "Max-Age="):
            self.assertIn(word, line)
        self.assertEqual(self.browser("POST", "/v1/session", {"code": code}, X_Lockstep_Request="1")[0], 401)
        self.assertEqual(json.loads(self.browser("GET", "/v1/whoami")[2])["session"], who["session"])
        spec = harness.command_job("a", "true")
        self.assertEqual(self.browser("POST", "/v1/jobs", spec)[0], 403)
        own = f"http://{urllib.parse.urlsplit(self.daemon.url).netloc}"
        self.assertEqual(self.browser("POST", "/v1/jobs", spec, X_Lockstep_Request="1",
                                      Origin="http://evil.example")[0], 403)
        self.assertEqual(self.browser("POST", "/v1/jobs", spec, X_Lockstep_Request="1", Origin=own)[0], 201)
        self.daemon.restart()
        # Another port, another cookie of the same value: browsers know cookies by their host alone.
        port = urllib.parse.urlsplit(self.daemon.url).port
        self.cookie = f"lockstep_session_{port}={self.cookie.split('=')[1]}"
        self.assertEqual(self.browser("GET", "/v1/whoami")[0], 200, "a restart signs nobody out")
        self.assertEqual(self.browser("DELETE", "/v1/session")[0], 403)
        status, headers, _ = self.browser("DELETE", "/v1/session", X_Lockstep_Request="1")
        self.assertEqual(status, 204)
        self.assertIn("Max-Age=0", headers["Set-Cookie"])
        self.assertEqual(self.browser("GET", "/v1/whoami")[0], 401)

    def test_a_session_is_its_token_and_no_more(self):
        status, made = self.daemon.api("POST", "/v1/tokens", {"name": "v", "user": "vic", "role": "viewer"})
        self.assertEqual(status, 201)
        job = self.daemon.submit(harness.command_job("sleeper", "/bin/sleep", "600"))
        self.sign_in(code=self.code(made["token"]))
        self.assertEqual(self.browser("GET", f"/v1/jobs/{job['id']}")[0], 200)
        self.assertEqual(self.browser("POST", f"/v1/jobs/{job['id']}/cancel", X_Lockstep_Request="1")[0], 403)
        stream = self.daemon.stream("/v1/events", {"Authorization": None, "Cookie": self.cookie})
        self.assertEqual(self.daemon.api("DELETE", f"/v1/tokens/{made['id']}")[0], 204)
        self.assertEqual(self.browser("GET", f"/v1/jobs/{job['id']}")[0], 401)
        for _ in stream:
            pass  # until it ends, as it does with the token; a silence of 30 s is an error

    def test_the_event_stream_takes_the_cookie(self):
        self.sign_in(token=self.daemon.token)
        stream = self.daemon.stream("/v1/events?topics=jobs", {"Authorization": None, "Cookie": self.cookie})
        job = self.daemon.submit(harness.command_job("a", "true"))
        self.assertIn(job["id"], next(iter(stream))["data"])
        stream.close()
        self.assertEqual(self.browser("GET", "/v1/events", Cookie="lockstep_session=x")[0], 401)

    def lockstep_open(self, *arguments, **environment):
        plain = {k: v for k, v in os.environ.items()
                 if not k.startswith("LOCKSTEP_") and k not in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")}
        return subprocess.run([harness.BIN / "lockstep", "open", *arguments], text=True, capture_output=True,
                              timeout=30, check=False, env={
                                  **plain, "LOCKSTEP_URL": self.daemon.url, "LOCKSTEP_TOKEN": self.daemon.token,
                                  "XDG_RUNTIME_DIR": str(self.root / "run"), **environment})

    def signs_in(self, url, job=None):
        page, _, fragment = url.partition("#")
        self.assertEqual(page, self.daemon.url + "/")
        path, _, query = fragment.partition("?")
        self.assertEqual(path, "/signin")
        fields = dict(urllib.parse.parse_qsl(query))
        if job:
            self.assertEqual(fields["next"], f"/jobs/{job}")
        self.assertEqual(self.sign_in(code=fields["code"])[0]["role"], "admin")

    def test_lockstep_open_prints_where_there_is_no_browser(self):
        job = self.daemon.submit(harness.command_job("named", "true"))
        done = self.lockstep_open("named")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.signs_in(done.stdout.strip(), job["id"])
        self.signs_in(self.lockstep_open("--print", DISPLAY=":0").stdout.strip())
        self.assertEqual(self.lockstep_open("nothing-like-it").returncode, 3)

    def test_lockstep_open_gives_the_browser_no_secret_as_an_argument(self):
        seen = self.root / "seen"
        browser = self.root / "browser"
        browser.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {seen}.new && mv {seen}.new {seen}\n')
        browser.chmod(0o755)
        done = self.lockstep_open(BROWSER=f"{browser} --new %s:other")
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        self.assertIn("nothing opened? lockstep open --print\n", done.stderr)  # it may not be able to read the file
        harness.wait_until(seen.exists, 20, "the browser is started")
        option, address = seen.read_text().split()
        self.assertEqual(option, "--new")
        self.assertNotIn("code", address)
        file = urllib.parse.urlsplit(address).path
        self.assertEqual(stat.S_IMODE(os.stat(file).st_mode), 0o600)
        with open(file, encoding="utf-8") as page:
            text = page.read()
        self.signs_in(text.split('href="')[1].split('"')[0].replace("&amp;", "&"))


class Charts(Web):
    """Real ranks, of which rank 5 is slow."""

    # Fewer than the steps that a watcher waits for a slow rank: they are made in no time.
    STEPS, SLOW, WORLD = 24, 5, 6

    def start(self, name="uneven"):
        self.gate = self.root / "gate"
        return self.daemon.submit(harness.python_job(
            name, "uneven_steps.py", self.STEPS, self.SLOW, self.gate,
            resources={"nodes": 2, "ranks_per_node": self.WORLD // 2}))["id"]

    def test_all_ranks_in_one_answer_while_they_run_and_afterwards(self):
        job = self.start()
        path = f"/v1/jobs/{job}/series?metric=busy_seconds,loss&ranks=all&stat=min,median,max&worst=2"

        def half_way():
            bands = self.daemon.get(path)["items"][0]["bands"]
            return bands["x"] and bands["x"][-1] == self.STEPS // 2 - 1 and bands["count"][-1] == self.WORLD

        harness.wait_until(half_way, 60, "all ranks are half way")
        self.gate.touch()
        self.daemon.wait_state(job, "succeeded")
        harness.wait_until(lambda: len(self.daemon.get(path)["items"][0]["bands"]["x"]) == self.STEPS, 20, "all is in")
        busy, loss = self.daemon.get(path)["items"]
        self.assertEqual((busy["metric"], loss["metric"]), ("busy_seconds", "loss"))
        self.assertEqual(busy["series"], [])
        self.assertEqual(busy["bands"]["count"], [self.WORLD] * self.STEPS)
        self.assertAlmostEqual(busy["bands"]["min"][0], 0.1)
        self.assertAlmostEqual(busy["bands"]["max"][0], 0.2)
        self.assertAlmostEqual(busy["bands"]["median"][0], 0.1025)
        worst = busy["worst"][0]
        self.assertEqual(worst["rank"], self.SLOW)
        self.assertGreater(worst["score"], 6)
        self.assertEqual(worst["node"], self.daemon.get(f"/v1/jobs/{job}/ranks")["items"][self.SLOW]["node"])
        self.assertEqual(len(worst["points"]), self.STEPS)
        for query, pointer in (("stat=min,most", "?stat"), ("worst=65", "?worst"), ("worse=left", "?worse"),
                               ("ranks=some", "?ranks"), ("metric=" + ",".join(["a"] * 17), "?metric")):
            self.assert_problem(self.daemon.api("GET", f"/v1/jobs/{job}/series?{query}"), 400, pointer)

    def test_every_step_of_all_ranks_comes_over_the_event_stream(self):
        job = self.start("watched")
        stream = self.daemon.stream(f"/v1/events?topics=job.{job},steps.{job}.busy_seconds+loss")
        self.addCleanup(stream.close)
        # Both nodes: of steps that are made in no time one node's batch may be all of them.
        harness.wait_until(lambda: {r.get("step") for r in self.daemon.get(f"/v1/jobs/{job}/ranks")["items"]} ==
                           {self.STEPS // 2 - 1}, 60, "the ranks wait")
        self.gate.touch()
        last = {}
        for message in stream:
            if message["event"] == "steps":
                self.assertNotIn("id", message)
                data = json.loads(message["data"])
                self.assertEqual(data["id"], job)
                self.assertGreater(data["step"], last.get(data["metric"], {}).get("step", -1))
                last[data["metric"]] = data
            elif message["event"] == "finished":
                break
        self.assertEqual(set(last), {"busy_seconds", "loss"})
        step = last["busy_seconds"]
        self.assertEqual((step["ranks"], step["count"], step["nonfinite"]), (self.WORLD, self.WORLD, 0))
        cells = base64.b64decode(step["cells"])
        self.assertEqual((len(cells), cells[0], cells[self.SLOW]), (self.WORLD, 1, 254))
        self.assertEqual(step["worst"][0], {"rank": self.SLOW, "value": step["high"]})
        self.assertAlmostEqual(step["quantiles"]["median"], 0.1025, places=5)
        self.assert_problem(self.daemon.api("GET", f"/v1/events?topics=steps.{job}"), 400, "?topics")

    def test_what_the_ranks_printed_is_found_and_folded(self):
        job = self.start("talks")
        self.gate.touch()
        self.daemon.wait_state(job, "succeeded")
        path = f"/v1/jobs/{job}/logs/search"
        found = self.daemon.get(f"{path}?q=connected")
        self.assertEqual(len(found["items"]), 1, found)
        item = found["items"][0]
        self.assertEqual((item["count"], item["ranks"], item["first"]["rank"]), (self.WORLD, f"0-{self.WORLD - 1}", 0))
        self.assertEqual(item["first"]["offset"], 0)
        self.assertIn("time", item["first"])
        self.assertFalse(found["truncated"])
        self.assertEqual(self.daemon.get(f"{path}?q=(?i)WARN.*slow%24&regex=true")["items"][0]["ranks"], str(self.SLOW))
        self.assertEqual(self.daemon.get(f"{path}?q=slow&ranks=0-2")["items"], [])
        self.assert_problem(self.daemon.api("GET", path), 400, "?q")
        self.assert_problem(self.daemon.api("GET", f"{path}?q=(&regex=true"), 400, "?q")
        self.assert_problem(self.daemon.api("GET", f"{path}?q=a&ranks=99"), 404)

    def test_the_nodes_of_a_job(self):
        job = self.start("nodes")
        path = f"/v1/jobs/{job}/nodes"
        harness.wait_until(lambda: [n.get("step") for n in self.daemon.get(path)["items"]] ==
                           [self.STEPS // 2 - 1] * 2, 60, "both nodes are half way")
        first, second = self.daemon.get(path)["items"]
        self.assertEqual((first["ranks"], second["ranks"]), ("0-2", "3-5"))
        self.assertEqual((first["state"], first["ranks_running"], second["node_rank"]), ("running", 3, 1))
        self.assertEqual(first["node"], self.daemon.get(f"/v1/jobs/{job}/ranks")["items"][0]["node"])
        self.assertLess(first["agent_age_seconds"], 10)
        self.gate.touch()
        self.daemon.wait_state(job, "succeeded")
        self.assertEqual([n["state"] for n in self.daemon.get(path)["items"]], ["succeeded"] * 2)

    def test_a_list_that_has_not_changed_is_not_sent_again(self):
        job = self.start("listed")
        self.gate.touch()
        self.daemon.wait_state(job, "succeeded")
        path = "/v1/jobs?fields=id,state,cause"
        status, headers, body = self.daemon.request("GET", path)
        self.assertEqual(json.loads(body), {"items": [{"id": job, "state": "succeeded"}]})
        again = self.daemon.request("GET", path, headers={"If-None-Match": headers["ETag"]})
        self.assertEqual((again[0], again[2]), (304, b""))
        self.daemon.submit(harness.command_job("another", "true"))
        self.assertEqual(self.daemon.request("GET", path, headers={"If-None-Match": headers["ETag"]})[0], 200)
        self.assert_problem(self.daemon.api("GET", "/v1/jobs?fields=id,secret"), 400, "?fields")
        packed = self.daemon.request("GET", "/openapi.json", headers={"Accept-Encoding": "gzip"})
        self.assertEqual(packed[1]["Content-Encoding"], "gzip")
        self.assertEqual(json.loads(gzip.decompress(packed[2])), self.daemon.get("/openapi.json"))


if __name__ == "__main__":
    harness.main()
