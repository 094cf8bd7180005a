"""`lockstep top` and `lockstep series` on a real terminal (a pty), against a real lockstepd and ranks."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading

import harness
from harness import PATIENCE, wait_until

# Each rank is busy for (rank + 1) ms; rank 1's loss is NaN from step 5 on. Ends when the file is there.
SCRIPT = """
step=0
until [ -e {done} ]; do
  loss=0.5
  [ "$RANK" = 1 ] && [ $step -ge 5 ] && loss=nan
  {agent} report step=$step loss=$loss step_seconds=0.01 busy_seconds=0.00$((RANK + 1)) \
    comm_wait_seconds=0.001 data_wait_seconds=0.0005 samples=8
  step=$((step + 1))
  sleep 0.1
done
"""
SEQUENCE = re.compile(rb"\x1b\[([?0-9;]*)([A-Za-z])|\x1b(.)|([\x00-\x1a\x1c-\x1f])|([^\x00-\x1f\x1b]+)")


class Emulator:
    """As much of a terminal as top uses: the two screens, the cursor, erasing. Fails on anything else."""

    def __init__(self, columns, rows):
        self.alternate = False
        self.cursor_shown = True
        self.wraps = True
        self.left = b""  # the beginning of a sequence or a character
        self.normal = ""
        self.resize(columns, rows)

    def resize(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.cells = [[" "] * columns for _ in range(rows)]
        self.at = (0, 0)

    def feed(self, data):
        data = self.left + data
        self.left = b""
        while data:
            found = SEQUENCE.match(data)
            if found is None:
                self.left = data
                return
            parameters, command, _, control, text = found.groups()
            if command is not None:
                self.command(parameters.decode(), command.decode())
            elif control is not None:
                self.control(control)
            elif text is not None:
                whole = text.decode(errors="ignore").encode()
                if len(whole) < len(text) and found.end() == len(data):
                    self.left = text[len(whole):]
                self.write(whole.decode())
            data = data[found.end():]

    def control(self, control):
        if not self.alternate:
            self.normal += control.decode()
        elif control not in (b"\r", b"\n"):
            raise AssertionError(f"control character on the screen: {control!r}")

    def write(self, text):
        if not self.alternate:
            self.normal += text
            return
        row, column = self.at
        for character in text:
            if row < self.rows and column < self.columns:
                self.cells[row][column] = character
            column += 1
        self.at = (row, column)

    def command(self, parameters, command):
        if command == "m":
            return
        if command in "hl" and parameters.startswith("?"):
            on = command == "h"
            mode = {"?1049": "alternate", "?25": "cursor_shown", "?7": "wraps"}[parameters]
            setattr(self, mode, on)
            return
        if command == "H":
            row, column = (int(part or 1) for part in (parameters or "1;1").split(";"))
            self.at = (row - 1, column - 1)
        elif command == "J" and parameters == "2":
            self.cells = [[" "] * self.columns for _ in range(self.rows)]
        elif command == "K" and parameters == "":
            row, column = self.at
            if row < self.rows:
                self.cells[row][column:] = [" "] * (self.columns - column)
        else:
            raise AssertionError(f"unexpected sequence ESC [ {parameters} {command}")

    def text(self):
        return "\n".join("".join(row).rstrip() for row in self.cells)


class Terminal:
    """A pty with a program in it, read by a thread."""

    def __init__(self, arguments, environment, columns=100, rows=24, screen=Emulator):
        self.master, self.slave = pty.openpty()
        self.set_size(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        self.screen = screen(columns, rows)
        self.lock = threading.Lock()
        self.failure = None
        self.process = subprocess.Popen(list(map(str, arguments)), stdin=self.slave, stdout=self.slave,
                                        stderr=self.slave, env=environment, start_new_session=True,
                                        preexec_fn=self.own)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    @staticmethod
    def own():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def set_size(self, columns, rows):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        with contextlib.suppress(OSError):
            while data := os.read(self.master, 65536):
                with self.lock:
                    try:
                        self.screen.feed(data)
                    except (AssertionError, KeyError) as error:
                        self.failure = error
                        return

    def text(self):
        with self.lock:
            if self.failure:
                raise AssertionError(f"what came is no screen: {self.failure!r}")
            return self.screen.text()

    def shows(self, *texts, seconds=15):
        def all_there():
            shown = self.text()
            return shown if all(text in shown for text in texts) else None

        try:
            return wait_until(all_there, seconds, f"the screen shows {texts}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()}\n{self.screen.normal}") from None

    def press(self, keys):
        os.write(self.master, keys.encode())

    def resize(self, columns, rows):
        with self.lock:
            self.screen.resize(columns, rows)
        self.set_size(columns, rows)

    def ended(self, seconds=15):
        return self.process.wait(seconds * (PATIENCE if seconds > 3 else 1))  # three are a promise

    def is_restored(self):
        with self.lock:
            screens = not self.screen.alternate and self.screen.cursor_shown and self.screen.wraps
        return screens and termios.tcgetattr(self.slave) == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.slave)
        self.reader.join(10)
        os.close(self.master)


class OnATerminal(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.done = self.root / "done"
        script = SCRIPT.format(done=self.done, agent=harness.BIN / "lockstep-agent")
        self.job = self.daemon.submit(harness.command_job("looked-at", "/bin/sh", "-c", script,
                                                          resources={"nodes": 2, "ranks_per_node": 2}))["id"]
        wait_until(lambda: all("busy_seconds" in rank for rank in self.ranks()), 30, "every rank has reported")

    def ranks(self, query=""):
        return self.daemon.get(f"/v1/jobs/{self.job}/ranks{query}")["items"]

    def terminal(self, *arguments, columns=100, rows=24, **variables):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "LC_", "LANG", "NO_"))}
        environment.update(LOCKSTEP_URL=self.daemon.url, LOCKSTEP_TOKEN=self.daemon.token, TERM="xterm",
                           LC_ALL="C.UTF-8", **variables)
        terminal = Terminal([harness.BIN / "lockstep", *arguments], environment, columns, rows)
        self.addCleanup(terminal.close)
        return terminal

    def top(self, *arguments, **settings):
        terminal = self.terminal("top", self.job, "--interval", "0.2", *arguments, **settings)
        terminal.shows("looked-at", "RANK", "q quit")
        return terminal

    def assert_ends(self, terminal, code):
        self.assertEqual(terminal.ended(), code)
        wait_until(terminal.is_restored, 10, "the terminal is as it was")

    @staticmethod
    def order(text):
        """The ranks from top to bottom."""
        return [int(found.group(1)) for found in re.finditer(r"^[ !x] +(\d+)  \S+ ", text, re.M)]


class Top(OnATerminal):
    def test_shows_the_busiest_rank_first_and_keys_change_it(self):
        top = self.top()
        self.assertTrue(top.screen.alternate)
        self.assertFalse(termios.tcgetattr(top.slave)[3] & (termios.ECHO | termios.ICANON))
        shown = top.shows("running", "4/4 reporting", "samples/s", "4.0 ms", "BUSY▼")
        self.assertEqual(self.order(shown), [3, 2, 1, 0])
        shown = top.shows("nonfinite  rank 1", "nan")
        self.assertRegex(shown, r"(?m)^! +1 ")
        step = max(rank["step"] for rank in self.ranks())
        wait_until(lambda: max(map(int, re.findall(r"step (\d+)", top.text())), default=0) > step, 15, "steps go on")
        top.press("r")
        wait_until(lambda: self.order(top.text()) == [0, 1, 2, 3], 15, "the order is turned around")
        top.press("s")
        top.shows("sort: loss", "LOSS▲")
        top.press("r")
        wait_until(lambda: self.order(top.text())[:1] == [1], 15, "NaN is first")
        top.press("?")
        top.shows("any key goes back", "one screen")
        top.press("\x1b[B")
        top.shows("RANK")
        top.press(" ")
        top.shows("paused", "space go on")
        top.press(" ")
        wait_until(lambda: "paused" not in top.text(), 15, "it goes on")
        top.press("q")
        self.assert_ends(top, 0)

    def test_scrolls_and_follows_the_size(self):
        top = self.top(rows=7)
        self.assertEqual(self.order(top.text()), [3, 2, 1])
        top.press("\x1b[B")
        top.shows("2-4 of 4")
        top.press("\x1b[H")
        top.shows("1-3 of 4")
        top.press("\x1b[6~")
        top.shows("2-4 of 4")
        top.resize(60, 12)
        shown = wait_until(lambda: "q quit" in top.text().split("\n")[11] and top.text(), 15, "the foot is in row 12")
        self.assertEqual(self.order(shown), [3, 2, 1, 0])
        self.assertIn("BUSY", shown)
        self.assertNotIn("DATA", shown)
        top.resize(200, 40)
        top.shows("DATA", "AGE", "STEP TIME")
        top.press("q")
        self.assert_ends(top, 0)

    def test_every_way_out_gives_the_terminal_back(self):
        for way in ("SIGTERM", "SIGHUP", "Ctrl-C", "Ctrl-\\"):
            with self.subTest(way):
                top = self.top()
                if way.startswith("SIG"):
                    top.process.send_signal(getattr(signal, way))
                else:
                    top.press("\x03" if way == "Ctrl-C" else "\x1c")
                self.assert_ends(top, 130)

    def test_a_stop_gives_the_terminal_back_for_its_time(self):
        top = self.top()
        top.press("\x1a")  # Ctrl-Z
        stat = f"/proc/{top.process.pid}/stat"
        wait_until(lambda: open(stat).read().rsplit(")", 1)[1].split()[0] == "T", 15, "it is stopped")
        wait_until(top.is_restored, 10, "the terminal is as it was")
        top.process.send_signal(signal.SIGCONT)
        wait_until(lambda: top.screen.alternate, 10, "it is back")
        top.shows("looked-at", "q quit")
        top.press("q")
        self.assert_ends(top, 0)

    def test_a_daemon_that_is_gone_is_said_and_keys_work(self):
        top = self.top()
        self.daemon.kill9()
        top.shows("no answer from", "looked-at")
        top.press("?")
        top.shows("any key goes back")
        top.press("x")
        top.press("q")
        self.assert_ends(top, 0)

    def test_a_daemon_that_hangs_holds_nothing_up(self):
        top = self.top()
        self.daemon.process.send_signal(signal.SIGSTOP)
        self.addCleanup(self.daemon.process.send_signal, signal.SIGCONT)
        wait_until(lambda: re.search(r" [2-9]\.\d s old", top.text()), 15, "the data grows old")
        top.press("?")
        top.shows("any key goes back", seconds=2)
        top.press("x")
        self.daemon.process.send_signal(signal.SIGCONT)
        wait_until(lambda: re.search(r" 0\.\d s old", top.text()), 15, "the data is new")
        self.daemon.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: re.search(r" [2-9]\.\d s old", top.text()), 15, "the data grows old")
        top.press("q")
        self.assertEqual(top.ended(3), 0)
        self.assert_ends(top, 0)

    def test_ends_with_the_job_and_leaves_the_last_look(self):
        top = self.top()
        self.done.touch()
        self.assert_ends(top, 0)
        wait_until(lambda: "looked-at  succeeded" in top.screen.normal and "BUSY" in top.screen.normal, 10,
                   "the last look is left")
        again = self.terminal("top", self.job)
        self.assertEqual(again.ended(), 0)
        wait_until(lambda: "succeeded" in again.screen.normal, 10, "what it said is read")

    def test_without_utf8_or_colour(self):
        top = self.top(NO_COLOR="1", columns=60)
        top.shows("▼")
        top.press("q")
        self.assert_ends(top, 0)
        environment = {"LC_ALL": "C", "LOCKSTEP_URL": self.daemon.url, "LOCKSTEP_TOKEN": self.daemon.token,
                       "TERM": "xterm", "PATH": os.environ["PATH"]}
        plain = Terminal([harness.BIN / "lockstep", "top", self.job], environment, 80, 20)
        self.addCleanup(plain.close)
        self.assertTrue(plain.shows("BUSYv", "arrows scroll").isascii())
        plain.press("q")
        self.assert_ends(plain, 0)

    def test_in_a_pipe_is_one_table(self):
        out = self.daemon.cli("top", self.job).stdout
        self.assertNotIn("\x1b", out)
        self.assertEqual(self.order(out), [3, 2, 1, 0])
        self.assertIn("looked-at  running", out)
        self.assertEqual(self.order(self.daemon.cli("top", self.job, "--once", "--sort", "rank").stdout), [0, 1, 2, 3])
        answer = json.loads(self.daemon.cli("top", self.job, "--json").stdout)
        self.assertEqual([rank["rank"] for rank in answer["ranks"]["items"]], [3, 2, 1, 0])
        self.assertEqual(answer["job"]["id"], self.job)
        self.assertEqual(self.daemon.cli("top", "ls-" + "0" * 26, check=False).returncode, 3)
        self.assertEqual(self.daemon.cli("top", self.job, "--interval", "0", check=False).returncode, 2)

    def test_the_api_sorts_and_pages(self):
        # What is counted over all ranks is a quarter of a second old at most.
        def page():
            one = self.daemon.get(f"/v1/jobs/{self.job}/ranks?sort=-busy_seconds&offset=1&limit=2")
            return one if one["ranks_reporting"] == 4 and "samples_per_second" in one else None
        answer = wait_until(page, 10, "all are counted")
        self.assertEqual([rank["rank"] for rank in answer["items"]], [2, 1])
        self.assertEqual(answer["total"], 4)
        self.assertGreater(answer["samples_per_second"], 0)
        self.assertEqual([rank["rank"] for rank in self.ranks()], [0, 1, 2, 3])
        self.assertEqual(len(self.ranks("?sort=power_watts")), 4, "nobody has a GPU: all are there by rank")
        self.assert_problem(self.daemon.api("GET", f"/v1/jobs/{self.job}/ranks?sort=x"), 400, "?sort")


class Series(OnATerminal):
    def test_draws_on_a_terminal_and_lists_in_a_pipe(self):
        plot = self.terminal("series", self.job, "busy_seconds", "--rank", "0,3", columns=60)
        self.assertEqual(plot.ended(), 0)
        drawn = wait_until(lambda: "rank 3" in plot.screen.normal and plot.screen.normal, 10, "the legend is there")
        for text in ("busy_seconds [s]", "4.0 ms", "1.0 ms", "step"):
            self.assertIn(text, drawn)
        self.assertRegex(drawn, "[\u2801-\u28ff]")
        self.assertLessEqual(max(map(len, drawn.split("\r\n"))), 60)

        def rows():
            some = self.daemon.cli("series", self.job, "loss", "--rank", "1", "--from", "4", "--to", "4", check=False)
            return [line.split("\t") for line in some.stdout.splitlines()]

        wait_until(rows, 20, "step 4")
        self.assertEqual(rows(), [["step", "rank", "min", "max", "last"], ["4", "1", "0.5", "0.5", "0.5"]])
        wait_until(lambda: "\t1\tnan\tnan\tnan\n" in self.daemon.cli("series", self.job, "loss").stdout, 20, "NaN")
        some = self.daemon.cli("series", self.job, "loss", "--rank", "0", "--from", "2", "--to", "3").stdout
        self.assertEqual([line.split("\t")[0] for line in some.splitlines()], ["step", "2", "3"])
        ago = self.daemon.cli("series", self.job, "loss", "--rank", "0", "--from", "1h").stdout
        self.assertTrue(ago.startswith("time\t"))

    def test_says_what_there_is(self):
        unknown = self.daemon.cli("series", self.job, "accuracy", check=False)
        self.assertEqual(unknown.returncode, 3)
        self.assertIn("there are: loss, step_seconds, busy_seconds", unknown.stderr)
        outside = self.daemon.cli("series", self.job, "loss", "--from", "1000000", check=False)
        self.assertEqual(outside.returncode, 3)
        self.assertIn("in this range", outside.stderr)
        narrow = self.terminal("series", self.job, "loss", columns=20)
        self.assertEqual(narrow.ended(), 0)
        drawn = wait_until(lambda: "rank" in narrow.screen.normal and narrow.screen.normal, 10, "it is drawn")
        self.assertLessEqual(max(map(len, drawn.split("\r\n"))), 20)


if __name__ == "__main__":
    harness.main()
