"""What a person at the command line is told of jobs with real ranks: hangs, restarts and waiting in follow
and top, and jobs by their short names."""

import json
import os
import re
import subprocess
import threading
import time

import harness
import test_top
from harness import BIN, wait_until

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
UP = re.compile(r"\x1b\[\d+A\r+")


class Written:
    """Everything that follow has written to a terminal; `frames` are its views, without colours."""

    def __init__(self, columns, rows):
        self.raw = b""

    def resize(self, columns, rows):
        pass

    def feed(self, data):
        self.raw += data

    def text(self):
        return COLOURS.sub("", self.raw.decode(errors="ignore"))

    def frames(self):
        """A view is lines whose rest is cleared; then what is left of a longer one is."""
        found = []
        for piece in self.text().split("\x1b[J")[:-1]:
            lines = [line.rstrip("\r") for line in UP.sub("", piece).split("\n")]
            found.append([line.removesuffix("\x1b[K") for line in lines if line.endswith("\x1b[K")])
        return [frame for frame in found if frame]


class Terminals(harness.TestCase):
    def environment(self):
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "LC_", "LANG", "NO_"))}
        return {**keep, "LOCKSTEP_URL": self.daemon.url, "LOCKSTEP_TOKEN": self.daemon.token, "TERM": "xterm",
                "LC_ALL": "C.UTF-8"}

    def terminal(self, *arguments, screen=Written, **size):
        terminal = test_top.Terminal([BIN / "lockstep", *arguments], self.environment(), screen=screen, **size)
        self.addCleanup(terminal.close)
        return terminal

    def pipe(self, *arguments):
        """A command with its output in a pipe, read as it comes."""
        process = subprocess.Popen([BIN / "lockstep", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, env=self.environment())
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(iter(process.stdout.readline, "")), daemon=True)
        reader.start()

        def end():
            if process.poll() is None:
                process.kill()
            process.wait()
            reader.join(10)
            process.stdout.close()
        self.addCleanup(end)
        return process, lines

    def says(self, lines, *texts):
        try:
            return wait_until(lambda: all(text in "".join(lines) for text in texts) and "".join(lines), 30, texts)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{''.join(lines)}") from None

    def shows(self, terminal, *texts):
        """The newest view of follow, once it has all of these."""
        def newest():
            frames = terminal.screen.frames()
            return frames[-1] if frames and all(text in "\n".join(frames[-1]) for text in texts) else None
        try:
            return wait_until(newest, 30, f"the view shows {texts}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{terminal.screen.text()[-4000:]}") from None


class Hang(Terminals):
    """Rank 1 of three stands still at step 10, and nobody has asked for it to be ended."""

    SCRIPT = ("import os, time\n"
              "def load():\n    while not os.path.exists('go'): time.sleep(0.5)\n"
              "def reduce():\n    while not os.path.exists('go'): time.sleep(0.5)\n"
              "for step in range(1, 100000):\n"
              "    if step == 10:\n"
              "        load() if os.environ['RANK'] == '1' else reduce()\n"
              "    loss = 'nan' if os.path.exists('nan-' + os.environ['RANK']) else f'{1 / step:.4f}'\n"
              "    print(f'step {step} loss {loss}', flush=True)\n"
              "    if os.path.exists('end'):\n        break\n"
              "    time.sleep(0.05)\n")

    def test_it_is_told_wherever_somebody_looks(self):
        (self.root / "train.py").write_text(self.SCRIPT)
        job = self.daemon.submit(harness.command_job(
            "stands", harness.PYTHON, self.root / "train.py", working_directory=str(self.root),
            watch={"hang_seconds": 10}, resources={"nodes": 1, "ranks_per_node": 3}))["id"]
        stream = self.daemon.stream(f"/v1/events?topics=job.{job}", {"Last-Event-ID": "0"}, seconds=60)
        self.addCleanup(stream.close)
        followed, said = self.pipe("follow", job)
        follow = self.terminal("follow", job)
        top = self.terminal("top", job, "--interval", "0.2", screen=test_top.Emulator, columns=160)
        what = "rank 1 alone is in train.py:3 load"

        hangs = (json.loads(message["data"]) for message in stream if message["event"] == "anomaly")
        hangs = (event for event in hangs if event["data"]["anomaly"] == "hang")
        told = next(hangs)
        self.assertEqual((told["kind"], told["rank"], told["data"].get("over", False)), ("anomaly", 1, False), told)
        self.assertIn(what, told["data"]["message"])
        self.assertRegex(self.says(said, "hang"),
                         rf"(?m)^\d\d:\d\d:\d\d  hang rank 1 on \S+  no rank has made .*{what}")
        wait_until(lambda: "hang rank 1 on " in follow.screen.text() and what in follow.screen.text(), 30,
                   "follow tells it on a terminal")
        shown = top.shows("hang  rank 1", "no rank has made a step")
        self.assertRegex(shown, r"(?m)^! +1 .* hang$")
        # Who begins to look while it lasts is told, too.
        _, later = self.pipe("follow", job)
        self.says(later, what)
        self.shows(self.terminal("follow", job), "HANGS")
        self.assertIn("hang  rank 1", self.daemon.cli("top", job).stdout)
        self.assertEqual(self.daemon.job(job)["state"], "running", "nothing is ended")

        (self.root / "go").touch()
        self.says(said, "the ranks make steps again")
        top.shows("the ranks make steps again")
        over = next(hangs)
        self.assertTrue(over["data"]["over"], over)
        wait_until(lambda: not re.search(r"(?m)^! +1 .* hang$", top.text()), 30, "the rank is not marked any more")
        (self.root / "nan-2").touch()
        top.shows("nonfinite  rank 2")
        (self.root / "end").touch()
        self.assertEqual(followed.wait(180), 0)
        self.daemon.wait_state(job, "succeeded")


class Follow(Terminals):
    DAEMON_ARGUMENTS = ("--local-memory-mb", "1000", "--shared-account")

    def spec_file(self, spec):
        path = self.root / "job.json"
        path.write_text(json.dumps(spec))
        return path

    def test_a_restart_is_told_in_a_pipe(self):
        spec = harness.python_job("restarts", "fail_once.py", self.root, 60, 1, 23, "exit", recovery={},
                                  resources={"nodes": 1, "ranks_per_node": 2})
        process, lines = self.pipe("submit", "--follow", self.spec_file(spec))
        self.assertEqual(process.wait(60 * harness.PATIENCE), 0, lines)
        said = self.says(lines, "succeeded after")
        told = [r"rank 1 on \S+ exited with code 3", r"generation 1 ended  rank_exit: .*",
                r"generation 2 starts from step 20"]
        found = [re.findall(rf"(?m)^\d\d:\d\d:\d\d  ({text})$", said) for text in told]
        self.assertEqual([len(one) for one in found], [1, 1, 1], said)
        order = [said.index(one[0]) for one in found] + [said.index("succeeded after")]
        self.assertEqual(order, sorted(order), said)
        self.assertRegex(said, r"step 60/60 \(100 %\)  loss 0\.0167 0\.0167")
        self.assertNotIn("\x1b", said)

    def test_on_a_terminal_of_another_width_it_is_drawn_anew(self):
        name = "wide-" * 12 + "name"  # its id does not fit beside it in 100 columns
        job = self.daemon.submit(harness.python_job(name, "gated_steps.py", self.root, 60, 41,
                                                    resources={"nodes": 1, "ranks_per_node": 2}))["id"]
        follow = self.terminal("follow", job, columns=100)
        self.shows(follow, "running", "40/60", "loss so far")

        def drawn(since, width, *texts):
            """The number of the first view since then that has these and is no wider."""
            def look():
                for number, frame in enumerate(follow.screen.frames()[since:], since):
                    if max(map(len, frame)) <= width and all(text in "\n".join(frame) for text in texts):
                        return number + 1
                return None
            return wait_until(look, 30, f"it is drawn in {width} columns")

        before = len(follow.screen.frames())
        follow.resize(40, 24)
        narrow = drawn(before, 40, "40/60")
        drawn(narrow + 2, 40)
        follow.resize(140, 24)
        wide = drawn(narrow, 140, job)
        follow.resize(20, 8)
        small = drawn(wide, 20)
        (self.root / "go").touch()
        self.assertEqual(follow.ended(60), 0)
        wait_until(lambda: "succeeded after" in follow.screen.text(), 10, "the end is read")
        frames = follow.screen.frames()
        for first, last, width in ((0, before, 100), (narrow, wide - 1, 40), (wide, small - 1, 140), (small, None, 20)):
            for frame in frames[first:last]:
                self.assertLessEqual(max(map(len, frame)), width, frame)
        self.assertTrue(all(len(frame) < 8 for frame in frames[small:]), "no higher than the terminal")

    def test_a_job_in_the_queue_has_a_clock(self):
        def holder(name, *command):
            return harness.command_job(name, *command, resources={"memory_mb_per_node": 600})
        first = self.daemon.submit(holder("first", "/bin/sleep", "1000"))["id"]
        self.daemon.wait_state(first, "running")
        process, lines = self.pipe("submit", "--follow", self.spec_file(holder("second", "/bin/echo", "hello")))
        self.says(lines, "pending: ")
        job = next(one["id"] for one in self.daemon.get("/v1/jobs")["items"] if one["name"] == "second")
        follow = self.terminal("follow", job)
        head = re.compile(r"second  queued for (\d\d:\d\d:\d\d)")
        clocks = []

        def ticks():
            clocks[:] = [found.group(1) for frame in follow.screen.frames() if (found := head.match(frame[0]))]
            return len(set(clocks)) >= 3
        wait_until(ticks, 30, "the clock goes on")
        self.assertEqual(clocks, sorted(clocks))
        self.assertRegex(self.shows(follow, "pending: ")[1], "pending: .*memory")
        self.assertRegex("".join(lines), r"(?m)^\d\d:\d\d:\d\d  queued  pending: .*memory")
        self.daemon.cli("cancel", "first")
        self.assertEqual((process.wait(60 * harness.PATIENCE), follow.ended(60)), (0, 0))
        self.says(lines, "succeeded after")


class Names(Terminals):
    DAEMON_ARGUMENTS = ("--shared-account",)

    def submit(self, name, headers=None):
        return self.daemon.submit(harness.command_job(name, "/bin/sleep", "1000"), headers)["id"]

    def test_a_job_is_named_by_last_a_line_a_part_or_its_name(self):
        ids = [self.submit(name) for name in ("one", "two", "three", "three")]
        status, token = self.daemon.api("POST", "/v1/tokens", {"name": "hers", "user": "eve", "role": "user"})
        self.assertEqual(status, 201, token)
        eves = self.submit("hers", {"Authorization": "Bearer " + token["token"]})
        shared = os.path.commonprefix([*ids, eves])

        def named(text):
            return json.loads(self.daemon.cli("show", text, "--json").stdout)["id"]
        self.assertEqual(named("last"), ids[3], "the caller's own newest")
        self.assertEqual([named(f"@{line}") for line in range(1, 6)], [eves, *ids[::-1]])
        self.assertEqual(named("two"), ids[1])
        self.assertEqual(named(ids[2][-8:].lower()), ids[2])
        self.assertEqual(named("…" + ids[0][-8:]), ids[0])
        newest = self.daemon.cli("show", "three", "--json")
        self.assertEqual(json.loads(newest.stdout)["id"], ids[3])
        self.assertIn("the newest of 2 jobs", newest.stderr)
        # As a terminal lists them, so they are taken.
        listed = self.terminal("jobs")
        self.assertEqual(listed.ended(), 0)
        short = wait_until(lambda: re.findall(r"(?m)^\s*@\d+ +(…\w+) ", listed.screen.text()), 10, "jobs are listed")
        self.assertEqual([named(one) for one in short], [eves, *ids[::-1]])

        for text, verb, candidates in ((shared, "show", [*ids, eves]), ("three", "cancel", ids[2:])):
            refused = self.daemon.cli(verb, text, check=False)
            self.assertNotEqual(refused.returncode, 0)
            for one in candidates[-4:]:
                self.assertIn(one, refused.stderr)
        self.assertNotEqual(self.daemon.cli("show", "@6", check=False).returncode, 0)
        for one in ids[2:]:
            self.assertFalse([event for event in self.daemon.events(one) if "cancel" in event["kind"]], "nobody is cancelled")
            self.assertNotIn(self.daemon.job(one)["state"], harness.FINAL)
        self.daemon.cli("cancel", "last")
        self.daemon.wait_state(ids[3], "cancelled")
        self.daemon.cli("cancel", "three")
        self.daemon.wait_state(ids[2], "cancelled")


if __name__ == "__main__":
    harness.main()
