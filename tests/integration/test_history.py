"""A run that is too long for memory: in chunks on disk, whole at any zoom, after kill -9 as before it."""

import re
import struct

import harness

STEPS = 80_000
SPIKE = 33_333


class History(harness.TestCase):
    def _metric(self, name):
        return float(re.search(rf"^{re.escape(name)} (\S+)$", self.daemon.text("/metrics"), re.M).group(1))

    def _check(self, job_id):
        whole = self.daemon.series(job_id)[0]
        self.assertLessEqual(len(whole), 800)
        self.assertEqual([p[2] for p in whole if p[2] > 1], [100.0], "the one spike")
        part = self.daemon.series(job_id, **{"from": SPIKE - 5, "to": SPIKE + 5})[0]
        self.assertEqual(part, [[s, v, v, v] for s in range(SPIKE - 5, SPIKE + 6)
                                for v in [100.0 if s == SPIKE else 1.0]])
        status, headers, data = self.daemon.request("GET", f"/v1/jobs/{job_id}/heatmap?metric=loss&columns=100")
        self.assertEqual(status, 200)
        self.assertEqual(headers["Content-Type"], "application/octet-stream")
        magic, rows, columns, first, width, low, high = struct.unpack_from("<4s4xII8xqqdd", data)
        self.assertEqual((magic, rows, first, low, high), (b"LSH1", 1, 0, 1.0, 100.0))
        self.assertEqual(len(data), 56 + columns)
        self.assertEqual([i for i, cell in enumerate(data[56:]) if cell == 254], [SPIKE // width])
        self.assertEqual(set(data[56:]), {1, 254})
        return whole

    def test_a_long_run_is_whole_at_any_zoom_and_after_a_kill(self):
        folder = self.root / "gate"
        folder.mkdir()
        job_id = self.daemon.submit(harness.python_job("long", "many_steps.py", folder, STEPS, SPIKE))["id"]
        self.daemon.wait_for(job_id, lambda j: j.get("step", 0) == STEPS - 1, 120, "every step has been reported")
        harness.wait_until(lambda: self._metric('lockstep_store_samples{tier="disk"}') > 0, 30, "chunks")
        before = self._check(job_id)
        self.daemon.kill9()
        self.daemon.start()
        self.assertEqual(self._check(job_id), before)
        (folder / "go").touch()
        self.assertEqual(self.daemon.wait_state(job_id, harness.FINAL, 60)["state"], "succeeded")
        # More where the machine has GPUs.
        harness.wait_until(lambda: self._metric('lockstep_store_samples{tier="disk"}') >= 2 * STEPS, 30,
                           "all of a finished job is in chunks")
        self.daemon.restart()
        self.assertEqual(self._check(job_id), before)


if __name__ == "__main__":
    harness.main()
