"""Today's lockstepd on a store of every schema that there has been, made of the schema files themselves and filled
with rows as they were written at that time: nothing is lost, what was not over goes on, and a migration that is
killed leaves the old store or the new one."""

import contextlib
import hashlib
import json
import shutil
import signal
import socket
import sqlite3
import subprocess
import time

import harness
from harness import SOURCE, wait_until

SCHEMA = sorted((SOURCE / "daemon" / "store" / "schema").glob("*.sql"))
ENDED, OPEN, WAITS = (f"ls-01ARZ3NDEKTSV4RRFFQ69G5FA{letter}" for letter in "VWX")
TOKEN = "lks_" + "1" * 64
MADE = int(time.time() - 10 * 86_400) * 1000  # milliseconds
SPEC = {"name": "old", "framework": "command", "command": ["true"]}


def cause(**fields):
    return {"class": "none", "message": "", "rank": -1, "node": "", "exit_code": -1, "signal": 0, "log_tail": "",
            **fields}


def events(version, job, runs, ended):
    """As the first version wrote them; later ones add members, which older rows lack."""
    yield "submitted", {"user": "ada", "spec": SPEC, "warnings": ["as of then"]}
    yield "attempt_created", {"attempt": 1, "ticket_hash": "0" * 64, "directory": str(runs / job / "a1")}
    yield "attempt_placed", {"attempt": 1, "scheduler_id": f"local-{job}-a1"}
    yield "agent_claimed", {"attempt": 1, "node_rank": 0, "node": "n1", "incarnation": "i1", "pid": 1}
    yield "generation_started", {"attempt": 1, "generation": 1, "master_address": "127.0.0.1", "master_port": 1234,
                                 "addresses": ["127.0.0.1"], "resumed_from_step": -1}
    if version >= 4:
        yield "ranks_released", {"attempt": 1, "generation": 1}
    yield "ranks_started", {"attempt": 1, "generation": 1}
    if ended:
        yield "rank_exited", {"attempt": 1, "generation": 1, "rank": 0, "node": "n1", "exit_code": 1, "signal": 0,
                              "stopped": False, "oom": False, "at": MADE, "log_tail": "old words"}
        why = cause(**{"class": "rank_exit", "message": "rank 0 exited with code 1", "rank": 0, "node": "n1",
                       "exit_code": 1, "log_tail": "old words"})
        yield "generation_ended", {"attempt": 1, "generation": 1, "cause": why}
        yield "attempt_ended", {"attempt": 1, "cause": why}
        yield "finished", {"state": "failed", "cause": why, "step": 7}


def view(job, state):
    return json.dumps({"id": job, "name": "old", "user": "ada", "framework": "command", "state": state,
                       "submitted_at": "2023-11-14T22:13:20.000Z"})


def fill(db, version, runs):
    seq = 0
    for job, state, ended in ((ENDED, "failed", True), (OPEN, "running", False), (WAITS, "accepted", False)):
        for kind, data in list(events(version, job, runs, ended))[: 1 if job == WAITS else None]:
            seq += 1
            db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", (seq, job, MADE + seq, kind, json.dumps(data)))
        db.execute("INSERT INTO jobs VALUES (?, 'ada', 'old', ?, ?, ?, ?, ?, ?)",
                   (job, state, int(ended), MADE, MADE + seq if ended else 0, seq, view(job, state)))
        db.execute("INSERT INTO labels VALUES ('team', 'vision', ?)", (job,))
    db.execute("INSERT INTO idempotency VALUES ('ada', 'key-1', ?, ?)", ("0" * 64, ENDED))
    sha256 = hashlib.sha256(TOKEN.encode()).hexdigest()
    if version == 1:
        db.execute("INSERT INTO tokens VALUES (?, 'ada', 'admin', ?, 0)", (sha256, MADE))
    else:
        columns = "id, sha256, name, user, role, scopes, created_at, expires_at, last_used_at, revoked_at"
        db.execute(f"INSERT INTO tokens ({columns}) VALUES ('tk-000000000001', ?, 'first', 'ada', 'admin', '', ?, 0, "
                   "0, 0)", (sha256, MADE))
    if version >= 3:
        db.execute("INSERT INTO history_chunks (job, kind, block, attempt, generation, step_low, step_high, time_low, "
                   "time_high, rows, samples, bytes) VALUES (?, 0, 0, 1, 1, 1, 7, 1, 2, 7, 7, 10)", (ENDED,))
    if version >= 4:
        db.execute("INSERT INTO node_totals VALUES (?, 3, ?, ?, 0)", (socket.gethostname(), MADE, MADE))
    if version >= 5:
        db.execute("INSERT INTO removals VALUES ('ls-01ARZ3NDEKTSV4RRFFQ69G5FAY', 'ada', ?, ?, 900, 1, '', 1)",
                   (MADE, MADE))
    if version >= 6:
        db.execute("INSERT INTO clock_look VALUES (0, ?)", (MADE,))
    if version >= 8:
        db.execute("INSERT INTO notices (job, user, seq, target, lane, body, created_at, due_at, tries) "
                   "VALUES (?, 'ada', 11, 'mail', 'mail', '{}', ?, ?, 0)", (ENDED, MADE, MADE))
    db.execute("INSERT INTO probe VALUES (1, 5)")


class Upgrade(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.daemon.stop()
        (self.daemon.data / "token").write_text(TOKEN + "\n")

    def make(self, version):
        for path in self.daemon.data.glob("lockstep.db*"):
            path.unlink()
        shutil.rmtree(self.daemon.data / "runs", ignore_errors=True)
        (self.daemon.data / "runs").mkdir(mode=0o700)
        db = sqlite3.connect(self.daemon.data / "lockstep.db")
        with contextlib.closing(db):
            for file in SCHEMA[:version]:
                db.executescript(file.read_text())
            db.execute(f"PRAGMA user_version = {version}")
            fill(db, version, self.daemon.data / "runs")
            db.commit()

    def version(self):
        with contextlib.closing(sqlite3.connect(self.daemon.data / "lockstep.db")) as db:
            return db.execute("PRAGMA user_version").fetchone()[0]

    def check(self, version):
        self.assertEqual(self.daemon.token, TOKEN)  # known, or another one would have been made
        self.assertEqual(self.daemon.get("/v1/whoami")["role"], "admin")
        self.assertEqual({job["id"] for job in self.daemon.get("/v1/jobs?label=team=vision")["items"]},
                         {ENDED, OPEN, WAITS})
        ended = self.daemon.job(ENDED)
        self.assertEqual(ended["state"], "failed")
        self.assertEqual(self.daemon.events(ENDED)[-1]["data"]["cause"]["log_tail"], "old words")
        self.assertEqual(self.daemon.get(f"/v1/jobs/{ENDED}/ranks")["items"][0]["exit_code"], 1)
        # What ran has no agent any more: that is said. What waited is run.
        self.assertEqual(self.daemon.wait_state(OPEN, "failed")["cause"]["class"], "node_lost")
        self.daemon.wait_state(WAITS, "succeeded")
        if version >= 4:
            self.assertGreaterEqual(self.daemon.get(f"/v1/nodes/{socket.gethostname()}")["history"]["attempts"], 3)
        if version >= 5:  # numbers go on beyond what was removed
            self.assertGreater(self.daemon.events(WAITS)[-1]["seq"], 900)

    def test_every_schema_that_there_has_been(self):
        for version in range(1, len(SCHEMA)):
            with self.subTest(version=version):
                self.make(version)
                self.daemon.start()
                self.check(version)
                self.assertEqual(self.daemon.stop(), 0)
                self.assertEqual(self.version(), len(SCHEMA))
                with contextlib.closing(sqlite3.connect(self.daemon.data / "lockstep.db")) as db:
                    self.assertEqual(db.execute("PRAGMA integrity_check").fetchone()[0], "ok")

    def test_a_backup_of_every_schema_is_restored_without_the_old_one_being_changed(self):
        for version in range(1, len(SCHEMA)):
            with self.subTest(version=version):
                self.make(version)
                folder, data = self.root / f"backup-{version}", self.root / f"restored-{version}"
                for arguments in (("--data-dir", self.daemon.data, "backup", folder),
                                  ("restore", folder, "--data-dir", data)):
                    done = subprocess.run([harness.BIN / "lockstepd", *map(str, arguments)], capture_output=True,
                                          text=True, timeout=60, check=False)
                    self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(self.version(), version)  # a backup is what one makes before an upgrade
                with contextlib.closing(sqlite3.connect(data / "lockstep.db")) as db:
                    self.assertEqual(db.execute("PRAGMA user_version").fetchone()[0], len(SCHEMA))
                    self.assertEqual(db.execute("SELECT id, state FROM jobs ORDER BY id").fetchall(),
                                     [(ENDED, "failed"), (OPEN, "failed"), (WAITS, "failed")])

    def test_a_migration_that_is_killed_leaves_one_version_whole(self):
        self.make(1)
        seen = set()
        for delay in range(0, 60, 4):
            process = subprocess.Popen(self.daemon.command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, env=self.daemon.environment())
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(delay / 1000)
            process.send_signal(signal.SIGKILL)
            process.wait()
            seen.add(self.version())
        self.assertLessEqual(max(seen), len(SCHEMA))
        self.daemon.start()
        self.check(1)
        wait_until(lambda: self.daemon.reachable("/readyz"), 20, "it is ready")


if __name__ == "__main__":
    harness.main()
