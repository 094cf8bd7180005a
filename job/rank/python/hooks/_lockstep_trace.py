"""Traces of frameworks without a step that ends in Python (jax): a window of time, and the table of its longest
operations. Loaded by _lockstep_profile while it answers, never before.

How many operations a second a script makes differs by a factor of a thousand. A moment is recorded first, only to see
how many, and again while there are none, as when a program is compiled; then as long as was asked for, or shorter, so
that the trace is one that a browser opens. Of a script that does more later it ends early, once the process has grown
by _GROWTH_BYTES, and one that has become too large is only looked at as well.
"""

import array
import gzip
import json
import os
import threading
import time

TRACE_BYTES = 64 << 20  # of the trace, before it is packed
_LOOK_SECONDS = 0.2  # recorded first
_LEAST_SECONDS = 0.1  # recorded at least
_READY_SECONDS = 10.0  # so long is waited for a framework that has not begun to compute
_GROWTH_BYTES = 64 << 20
_TICK = 0.05
_PACE = 200  # events between two pauses, in which the training gets the interpreter's lock
_ROWS = 40  # of a table
_NAME = 60  # characters


class Refused(Exception):
    """Why there is no recording, in words."""


class Recording:
    """tick(), wait(), save(), disarm(): the answering thread. theirs_begins(): whoever begins to profile.

    Of the framework: NAME, AMOUNT (the most that a recording should have), LITTLE (less is nothing), ready(), why_not(),
    hook(), unhook(), start() (False: somebody else records), stop() (what was recorded), amount(recorded), save()."""

    NAME = ""
    AMOUNT = 0
    LITTLE = 0

    def __init__(self, seconds):
        self.process = os.getpid()
        self.seconds = seconds
        self.steps = 0
        self.lock = threading.RLock()
        self.state = "waits"  # "looks", "looked", "records", "recorded", "over"
        self.why = ""
        self.others = False  # the script's own was on
        self.theirs = 0  # of the script's, which are being made
        self.recorded = None
        self.since = self.end = 0.0
        self.recorded_seconds = self.allowed = 0.0
        self.memory = 0
        self.armed = time.monotonic()
        self.hooked = False
        self.idle = False  # the last look saw nothing
        self.again = 2  # times that it may be too large

    made_no_step = False  # nothing else comes after this one

    @property
    def others_words(self):
        return f"the script's own {self.NAME} profiler is on"

    # --- the script's own profiler ---

    def theirs_begins(self, make):
        """make() while nothing of ours records, and nothing begins to."""
        if os.getpid() != self.process:
            return make()
        with self.lock:
            self.theirs += 1
            try:
                self.make_way()
                return make()
            finally:
                self.theirs -= 1

    def make_way(self):
        """Never raises into the script. What a recording has by then is kept."""
        try:
            with self.lock:
                if self.state == "looked":
                    self._over(self.others_words)
                if self.state not in ("looks", "records"):
                    return
                why = self.others_words if self.state == "looks" else ""
                self._stop()
                self._over(why)
        except Exception as error:
            self._failed(error)

    # --- the answering thread ---

    def arm(self):
        try:
            self.hook()
            self.hooked = True
        except Exception as error:
            self._failed(error)

    def tick(self):
        try:
            now = time.monotonic()
            if self.state == "waits" and self.ready():
                self._begin_look()
            elif self.state == "looks" and now >= self.end:
                self._end_look()
            elif self.state == "looked":
                self._looked(now)
            elif self.state == "recorded":
                self._weigh()
            elif self.state == "records" and (now >= self.end or _memory() > self.memory + _GROWTH_BYTES):
                self._end()
        except Exception as error:
            self._failed(error)

    def wait(self, until, ending):
        """Why there is nothing; "" = there is. ending: set when the process ends."""
        first = self.armed + max(self.seconds, _READY_SECONDS)
        while self.state != "over":
            if ending.is_set():
                return "the process ends"
            now = time.monotonic()
            if self.state == "waits" and not self.idle and now >= min(first, until):
                return self.others_words if self.others else self.why_not(now - self.armed)
            if now >= until:
                return f"{self.NAME}'s profiler did not end after {now - self.armed:.0f} s"
            self.tick()
            time.sleep(_TICK)
        return self.why

    def disarm(self):
        with self.lock:
            try:
                if self.state in ("looks", "records"):
                    self._stop()
            finally:
                self._over(self.why)
                self._unhook()

    def _begin_look(self):
        with self.lock:
            if self.state == "waits" and self._start():
                self.state, self.end = "looks", self.since + _LOOK_SECONDS

    def _end_look(self):
        with self.lock:
            if self.state == "looks":
                self._stop()
                self.state = "looked"

    def _begin(self):
        with self.lock:
            if self.state != "looked":
                return
            if self._start():
                self.state, self.end = "records", self.since + self.allowed
            else:
                self._over(self.others_words)

    def _end(self):
        with self.lock:
            if self.state == "records":
                self._stop()
                self.state = "recorded"

    def _start(self):
        self.memory = _memory()
        self.others = bool(self.theirs) or not self.start()
        self.idle = self.idle and not self.others
        self.since = time.monotonic()
        return not self.others

    def _stop(self):
        self.recorded_seconds = time.monotonic() - self.since
        self.recorded = self.stop()

    def _over(self, why):
        self.state, self.why = "over", why

    def _failed(self, error):
        """A session of somebody else whom its framework does not show is seen only when ours has none."""
        if isinstance(error, Refused):
            self._over(str(error))
        elif "ALREADY_EXISTS" in str(error):
            self._over(self.others_words)
        else:
            self._over(f"{self.NAME}'s profiler: {type(error).__name__}: {error}")

    def _unhook(self):
        if self.hooked:
            self.hooked = False
            self.unhook()

    def _looked(self, now):
        amount, self.recorded = self.amount(self.recorded), None
        self.idle = amount < self.LITTLE and now < self.armed + max(self.seconds, _READY_SECONDS)
        if self.idle:
            with self.lock:
                self.state = "waits" if self.state == "looked" else self.state
            return
        rate = amount / max(self.recorded_seconds, 0.001)
        self.allowed = min(self.seconds, max(_LEAST_SECONDS, self.AMOUNT / max(rate, 1.0)))
        self._begin()

    def _weigh(self):
        too_large = self.again > 0 and self.amount(self.recorded) > 2 * self.AMOUNT
        with self.lock:
            if too_large:
                self.again -= 1
                self.state = "looked"
            else:
                self._over("")


def _memory():
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


# --- the trace -------------------------------------------------------------------------------------

def paced(items):
    """The same, with pauses: the interpreter's lock is the training's as well."""
    for number, item in enumerate(items):
        if number % _PACE == 0:
            time.sleep(0.0005)
        yield item


def trace_events(text):
    """The events of a trace in Chrome's form, one after the other: a single json.loads() holds the interpreter's lock
    until all are read."""
    at = text.find("[", max(text.find('"traceEvents"'), 0)) + 1
    decode, blanks, size = json.JSONDecoder().raw_decode, " \t\r\n,", len(text)
    while 0 < at < size:
        while at < size and text[at] in blanks:
            at += 1
        if at >= size or text[at] != "{":
            return
        event, at = decode(text, at)
        yield event


def read_trace(path):
    """The text of a packed trace, or None if it is larger than is kept."""
    with gzip.open(path) as file:
        data = file.read(TRACE_BYTES + 1)
    return None if len(data) > TRACE_BYTES else data.decode("utf-8", "replace")


def too_large():
    return f"the trace has more than {TRACE_BYTES >> 20} MiB, which are kept at most"


# --- the table -------------------------------------------------------------------------------------

class Spans:
    """What took how long. Numbers in arrays: a hundred thousand objects would have Python collect garbage among all of the
    training's, with the interpreter's lock."""

    def __init__(self):
        self.lanes = {}  # lane -> begins, durations, numbers of names
        self.names = {}  # name -> number

    def add(self, lane, begin, duration, name):
        """In microseconds. Those of a lane lie in or after each other."""
        columns = self.lanes.get(lane)
        if columns is None:
            columns = self.lanes[lane] = (array.array("d"), array.array("d"), array.array("l"))
        columns[0].append(begin)
        columns[1].append(duration)
        columns[2].append(self.names.setdefault(name, len(self.names)))

    def rows(self):
        """(name, own, total, calls), the longest own time first. Own is what is not in a span within it; the total counts
        a name within itself once."""
        sums = [[0.0, 0.0, 0] for _ in self.names]
        for columns in self.lanes.values():
            _add_lane(sums, *columns)
        return sorted(((name, *sums[number]) for name, number in self.names.items()), key=lambda row: (-row[1], row[0]))

    def table(self, title, seconds):
        """"" if there are none."""
        rows = self.rows()
        if not rows:
            return ""
        whole = sum(row[1] for row in rows) or 1.0
        lines = [f"{title}, {seconds:.2f} s", "",
                 f"{'Name':<{_NAME}}  {'Own ms':>11}  {'Own %':>6}  {'Total ms':>11}  {'Calls':>8}  {'Average us':>11}"]
        for name, own, total, calls in rows[:_ROWS]:
            short = name if len(name) <= _NAME else name[:_NAME - 3] + "..."
            lines.append(f"{short:<{_NAME}}  {own / 1e3:>11.3f}  {100 * own / whole:>5.1f}%  {total / 1e3:>11.3f}  "
                         f"{calls:>8}  {total / calls:>11.1f}")
        if len(rows) > _ROWS:
            lines.append(f"and {len(rows) - _ROWS} more")
        return "\n".join(lines) + "\n"


def _in_order(begins, durations):
    """Numbers of the spans, whoever has another within it first; as they come, if that is it."""
    for at in paced(range(1, len(begins))):
        if begins[at - 1] > begins[at] or (begins[at - 1] == begins[at] and durations[at - 1] < durations[at]):
            return sorted(range(len(begins)), key=lambda one: (begins[one], -durations[one]))
    return range(len(begins))


def _add_lane(sums, begins, durations, names):
    stack = []  # [end, name, duration, time of those within it]
    within = {}  # name -> how many of those on the stack

    def close():
        _, name, duration, inner = stack.pop()
        sums[name][0] += max(duration - inner, 0.0)
        within[name] -= 1
        if not within[name]:
            sums[name][1] += duration

    for at in paced(_in_order(begins, durations)):
        begin, duration, name = begins[at], durations[at], names[at]
        while stack and begin >= stack[-1][0] - 1e-6:
            close()
        if stack:
            duration = min(duration, stack[-1][0] - begin)
            stack[-1][3] += duration
        sums[name][2] += 1
        within[name] = within.get(name, 0) + 1
        stack.append([begin + duration, name, duration, 0.0])
    while stack:
        close()
