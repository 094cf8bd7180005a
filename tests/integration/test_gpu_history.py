"""What every GPU of a job did, beside its loss: while it runs, after kill -9 of lockstepd, after its end. A real
lockstepd with two simulated nodes, whose agents open the fake library of tests/support/fake_nvml."""

import csv
import io
import json
import struct
import urllib.parse

import harness
import test_gpus
from harness import wait_until

USE = "gpu_utilization_ratio"
HEAD = struct.Struct("<4sHHIIIIqqdd")


class GpuHistory(test_gpus.GpuCase):
    def _tell(self, step):
        new = self.root / "step.new"
        new.write_text(str(step))
        new.rename(self.root / "step")

    def _start(self):
        self._tell(10)
        job = harness.python_job("gpus", "steps_as_told.py", self.root,
                                 resources={"nodes": 2, "ranks_per_node": 2})
        job_id = self.daemon.submit(job)["id"]
        wait_until(lambda: len(list(self.root.glob("pid-?"))) == 4, 60, "ranks run")
        # Both nodes read the same script: a process counts where its agent knows it.
        self.write(*(f"gpu {rank + 2} process {self.gpu_of(rank)} 1000" for rank in range(4)))
        return job_id

    def _finish(self):
        (self.root / "go").touch()
        super()._finish()

    def _ask(self, job_id, route="series", **parameters):
        return self.daemon.get(f"/v1/jobs/{job_id}/{route}?" + urllib.parse.urlencode(parameters))

    def _gpu_series(self, job_id, metric=USE, **parameters):
        """{id: points}."""
        answer = self._ask(job_id, entity="gpu", metric=metric, points=4000, **parameters)
        self.assertEqual((answer["entity"], answer["metric"]), ("gpu", metric))
        return {item["id"]: item["points"] for item in answer["series"]}

    def _directory(self, job_id):
        return self._ask(job_id, "gpus")

    def _wait_used(self, job_id):
        def used():
            found = self._directory(job_id)
            return found if sum(len(gpu["ranks"]) for gpu in found["items"]) == 4 else None

        return wait_until(used, 60, "the GPU of every rank is known")

    def _wait_value(self, job_id, gpu, step, value):
        def there():
            points = self._gpu_series(job_id, gpus=gpu).get(gpu, [])
            return [p for p in points if p[0] == step and p[3] == value]

        wait_until(there, 60, f"GPU {gpu} is at {value} in step {step}")

    def _heatmap(self, job_id, **parameters):
        query = urllib.parse.urlencode({"entity": "gpu", "metric": USE, **parameters})
        status, _, data = self.daemon.request("GET", f"/v1/jobs/{job_id}/heatmap?{query}")
        self.assertEqual(status, 200)
        magic, version, _, rows, columns, first, per, start, width, low, high = HEAD.unpack_from(data)
        self.assertEqual((magic, version, per, len(data)), (b"LSH1", 1, 1, HEAD.size + rows * columns))
        cells = data[HEAD.size:]
        return first, start, width, low, high, [cells[i * columns:(i + 1) * columns] for i in range(rows)]

    def test_what_every_gpu_did_while_it_runs_after_a_kill_and_after_the_end(self):
        job_id = self._start()
        directory = self._wait_used(job_id)
        self.assertEqual(directory["total"], 16)
        self.assertEqual([gpu["id"] for gpu in directory["items"]], list(range(16)))
        places = {(gpu["node"], gpu["gpu"]) for gpu in directory["items"]}
        self.assertEqual(len(places), 16)
        self.assertEqual({gpu for _, gpu in places}, set(range(8)))
        for metric in (USE, "gpu_memory_used_bytes", "gpu_power_watts", "gpu_temperature_core_celsius",
                       "gpu_clock_sm_hertz"):
            self.assertIn(metric, directory["metrics"])
        wait_until(lambda: "gpu_sm_active_ratio" in self._directory(job_id)["metrics"], 60,
                   "what the driver tells of two looks only")
        directory = self._directory(job_id)
        nodes = {item["rank"]: item["node"] for item in self.daemon.get(f"/v1/jobs/{job_id}/ranks")["items"]}
        of_rank = {gpu["ranks"][0]: gpu for gpu in directory["items"] if gpu["ranks"]}
        for rank, gpu in of_rank.items():
            self.assertEqual((gpu["node"], gpu["gpu"], gpu["ranks"]), (nodes[rank], rank + 2, [rank]))

        # Beside the loss: by step.
        lame = of_rank[1]["id"]
        self._wait_value(job_id, lame, 10, 0.5)
        self.write("gpu 3 utilization 25")
        for gpu in directory["items"]:  # no look at what was before may still be under way
            self._wait_value(job_id, gpu["id"], 10, 0.25 if gpu["gpu"] == 3 else 0.5)
        self._tell(20)
        for gpu in directory["items"]:
            self._wait_value(job_id, gpu["id"], 20, 0.25 if gpu["gpu"] == 3 else 0.5)
        self.assertEqual(max(p[0] for p in self.daemon.series(job_id)[1]), 20, "the rank's loss is there too")
        self.assertEqual(self._gpu_series(job_id, ranks=1), self._gpu_series(job_id, gpus=lame))
        self.assertEqual(set(self._gpu_series(job_id, ranks="0-3")), {gpu["id"] for gpu in of_rank.values()})
        self.assertEqual(set(self._gpu_series(job_id)), set(range(16)))
        memory = self._gpu_series(job_id, "gpu_memory_used_bytes", gpus=0, x="time")[0]
        self.assertEqual({p[3] for p in memory}, {2.0 ** 30})
        times = [p[0] for p in memory]
        self.assertEqual(times, sorted(set(times)))

        # All of them at once, and the worst by name: GPU 3 of either node, which is the same in the script.
        together = self._ask(job_id, entity="gpu", stat="min,median,max", worst=2)
        self.assertEqual((together["gpus"], together["worse"], together["series"]), (16, "low", []))
        self.assertEqual(together["bands"]["median"][-1], 0.5)
        self.assertEqual(min(together["bands"]["min"]), 0.25)
        self.assertEqual({item["gpu"] for item in together["worst"]}, {3})
        self.assertEqual({item["node"] for item in together["worst"]}, set(nodes.values()))
        self.assertIn([1], [item["ranks"] for item in together["worst"]])
        several = self._ask(job_id, entity="gpu", metric=f"{USE},gpu_power_watts", gpus="0")
        self.assertEqual([item["metric"] for item in several["items"]], [USE, "gpu_power_watts"])
        self.assertEqual(self._ask(job_id, entity="gpu", metric="loss")["metrics"], directory["metrics"])
        self.assertNotIn(USE, self.daemon.get(f"/v1/jobs/{job_id}/metrics")["items"], "it is no rank's")

        first, start, width, low, high, rows = self._heatmap(job_id, gpus=f"{lame},15")
        self.assertEqual((first, width, low, high, len(rows)), (lame, 1, 0.25, 0.5, 2))
        self.assertEqual(rows[0][20 - start], 1, "the lowest")
        _, start, width, _, _, rows = self._heatmap(job_id, x="time", columns=50)
        self.assertEqual(len(rows), 16)
        first = min(points[0][0] for points in self._gpu_series(job_id, x="time").values())
        self.assertAlmostEqual(start / 1e6, first, places=4)
        self.assertGreater(width, 0)
        self.assertEqual(set(b"".join(rows)) - {0, 1, 254}, set(), "0.25, 0.5 and nothing")

        for wrong in ("gpus=0", "entity=gpu&gpus=16", "entity=gpu&gpus=1&ranks=1", "entity=cpu", "entity=gpu&ranks=4"):
            status, answer = self.daemon.api("GET", f"/v1/jobs/{job_id}/series?{wrong}")
            self.assertEqual(status, 400, (wrong, answer))

        # As with a power cut: what was there is there, and it goes on with the same numbers.
        before = self._gpu_series(job_id, x="time")
        self.daemon.kill9()
        self.daemon.start()
        after = self._gpu_series(job_id, x="time")
        for gpu, points in before.items():
            self.assertEqual(after[gpu][:len(points)], points, f"GPU {gpu}")
        self._tell(30)
        self._wait_value(job_id, lame, 30, 0.25)
        self.assertEqual([(gpu["node"], gpu["gpu"]) for gpu in self._directory(job_id)["items"]],
                         [(gpu["node"], gpu["gpu"]) for gpu in directory["items"]])

        # Its end, and long after.
        (self.root / "go").touch()
        self.assertEqual(self.daemon.wait_state(job_id, harness.FINAL, 60)["state"], "succeeded")
        harness.wait_until(lambda: "\nlockstep_ingest_queue_depth 0\n" in self.daemon.text("/metrics"), 60,
                           "a look that came while the end was written is stored too")
        over = self._all(job_id)
        self.assertEqual({gpu["id"]: gpu["ranks"] for gpu in over[0]["items"] if gpu["ranks"]},
                         {gpu["id"]: [rank] for rank, gpu in of_rank.items()}, "whose it was is still known")
        for gpu, points in before.items():
            self.assertEqual(over[1][gpu][:len(points)], points, f"GPU {gpu}")
        self._check_export(job_id, over, lame)
        self.daemon.restart()
        self.assertEqual(self._all(job_id), over)
        self._check_export(job_id, over, lame)

    def _all(self, job_id):
        return (self._directory(job_id), self._gpu_series(job_id, x="time"),
                self._gpu_series(job_id, "gpu_power_watts", ranks="0-3"),
                self._ask(job_id, entity="gpu", stat="p5,median,p95", worst=3),
                self._heatmap(job_id), self._heatmap(job_id, x="time"),
                self._ask(job_id, "samples", entity="gpu", ranks=2))

    def _check_export(self, job_id, over, lame):
        """Every sample of CSV and of JSON lines is a point of the series by time."""
        node = over[0]["items"][lame]["node"]
        text = self.daemon.cli("export", job_id, "--gpus", "--metric", USE, "--csv", "-").stdout
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        self.assertEqual(list(rows[0]), ["node", "gpu", "ranks", "attempt", "generation", "step", "time", "metric",
                                         "value"])
        mine = [(float(row["time"]), float(row["value"])) for row in rows if (row["node"], row["gpu"]) == (node, "3")]
        self.assertEqual(mine, [(p[0], p[3]) for p in over[1][lame]])
        self.assertEqual({row["ranks"] for row in rows if (row["node"], row["gpu"]) == (node, "3")}, {"1"})
        self.assertEqual(len(rows), sum(len(points) for points in over[1].values()))
        text = self.daemon.cli("export", job_id, "--gpus", "--rank", "1", "--metric", USE, "--json", "-").stdout
        lines = [json.loads(line) for line in text.splitlines()]
        self.assertEqual([(line["time"], line["value"]) for line in lines], mine)
        self.assertEqual((lines[-1]["node"], lines[-1]["gpu"], lines[-1]["ranks"], lines[-1]["metric"]),
                         (node, 3, [1], USE))

    def test_a_job_without_gpus_has_none(self):
        self.write("gpus 0")
        (self.root / "step").write_text("3")
        job_id = self.daemon.submit(harness.python_job("none", "steps_as_told.py", self.root))["id"]
        self.daemon.wait_for(job_id, lambda job: job.get("step", 0) == 3, 60, "the steps are reported")
        (self.root / "go").touch()
        self.daemon.wait_state(job_id, harness.FINAL, 60)
        for _ in range(2):
            self.assertEqual(self._directory(job_id), {"total": 0, "metrics": [], "items": []})
            answer = self._ask(job_id, entity="gpu")
            self.assertEqual((answer["series"], answer["metrics"]), ([], []))
            self.assertEqual(self._heatmap_rows(job_id), 0)
            self.daemon.restart()

    def _heatmap_rows(self, job_id):
        status, _, data = self.daemon.request("GET", f"/v1/jobs/{job_id}/heatmap?entity=gpu")
        self.assertEqual((status, len(data)), (200, HEAD.size))
        return HEAD.unpack_from(data)[3]


if __name__ == "__main__":
    harness.main()
