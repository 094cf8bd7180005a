"""recovery.warm_standby: after a failure the ranks are processes that have waited, with their modules imported, and a
script finds no difference. Real processes on the local scheduler."""

import json
import os
import pathlib
import signal

import harness

RANKS = 2


class WarmStandby(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.root / "run"
        self.folder.mkdir()

    def submit(self, *words, command=None, modules=("slow_to_import",), script=harness.FIXTURES / "warm_rank.py", **fields):
        command = command or [harness.PYTHON, "-u", str(script), str(self.folder), "{master_port}", *words]
        fields.setdefault("environment", {"PYTHONPATH": str(harness.PYTHON_PACKAGE)})
        return self.daemon.submit({
            "name": "warm", "framework": "pytorch", "command": command, "resources": {"ranks_per_node": RANKS},
            "recovery": {"max_restarts": 3, "warm_standby": list(modules)}, **fields})["id"]

    def told(self, generation, rank):
        path = self.folder / f"{generation}-{rank}.json"
        harness.wait_until(path.exists, 60, f"rank {rank} of generation {generation} begins")
        return json.loads(path.read_text())

    def all_told(self, generation):
        """Also that no other process than these has begun the script of their ranks."""
        told = [self.told(generation, rank) for rank in range(RANKS)]
        for rank, one in enumerate(told):
            self.assertIn(f"{generation} {rank} {one['pid']}", self.starts())
        self.assert_began_once()
        return told

    def starts(self):
        return (self.folder / "starts").read_text().splitlines()

    def assert_began_once(self):
        began = [tuple(line.split()[:2]) for line in self.starts()]
        self.assertEqual(len(set(began)), len(began), f"a script has begun twice in a generation: {self.starts()}")

    def standbys(self):
        return harness.waiting_standbys(str(self.folder))

    def wait_for_standbys(self):
        harness.wait_until(lambda: len(self.standbys()) == RANKS, 60, "the standbys wait")
        self.assertFalse({int(line.split()[2]) for line in self.starts()} & set(self.standbys()), "none has begun the script")

    def started(self, job):
        """How many ranks of each generation had waited."""
        return [event["data"].get("warm", 0) for event in self.daemon.events(job) if event["kind"] == "ranks_started"]

    def warnings(self, job):
        return [text for text in self.daemon.job(job).get("warnings", []) if "standby" in text]

    def wait_for_warning(self, job, *texts):
        def there():
            found = " ".join(self.warnings(job))
            return all(text in found for text in texts)
        harness.wait_until(there, 60, f"a warning: {texts}")

    def finish(self, job):
        (self.folder / "stop").touch()
        done = self.daemon.wait_state(job, "succeeded", 60)
        self.assert_began_once()
        return done

    def test_a_rank_that_had_waited_finds_what_a_cold_one_finds(self):
        job = self.submit()
        cold = self.all_told(1)
        self.wait_for_standbys()
        os.kill(cold[1]["pid"], signal.SIGKILL)
        warm = self.all_told(2)
        self.wait_for_standbys()
        self.finish(job)
        self.assertEqual(self.started(job), [0, RANKS])
        self.assertEqual(self.warnings(job), [])
        ports = [str(event["data"]["master_port"]) for event in self.daemon.events(job)
                 if event["kind"] == "generation_started"]
        for rank, (before, after) in enumerate(zip(cold, warm)):
            self.assertGreater(before["waited"], 0.9)
            self.assertEqual(after["waited"], 0, "the module was imported before the script began")
            self.assertEqual(after["here"]["environment"]["LOCKSTEP_GENERATION"], "2")
            self.assertEqual(after["here"]["environment"]["TORCHELASTIC_RESTART_COUNT"], "1")
            self.assertEqual(after["here"]["a child's generation"], "2")
            self.assertEqual(after["here"]["environment"]["MASTER_PORT"], ports[1])
            # What is another in each generation is that of the first; then nothing differs.
            text = json.dumps(after["here"]).replace(ports[1], ports[0])
            here = json.loads(text)
            here["environment"].update(LOCKSTEP_GENERATION="1", TORCHELASTIC_RESTART_COUNT="0")
            here["a child's generation"] = "1"
            self.assertEqual(sorted(here["environment"].items()), sorted(before["here"]["environment"].items()))
            here["environment"] = before["here"]["environment"]
            self.assertEqual(here, before["here"], f"rank {rank}")
        self.assertIn("rank 1 of generation 2", self.daemon.rank_log(job, 1))
        # The job has succeeded once its ranks have ended; that it is over the agent hears after that.
        harness.wait_until(lambda: not self.standbys(), 10, "the standbys of the second generation end with the job")

    def test_a_module_run_with_m_and_flags_has_standbys(self):
        """python -W ignore -um warm_rank"""
        job = self.submit(command=[harness.PYTHON, "-W", "ignore", "-um", "warm_rank", str(self.folder), "0"],
                          working_directory=str(harness.FIXTURES))
        cold = self.all_told(1)
        self.wait_for_standbys()
        os.kill(cold[0]["pid"], signal.SIGKILL)
        warm = self.all_told(2)
        self.finish(job)
        self.assertEqual(self.started(job), [0, RANKS])
        for name in ("arguments", "path", "main", "names", "folder"):
            self.assertEqual([one["here"][name] for one in warm], [one["here"][name] for one in cold], name)

    def test_an_exception_of_a_rank_that_had_waited_is_told_as_always(self):
        job = self.submit("raise")
        cold = self.all_told(1)
        self.wait_for_standbys()
        os.kill(cold[1]["pid"], signal.SIGKILL)
        self.daemon.wait_for(job, lambda now: len(now["attempts"][0]["generations"]) == 3, 60, "generation 3")
        self.all_told(3)
        done = self.finish(job)
        cause = done["attempts"][0]["generations"][1]["cause"]
        self.assertEqual((cause["rank"], cause["exception"]["type"]), (0, "ValueError"), cause)
        script = (harness.FIXTURES / "warm_rank.py").read_text().splitlines()
        line = script.index('    raise ValueError("as it is told")') + 1
        log = self.daemon.rank_log(job, 0)
        self.assertIn(f'warm_rank.py", line {line}, in fails', log)
        trace = log[log.index("Traceback (most recent call last):"):log.index("ValueError: as it is told")]
        self.assertEqual(trace.count("File "), 2, "the script's own frames and no others")
        self.assertNotIn("standby", log)

    def test_a_standby_that_cannot_import_is_a_warning_and_a_cold_start(self):
        job = self.submit(modules=["slow_to_import", "no_such_module"])
        cold = self.all_told(1)
        self.wait_for_warning(job, "a rank has no warm standby, so a restart starts it cold: it has ended with exit code 1 before "
                              "it was ready: lockstep: a standby cannot wait: cannot import no_such_module: ModuleNotFoundError")
        os.kill(cold[0]["pid"], signal.SIGKILL)
        self.assertGreater(self.told(2, 0)["waited"], 0.9)
        self.finish(job)
        self.assertEqual(self.started(job), [0, 0])
        self.assertEqual(len(self.warnings(job)), 1, "what is true of all ranks is said once")

    def test_what_it_prints_while_it_imports_is_in_the_log_of_its_rank(self):
        """More than a pipe has room for by itself."""
        (self.root / "loud.py").write_text("print('*' * 200_000 + ' is said', flush=True)\n")
        job = self.submit(modules=["slow_to_import", "loud"],
                          environment={"PYTHONPATH": f"{harness.PYTHON_PACKAGE}:{self.root}"})
        cold = self.all_told(1)
        self.wait_for_standbys()
        os.kill(cold[0]["pid"], signal.SIGKILL)
        self.all_told(2)
        self.finish(job)
        self.assertEqual(self.started(job), [0, RANKS])
        log = self.daemon.rank_log(job, 1)
        self.assertIn("*" * 200_000 + " is said\nrank 1 of generation 2", log)

    def test_a_standby_that_ends_is_a_warning_and_a_cold_start_of_its_rank(self):
        job = self.submit()
        cold = self.all_told(1)
        self.wait_for_standbys()
        waiting = self.standbys()
        self.assertEqual(len(waiting), RANKS)
        first = next(pid for pid in waiting if b"\0RANK=0\0" in pathlib.Path(f"/proc/{pid}/environ").read_bytes())
        os.kill(first, signal.SIGKILL)
        self.wait_for_warning(job, "a rank has no warm standby", "it was ended by signal 9")
        os.kill(cold[0]["pid"], signal.SIGKILL)
        again = self.all_told(2)
        self.finish(job)
        self.assertEqual(self.started(job), [0, 1])
        self.assertGreater(again[0]["waited"], 0.9)
        self.assertEqual(again[1]["waited"], 0)

    def test_what_cannot_wait_is_said(self):
        printer = ("import itertools, time\nfor step in itertools.count(1):\n"
                   "    print(f'epoch: 0, batch: {step}, loss is: [{1 / step}]', flush=True); time.sleep(0.1)")
        for command, why in (([harness.PYTHON, "-I", "-c", printer], "not with python -I"),
                             ([harness.PYTHON, "-c", printer], "not with python -c"),
                             (["/usr/bin/env", "python3", "-c", printer], "its program is not python")):
            with self.subTest(why):
                job = self.submit(command=command)
                self.wait_for_warning(job, "a rank has no warm standby, so a restart starts it cold: " + why)
                self.daemon.api("POST", f"/v1/jobs/{job}/cancel")

    def test_hooks_that_are_off_leave_ranks_without_standbys(self):
        job = self.submit(environment={"PYTHONPATH": str(harness.PYTHON_PACKAGE), "LOCKSTEP_PYTHON_HOOKS": "off"})
        self.all_told(1)
        self.wait_for_warning(job, "does not load Lockstep's hooks")
        self.assertEqual(self.standbys(), [])
        self.finish(job)

    def test_refused_where_lockstep_does_not_start_the_python(self):
        for fields, text in (({"launch": "node"}, "needs launch rank"),
                             ({"framework": "native", "command": None}, "is for a Python command"),
                             ({"recovery": {"warm_standby": ["no-name"]}}, "is the name of none")):
            spec = {"name": "warm", "framework": "pytorch", "command": ["python3", "x.py"],
                    "recovery": {"warm_standby": ["torch"]}, **fields}
            spec = {name: value for name, value in spec.items() if value is not None}
            with self.subTest(fields):
                self.assert_problem(self.daemon.api("POST", "/v1/jobs", spec), 400, "/recovery/warm_standby", text)

    def test_nothing_is_left_by_a_cancelled_job(self):
        job = self.submit()
        self.all_told(1)
        self.wait_for_standbys()
        self.assertEqual(len(self.standbys()), RANKS)
        self.daemon.api("POST", f"/v1/jobs/{job}/cancel")
        self.daemon.wait_state(job, "cancelled")
        harness.wait_until(lambda: not harness.processes_with(str(self.folder)), 10, "no process is left")

    def test_nothing_is_left_by_an_agent_that_is_killed(self):
        job = self.submit()
        self.all_told(1)
        self.wait_for_standbys()
        agents = [event["data"]["pid"] for event in self.daemon.events(job) if event["kind"] == "agent_claimed"]
        waiting = self.standbys()
        os.kill(agents[0], signal.SIGKILL)
        harness.wait_until(lambda: not set(waiting) & set(harness.processes_with(str(self.folder))), 10, "they are gone")
        self.daemon.api("POST", f"/v1/jobs/{job}/cancel")


if __name__ == "__main__":
    harness.main()
