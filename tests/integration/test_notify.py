"""`notify` of a job: webhooks to a real HTTP server and mail through a program in place of sendmail, also when
the receiver is down and lockstepd is killed between."""

import http.server
import json
import pathlib
import stat
import tempfile
import threading

import harness
from harness import FINAL, wait_until

# The words it was given, an empty line, and the message; under its final name once it is whole.
SENDMAIL = """#!/bin/sh
file=$(mktemp {folder}/new.XXXXXX) || exit 75
{{ printf '%s\\n' "$@"; echo; cat; }} > "$file" && mv "$file" "$file.mail"
"""


class Receiver:
    """Keeps what it is sent; answers with the next of `answers`, then with 200."""

    def __init__(self, *answers):
        self.requests = []
        left = list(answers)
        lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with lock:
                    status = left.pop(0) if left else 200
                    outer.requests.append((self.path, dict(self.headers), json.loads(body)))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def target(self):
        return f"webhook:http://127.0.0.1:{self.server.server_address[1]}/hook?key=secret"

    def wait_for(self, count):
        return wait_until(lambda: len(self.requests) >= count and self.requests, 30, f"{count} requests come")

    def events(self):
        return [body["event"] for _, _, body in self.requests]

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Notify(harness.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lockstep-mail-")
        self.addCleanup(folder.cleanup)
        self.mails = pathlib.Path(folder.name)
        sendmail = self.mails / "sendmail"
        sendmail.write_text(SENDMAIL.format(folder=self.mails))
        sendmail.chmod(sendmail.stat().st_mode | stat.S_IXUSR)
        self.DAEMON_ARGUMENTS = ("--notify-hosts", "127.0.0.1", "--sendmail", str(sendmail))
        super().setUp()

    def receiver(self, *answers):
        receiver = Receiver(*answers)
        self.addCleanup(receiver.close)
        return receiver

    def ended(self, notify, *command, **fields):
        job = self.daemon.submit(harness.command_job("told", *command, notify=notify, **fields))
        return self.daemon.wait_state(job["id"], FINAL)

    def metric(self, kind, result):
        name = f'lockstep_notices_total{{kind="{kind}",result="{result}"}} '
        lines = [line for line in self.daemon.text("/metrics").splitlines() if line.startswith(name)]
        self.assertEqual(len(lines), 1, name)
        return float(lines[0].removeprefix(name))

    def test_a_notice_outlives_a_receiver_that_fails_and_a_daemon_that_is_killed(self):
        receiver = self.receiver(500)
        job = self.ended([receiver.target], "false")
        self.assertEqual(job["state"], "failed")
        receiver.wait_for(1)
        self.daemon.restart()
        receiver.wait_for(2)
        (path, headers, first), (_, again, second) = receiver.requests
        self.assertEqual(path, "/hook?key=secret")
        self.assertEqual(headers["Content-Type"], "application/json")
        self.assertRegex(headers["Idempotency-Key"], rf"^{job['id']}-\d+$")
        self.assertEqual(again["Idempotency-Key"], headers["Idempotency-Key"])
        self.assertEqual(first["event"], "failed")
        self.assertEqual(first["job"]["id"], job["id"])
        self.assertEqual(first["job"]["name"], "told")
        self.assertEqual(first["job"]["state"], "failed")
        self.assertEqual(first["job"]["cause"]["class"], job["cause"]["class"])
        self.assertIn(job["id"], first["text"])
        self.assertTrue(second["url"].endswith(f"/#/jobs/{job['id']}"), second["url"])
        # The daemon's port is another one now; all else is as it was.
        first.pop("url"), second.pop("url")
        self.assertEqual(first, second)
        wait_until(lambda: self.metric("webhook", "delivered") == 1, 10, "it is counted")
        # It is gone from the store, which an orderly end waits for: only the next job's comes.
        self.assertEqual(self.daemon.stop(), 0)
        self.daemon.start()
        other = self.ended([receiver.target], "true")
        receiver.wait_for(3)
        self.assertEqual([body["job"]["id"] for _, _, body in receiver.requests], [job["id"], job["id"], other["id"]])
        self.assertEqual(receiver.events(), ["failed", "failed", "succeeded"])

    def test_a_restart_is_told_before_the_end(self):
        receiver = self.receiver()
        job = self.ended([receiver.target], "sh", "-c", "test $LOCKSTEP_GENERATION -gt 1", recovery={"max_restarts": 1})
        self.assertEqual(job["state"], "succeeded")
        receiver.wait_for(2)
        self.assertEqual(sorted(receiver.events()), ["restarting", "succeeded"])
        told = next(body for _, _, body in receiver.requests if body["event"] == "restarting")
        self.assertEqual(told["job"]["cause"]["class"], "rank_exit")

    def test_mail_goes_to_the_user_and_to_others(self):
        job = self.ended(["mail", "mail:team@example.org"], "sh", "-c", "echo the last words; exit 3")
        self.assertEqual(job["state"], "failed")
        mails = wait_until(lambda: len(found := sorted(self.mails.glob("*.mail"))) == 2 and found, 30, "two mails come")
        texts = [mail.read_text() for mail in mails]
        for to in (job["user"], "team@example.org"):
            text = next((one for one in texts if one.startswith(f"-i\n--\n{to}\n\n")), None)
            self.assertIsNotNone(text, texts)
            self.assertIn(f"\nTo: {to}\nSubject: [lockstep] told has failed\n", text)
            self.assertIn("the last words", text)
            self.assertIn(f"lockstep show {job['id']}", text)

    def test_the_command_line_asks_for_it(self):
        receiver = self.receiver()
        self.daemon.cli("run", "--detach", "--name", "told", "--notify", receiver.target, "--notify", "mail", "--", "true")
        ((_, _, body),) = receiver.wait_for(1)
        self.assertEqual((body["event"], body["job"]["name"]), ("succeeded", "told"))
        wait_until(lambda: list(self.mails.glob("*.mail")), 30, "the mail comes")

    def test_others_than_the_owner_see_no_path(self):
        receiver = self.receiver()
        job = self.ended([receiver.target], "true")
        self.assertEqual(self.daemon.get(f"/v1/jobs/{job['id']}/spec")["notify"], [receiver.target])
        self.assertNotIn("key=secret", json.dumps(self.daemon.events(job["id"])))
        self.assertNotIn("key=secret", self.daemon.log.read_text())

    def test_what_cannot_be_sent_is_refused_by_its_place(self):
        spec = harness.command_job("told", "true", notify=["mail", "webhook:https://example.org/"])
        self.assert_problem(self.daemon.api("POST", "/v1/jobs", spec), 400, "/notify/1", "--notify-hosts")
        spec["notify"] = ["mail:-oQ/tmp"]
        self.assert_problem(self.daemon.api("POST", "/v1/jobs", spec), 400, "/notify/0")


class Refused(harness.TestCase):
    DAEMON_ARGUMENTS = ("--sendmail", "none")

    def test_this_machine_is_no_receiver_unless_somebody_says_so(self):
        for url in ("http://127.0.0.1:1/", "http://localhost:1/", "http://[::1]:1/", "http://169.254.169.254/latest"):
            spec = harness.command_job("told", "true", notify=[f"webhook:{url}"])
            self.assert_problem(self.daemon.api("POST", "/v1/jobs", spec), 400, "/notify/0", "--notify-hosts")

    def test_without_sendmail_there_is_no_mail(self):
        spec = harness.command_job("told", "true", notify=["mail"])
        self.assert_problem(self.daemon.api("POST", "/v1/jobs", spec), 400, "/notify/0", "--sendmail")


if __name__ == "__main__":
    harness.main()
