"""`lockstep export`: every sample as TensorBoard's files, CSV and JSON, bounded memory, no half files."""

import csv
import io
import json
import math
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess

import harness

RANKS, STEPS, METRICS, BAD_STEP, BACK_TO = 3, 60, 2, 40, 30
LIMIT = 50 << 20
MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_maxrss, used.ru_utime + used.ru_stime, file=sys.stderr)
"""


def value(rank, generation, step, metric):
    if metric == 0 and step in (7, 8):
        return math.nan if step == 7 else math.inf
    return (step + 1) / 3 + rank + 1000 * generation + metric


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


def float32(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


# --- TensorBoard's files, read by their published description --------------------------------------

def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def check(data, masked):
    crc = crc32c(data)
    assert masked == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF, "a checksum is wrong"


def varint(data, at):
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return number, at


def fields(data):
    """[(number, value)] of a protocol buffer."""
    at, out = 0, []
    while at < len(data):
        key, at = varint(data, at)
        size = {1: 8, 5: 4}.get(key & 7)
        if key & 7 == 0:
            number, at = varint(data, at)
            out.append((key >> 3, number))
            continue
        if size is None:
            assert key & 7 == 2, "a wire type that no field of ours has"
            size, at = varint(data, at)
        assert at + size <= len(data)
        out.append((key >> 3, data[at:at + size]))
        at += size
    return out


def read_events(path):
    """[(tag, step, wall_time, value)] after the version."""
    data, at, out = path.read_bytes(), 0, []
    while at < len(data):
        (length, crc) = struct.unpack_from("<QI", data, at)
        check(data[at:at + 8], crc)
        body = data[at + 12:at + 12 + length]
        check(body, struct.unpack_from("<I", data, at + 12 + length)[0])
        at += 16 + length
        event = dict(fields(body))
        wall_time = struct.unpack("<d", event[1])[0]
        if 3 in event:
            assert event[3] == b"brain.Event:2" and not out
            continue
        ((number, scalar),) = fields(event[5])
        scalar = dict(fields(scalar))
        assert number == 1
        out.append((scalar[1].decode(), event[2], wall_time, struct.unpack("<f", scalar[2])[0]))
    return out


class Export(harness.TestCase):
    def _train(self, ranks=RANKS, steps=STEPS, metrics=METRICS, accident=(BAD_STEP, BACK_TO)):
        self.folder = self.root / "job"
        self.folder.mkdir()
        job = harness.python_job("numbers", "reported_numbers.py", self.folder, steps, metrics, *accident,
                                 resources={"nodes": 1, "ranks_per_node": ranks}, recovery={"max_restarts": 1})
        job_id = self.daemon.submit(job)["id"]
        done = [self.folder / f"done-{rank}" for rank in range(ranks)]
        harness.wait_until(lambda: all(path.exists() for path in done), 30, "all is reported")
        expected = ranks * metrics * (steps + (accident[0] - accident[1] if accident else 0)) + (2 if accident else 1)
        come = re.compile(rf"^lockstep_ingest_samples_total {expected}$", re.M)
        harness.wait_until(lambda: come.search(self.daemon.text("/metrics")), 60, f"{expected} samples have come")
        return job_id

    def _finish(self):
        if hasattr(self, "folder"):
            (self.folder / "go").touch()
        super()._finish()

    def _csv(self, job_id, *arguments):
        done = subprocess.run([harness.BIN / "lockstep", "export", job_id, "--csv", "-", *arguments],
                              capture_output=True, check=True, timeout=60,
                              env={**os.environ, "LOCKSTEP_URL": self.daemon.url, "LOCKSTEP_TOKEN": self.daemon.token})
        return done.stdout.decode()

    def _rows(self, text):
        """{(rank, metric): [(attempt, generation, step, time, value)]}, in the order of the file."""
        out = {}
        for row in csv.DictReader(io.StringIO(text, newline="")):
            out.setdefault((int(row["rank"]), row["metric"]), []).append(
                (int(row["attempt"]), int(row["generation"]), int(row["step"]) if row["step"] else None,
                 float(row["time"]), float(row["value"])))
        return out

    def _check_rows(self, rows):
        self.assertEqual(set(rows), {(rank, f"m{m:02}") for rank in range(RANKS) for m in range(METRICS)}
                         | {(0, "seldom")})
        self.assertEqual([(row[1], row[2], row[4]) for row in rows[0, "seldom"]],
                         [(1, None, 0.125), (2, None, 0.125)])
        made = [(1, step) for step in range(BAD_STEP)] + [(2, step) for step in range(BACK_TO, STEPS)]
        for (rank, metric), samples in rows.items():
            if metric == "seldom":
                continue
            self.assertEqual([(row[0], row[1], row[2]) for row in samples], [(1, g, s) for g, s in made])
            for _, generation, step, _, got in samples:
                self.assertTrue(same(got, value(rank, generation, step, int(metric[1:]))), (rank, metric, step, got))

    def _check_series(self, job_id, rows):
        """What the API shows is the newest generation's; each of its points is a sample here."""
        for metric in range(METRICS):
            series = self.daemon.series(job_id, f"m{metric:02}", points=4000)
            self.assertEqual(set(series), set(range(RANKS)))
            for rank, points in series.items():
                newest = {row[2]: row[4] for row in rows[rank, f"m{metric:02}"]}
                self.assertEqual([int(p[0]) for p in points], sorted(newest))
                for step, low, high, last in points:
                    finite = math.isfinite(newest[step])
                    self.assertEqual([low, high, last], [newest[step] if finite else None] * 3)

    def test_every_sample_while_it_runs_afterwards_and_after_a_restart(self):
        job_id = self._train()
        running = self._rows(self._csv(job_id))
        self._check_rows(running)
        (self.folder / "go").touch()
        self.daemon.wait_state(job_id, "succeeded")
        text = self._csv(job_id)
        self.assertTrue(text.startswith("rank,attempt,generation,step,time,metric,value\r\n"))
        rows = self._rows(text)
        self.assertEqual(repr(rows), repr({key: running[key] for key in rows}))
        self._check_series(job_id, rows)
        self.daemon.restart()
        self.assertEqual(self._csv(job_id), text)
        self._check_series(job_id, rows)
        lines = [json.loads(line) for line in self.daemon.cli("export", job_id, "--json", "-").stdout.splitlines()]
        self.assertEqual(len(lines), text.count("\r\n") - 1)
        for line in lines:
            sample = (line["attempt"], line["generation"], line["step"], line["time"], float(line["value"]))
            want = rows[line["rank"], line["metric"]].pop(0)
            self.assertEqual(sample[:4], want[:4])
            self.assertTrue(same(sample[4], want[4]))
        part = self._rows(self._csv(job_id, "--metric", "m01", "--rank", "0,2"))
        self.assertEqual(set(part), {(0, "m01"), (2, "m01")})

    def test_tensorboard_has_every_rank_and_the_mean(self):
        job_id = self._train()
        (self.folder / "go").touch()
        self.daemon.wait_state(job_id, "succeeded")
        rows = self._rows(self._csv(job_id))
        runs = self.root / "runs"
        said = self.daemon.cli("export", job_id, "--tensorboard", runs)
        self.assertIn("2 samples have no step", said.stderr)
        self.assertEqual(sorted(path.name for path in runs.iterdir()),
                         ["job"] + [f"rank-{rank:05}" for rank in range(RANKS)])
        means = {}
        for rank in range(RANKS):
            (path,) = (runs / f"rank-{rank:05}").iterdir()
            self.assertRegex(path.name, r"^events\.out\.tfevents\.\d{10}\.\S+$")
            events = read_events(path)
            for metric in (f"m{m:02}" for m in range(METRICS)):
                got = [(step, time, number) for tag, step, time, number in events if tag == metric]
                want = [(row[2], row[3], float32(row[4])) for row in rows[rank, metric]]
                self.assertEqual(repr(got), repr(want))
                for row in rows[rank, metric]:
                    means.setdefault((metric, row[1], row[2]), []).append(row[4])
            self.assertEqual({tag for tag, *_ in events}, {f"m{m:02}" for m in range(METRICS)})
        (path,) = (runs / "job").iterdir()
        got = [(tag, step, number) for tag, step, _, number in read_events(path)]
        want = [(metric, step, float32(sum(numbers) / RANKS)) for (metric, _, step), numbers in sorted(means.items())]
        self.assertEqual(repr(got), repr(want))
        self._read_with_tensorboard(runs, rows)

    def _read_with_tensorboard(self, runs, rows):
        if not harness.has_module("tensorboard"):
            print("SKIPPED: python3 has no tensorboard; its files were read by their description only", flush=True)
            return
        script = """
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
accumulator = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
accumulator.Reload()
print([(event.step, event.wall_time, event.value) for event in accumulator.Scalars("m01")])
"""
        for rank in range(RANKS):
            done = subprocess.run([harness.PYTHON, "-c", script, runs / f"rank-{rank:05}"], capture_output=True,
                                  text=True, check=True, timeout=60)
            want = [(row[2], row[3], float32(row[4])) for row in rows[rank, "m01"]]
            self.assertEqual(done.stdout.strip(), repr(want))

    def test_what_cannot_be_done_is_said_and_leaves_nothing(self):
        job_id = self._train(ranks=1, steps=5, accident=())
        (self.folder / "go").touch()
        self.daemon.wait_state(job_id, "succeeded")
        silent = self.daemon.submit(harness.command_job("silent", "true"))["id"]
        self.daemon.wait_state(silent, "succeeded")
        (self.root / "file").touch()
        out = self.root / "out"
        for arguments, code, text in [
                (("ls-01ARZ3NDEKTSV4RRFFQ69G5FAV", "--csv", out), 3, "no job"),
                ((silent, "--tensorboard", out), 3, "no rank has reported anything"),
                ((job_id, "--csv", out, "--metric", "acuracy"), 3, "acuracy; there is m00, m01, seldom"),
                ((job_id, "--csv", out, "--rank", "1"), 3, "ranks 0-0"),
                ((job_id, "--csv", out, "--rank", "x"), 2, "0-3,7"),
                ((job_id, "--csv", out, "--json", "-"), 2, "excludes"),
                ((job_id,), 2, "--tensorboard"),
                ((job_id, "--tensorboard", self.root / "file" / "below"), 8, "file/below"),
                ((job_id, "--tensorboard", "/proc/lockstep"), 8, "/proc/lockstep"),
                ((job_id, "--csv", self.root / "none" / "x.csv"), 8, "none/x.csv"),
                ((job_id, "--csv", "/dev/full"), 8, "No space left")]:
            with self.subTest(arguments=arguments):
                done = self.daemon.cli("export", *arguments, check=False)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(text, done.stderr)
                self.assertFalse(out.exists())
        self.daemon.cli("export", job_id, "--tensorboard", out)
        (before,) = (out / "rank-00000").iterdir()
        done = self.daemon.cli("export", job_id, "--tensorboard", out, check=False)
        self.assertEqual(done.returncode, 6)
        self.assertIn(str(before), done.stderr)
        self.daemon.cli("export", job_id, "--tensorboard", out, "--overwrite")
        self.assertEqual([len(list(run.iterdir())) for run in out.iterdir()], [1])

    def _export(self, job_id, *arguments):
        environment = {**os.environ, "LOCKSTEP_URL": self.daemon.url, "LOCKSTEP_TOKEN": self.daemon.token}
        return subprocess.Popen([harness.BIN / "lockstep", "export", job_id, *map(str, arguments)],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)

    def test_a_million_samples_in_little_memory_and_no_half_file_when_interrupted(self):
        ranks, steps, metrics = 4, 12_500, 20
        job_id = self._train(ranks=ranks, steps=steps, metrics=metrics, accident=())
        for kind, target in (("--csv", self.root / "a.csv"), ("--tensorboard", self.root / "runs")):
            environment = {**os.environ, "LOCKSTEP_URL": self.daemon.url, "LOCKSTEP_TOKEN": self.daemon.token}
            # By a small process: a child's peak begins with that of whoever started it.
            done = subprocess.run([harness.PYTHON, "-c", MEASURE, harness.BIN / "lockstep", "export", job_id, kind,
                                   target], capture_output=True, text=True, check=True, timeout=60, env=environment)
            kilobytes, seconds = done.stderr.splitlines()[-1].split()
            print(f"{kind}: {int(kilobytes) >> 10} MiB, {float(seconds):.1f} s of processor", flush=True)
            self.assertLess(int(kilobytes) << 10, LIMIT)
        with open(self.root / "a.csv", encoding="ascii", newline="") as file:
            self.assertEqual(sum(1 for _ in file), 1 + ranks * steps * metrics + 1)
        folder = self.root / "interrupted"
        folder.mkdir()
        for kind, target in (("--csv", folder / "b.csv"), ("--tensorboard", folder)):
            for _ in range(5):
                process = self._export(job_id, kind, target)
                harness.wait_until(lambda: any(folder.iterdir()) or process.poll() is not None, 30, "it has begun to write")
                process.send_signal(signal.SIGINT)
                code = process.wait(30 * harness.PATIENCE)
                if code != 0:
                    break
                shutil.rmtree(folder)  # it was done before the signal came
                folder.mkdir()
            self.assertEqual(code, 130)
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])


if __name__ == "__main__":
    harness.main()
