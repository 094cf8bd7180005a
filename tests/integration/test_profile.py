"""lockstep profile: the real lockstepd, agents and CLI; scripts that know nothing of it."""

import gzip
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import harness

TRAIN = """
import os, torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def one_step():
    optimizer.zero_grad()
    model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
print("loss 1.0", flush=True)
while not os.path.exists("stop"):
    one_step()
"""
WAITS = """
import os, time; open("pid." + os.environ["LOCKSTEP_RANK"], "w").write(str(os.getpid()))
def waits_here():
    while not os.path.exists("stop"):
        time.sleep(0.01)
print("loss 1.0", flush=True)
waits_here()
"""
SPAWNS = """
import multiprocessing, os, time
def waits_there():
    print("loss 1.0", flush=True)
    while os.path.exists("train.py"):  # the end of the test ends its parent only
        time.sleep(0.01)
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=waits_there)
    child.start()
"""
# Without a word of Python: the process waits in the kernel (state D) for a child that shares its memory, as in vfork(2).
STUCK = """
import ctypes, os, signal
libc, size = ctypes.CDLL(None), 1 << 16
stack = ctypes.create_string_buffer(size)
top = ctypes.c_void_p((ctypes.addressof(stack) + size) & ~63)
CLONE_VM, CLONE_VFORK = 0x100, 0x4000
print("loss 1.0", flush=True)
while not os.path.exists("stop"):
    os.waitpid(libc.clone(libc.sleep, top, CLONE_VM | CLONE_VFORK | signal.SIGCHLD, ctypes.c_void_p(2)), 0)
"""


def harness_read(path):
    """b"" of a process that has ended."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


class Profile(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.work = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="lockstep-profile-")))
        self.output = self.work / "out"

    def run_job(self, text, **fields):
        (self.work / "train.py").write_text(text)
        ranks = fields.setdefault("resources", {"nodes": 1, "ranks_per_node": 2})["ranks_per_node"]
        job = self.daemon.submit({"name": "profiled", "framework": "pytorch", "command": ["/usr/bin/python3", "train.py"],
                                  "working_directory": str(self.work), **fields})["id"]
        self.daemon.wait_state(job, "running")
        harness.wait_until(lambda: all("loss 1.0" in self.daemon.rank_log(job, rank) for rank in range(ranks)), 60,
                           "the script runs on all ranks")
        return job

    def profile(self, job, *words, code=0):
        done = self.daemon.cli("profile", job, "--output", str(self.output), *words, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def names(self):
        return sorted(path.name for path in self.output.iterdir())

    @unittest.skipUnless(harness.has_module("torch"), "python3-torch is not installed")
    def test_the_chosen_rank_of_a_torch_script(self):
        job = self.run_job(TRAIN)
        done = self.profile(job, "--ranks", "1", "--seconds", "1")
        self.assertEqual(self.names(), ["rank-00001.operations.txt", "rank-00001.stacks.txt", "rank-00001.trace.json.gz"],
                         done.stderr)
        self.assertIn("recording 1 rank for 1 s", done.stderr)
        self.assertIn("one_step (train.py:", (self.output / "rank-00001.stacks.txt").read_text())
        with gzip.open(self.output / "rank-00001.trace.json.gz") as file:
            trace = json.load(file)
        names = {one.get("name", "") for one in (trace if isinstance(trace, list) else trace["traceEvents"])}
        self.assertIn("aten::mm", {name.replace("addmm", "mm") for name in names})
        self.assertIn("Self CPU", (self.output / "rank-00001.operations.txt").read_text())
        # Kept with the job: its events, its folder, once more after its end.
        [event] = [one for one in self.daemon.events(job) if one["kind"] == "profile_taken"]
        self.assertEqual((event["data"]["number"], event["data"]["seconds"]), (1, 1))
        self.assertIn("stacks of 1 of 1 ranks, traces of 1", self.daemon.cli("events", job).stdout)
        self.assertGreater(self.daemon.get(f"/v1/jobs/{job}/disk")["evidence_bytes"], 1000)
        self.profile(job, "--seconds", "1")
        (self.work / "stop").touch()
        self.daemon.wait_state(job, "succeeded")
        whole = {path.name: path.read_bytes() for path in self.output.iterdir()}
        for path in self.output.iterdir():
            path.unlink()
        self.profile(job, "--last")
        self.assertEqual({path.name: path.read_bytes() for path in self.output.iterdir()}, whole)
        self.assertEqual(len(whole), 6)
        self.profile(job, code=6)  # it is over

    # torch has one profiler at a time: ours ended the script's, whose stop() then raised in the training.
    @unittest.skipUnless(harness.has_module("torch"), "python3-torch is not installed")
    def test_a_script_that_profiles_itself_is_left_alone(self):
        whole = TRAIN.replace("while not", "own = torch.profiler.profile()\nown.start()\none_step()\nwhile not") + """
    import time; time.sleep(0.02)
own.stop()
open("own." + os.environ["LOCKSTEP_RANK"], "w").write(str(len(own.events())))
"""
        job = self.run_job(whole)
        done = self.profile(job, "--seconds", "1")
        self.assertEqual(self.names(), ["rank-00000.stacks.txt", "rank-00001.stacks.txt"], done.stderr)
        self.assertIn("no trace: the script's own torch profiler is on", done.stderr)
        (self.work / "stop").touch()
        self.daemon.wait_state(job, "succeeded")
        for rank in range(2):
            self.assertGreater(int((self.work / f"own.{rank}").read_text()), 1)

    @unittest.skipUnless(harness.has_module("torch"), "python3-torch is not installed")
    def test_a_script_that_begins_to_profile_itself_ends_ours(self):
        often = TRAIN + """
    with torch.profiler.profile() as own:
        one_step()
    assert own.events(), "the script's own recording is empty"
    open("own", "a").write(".")
"""
        job = self.run_job(often, resources={"nodes": 1, "ranks_per_node": 1})
        self.profile(job, "--seconds", "1")
        self.assertIn("rank-00000.stacks.txt", self.names())
        before = (self.work / "own").stat().st_size
        harness.wait_until(lambda: (self.work / "own").stat().st_size > before, 30, "it goes on")
        (self.work / "stop").touch()
        self.daemon.wait_state(job, "succeeded")

    def test_without_torch_there_are_stacks_and_the_reason(self):
        job = self.run_job(WAITS, framework="command")
        done = self.profile(job, "--seconds", "1")
        self.assertEqual(self.names(), ["rank-00000.stacks.txt", "rank-00001.stacks.txt"])
        self.assertIn("waits_here (train.py:5)", (self.output / "rank-00000.stacks.txt").read_text())
        self.assertIn("rank 1 on ", done.stderr)
        self.assertIn("no trace: this process has not imported torch", done.stderr)
        folders = self.socket_folders(job)
        self.assertTrue(folders, "no process of the job names its socket")
        self.assertEqual([path for folder in folders for path in folder.glob("profile.*")], [], "what the ranks wrote is removed")

    def test_processes_that_a_script_starts_are_there_too(self):
        job = self.run_job(SPAWNS + "    while child.is_alive(): time.sleep(0.01)\n", framework="command",
                           resources={"nodes": 1, "ranks_per_node": 1})
        self.profile(job, "--seconds", "1")
        self.assertIn("<module> (train.py:10)", (self.output / "rank-00000.stacks.txt").read_text())
        self.assertIn("waits_there", (self.output / "rank-00000.2.stacks.txt").read_text())
        self.assertEqual(len(self.names()), 2, "multiprocessing's own helper is none of the script's")

    # It was said to run neither Python nor lockstep-train: on a busy machine a short wait for the disk looks the same.
    def test_one_that_waits_in_the_kernel_for_a_moment_is_a_python_all_the_same(self):
        job = self.run_job(STUCK, framework="command", resources={"nodes": 1, "ranks_per_node": 1})
        pid = self.daemon.get(f"/v1/jobs/{job}/ranks")["items"][0].get("pid")
        self.assertIsNotNone(pid)
        harness.wait_until(lambda: b"(disk sleep)" in harness_read(pathlib.Path(f"/proc/{pid}/status")), 20, "it waits")
        self.profile(job, "--seconds", "1")
        self.assertEqual(self.names(), ["rank-00000.stacks.txt"])
        (self.work / "stop").touch()
        self.daemon.wait_state(job, "succeeded")

    def test_one_that_waits_for_another_is_not_waited_for_long(self):
        # waitpid(2) goes on after a signal: its Python hears of nothing before the child has ended.
        job = self.run_job(SPAWNS + "    child.join()\n", framework="command", resources={"nodes": 1, "ranks_per_node": 1})
        begun = time.monotonic()
        done = self.profile(job, "--seconds", "1")
        self.assertLess(time.monotonic() - begun, 35)  # 14 as a rule; 42 if it were waited for
        self.assertIn("no profile: it waits for another process", done.stderr)
        self.assertIn("waits_there", "".join(path.read_text() for path in self.output.iterdir()))

    @unittest.skipUnless(os.access(harness.BIN / "lockstep-train", os.X_OK), "lockstep-train is not built: no LibTorch")
    def test_the_native_trainer_has_its_steps_layers_and_operations(self):
        job = self.daemon.submit(harness.small_native_job("native", 1, 2, epochs=100_000))["id"]
        self.daemon.wait_state(job, "running")
        harness.wait_until(lambda: self.daemon.get(f"/v1/jobs/{job}").get("step", 0) > 3, 120, "it makes steps")
        done = self.profile(job, "--seconds", "2")
        self.assertEqual(self.names(), ["rank-00000.operations.txt", "rank-00000.trace.json.gz",
                                        "rank-00001.operations.txt", "rank-00001.trace.json.gz"], done.stderr)
        self.assertNotIn("no profile", done.stderr)
        for rank in ("00000", "00001"):
            with gzip.open(self.output / f"rank-{rank}.trace.json.gz") as file:
                events = json.load(file)["traceEvents"]
            steps = [one for one in events if one["cat"] == "step"]
            self.assertGreater(len(steps), 1)
            self.assertGreaterEqual(sum(one["dur"] for one in steps), 2e6)
            names = {one["name"] for one in events}
            self.assertLessEqual({"data wait", "forward", "backward", "comm wait", "optimizer"}, names)
            self.assertTrue(any(name.startswith("layer 1: ") for name in names), names)
            self.assertTrue(any(name.startswith("aten::") for name in names), names)
            table = (self.output / f"rank-{rank}.operations.txt").read_text()
            self.assertIn(f"{len(steps)} steps", table)
            self.assertRegex(table, r"(?m)^forward +\d+\.\d+ +\d+\.\d%$")
        # From the node, too; and the training goes on.
        node = self.work / "node"
        here = subprocess.run(["/usr/bin/python3", "-m", "lockstep.profile", "--job", job, "--ranks", "1", "--seconds", "1", "--output",
                               str(node)], env={**os.environ, "PYTHONPATH": str(harness.SOURCE / "job/rank/python")}, text=True,
                              capture_output=True, timeout=120)
        self.assertEqual(here.returncode, 0, here.stderr)
        self.assertEqual(sorted(path.name.split(".", 2)[2] for path in node.iterdir()), ["operations.txt", "trace.json.gz"])
        step = self.daemon.get(f"/v1/jobs/{job}")["step"]
        harness.wait_until(lambda: self.daemon.get(f"/v1/jobs/{job}")["step"] > step, 60, "it goes on")
        self.assertEqual(len(self.daemon.get(f"/v1/jobs/{job}")["attempts"][0]["generations"]), 1)
        self.daemon.api("POST", f"/v1/jobs/{job}/cancel")

    def test_what_cannot_be_profiled_says_why(self):
        job = self.run_job("", framework="command",
                           command=["/bin/sh", "-c", "echo loss 1.0; while [ ! -e stop ]; do sleep 0.1; done"])
        done = self.profile(job, "--ranks", "0", "--seconds", "1", code=3)
        self.assertIn("rank 0 on ", done.stderr)
        self.assertIn("no profile: it runs neither Python nor lockstep-train", done.stderr)
        for words, code, why in ((("--ranks", "5"), 2, "the job has 0-1"), (("--ranks", "x"), 2, "--ranks x"),
                                 (("--seconds", "0"), 2, "--seconds"), (("--seconds", "61"), 2, "--seconds")):
            self.assertIn(why, self.profile(job, *words, code=code).stderr)
        answer = self.daemon.api("POST", f"/v1/jobs/{job}/profiles", {"rank": "0"})
        self.assert_problem(answer, 400, "/rank")
        self.output = self.work / "train.py"
        self.assertIn("--output", self.profile(job, "--last", code=8).stderr)

    def test_a_rank_that_ends_meanwhile(self):
        job = self.run_job(WAITS, framework="command")
        asking = subprocess.Popen([harness.BIN / "lockstep", "profile", job, "--seconds", "30", "--output", str(self.output)],
                                  env=self.daemon.cli_environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertIn("recording 2 ranks", asking.stderr.readline())
        (self.work / "stop").touch()
        _, err = asking.communicate(timeout=60)
        self.assertEqual(asking.returncode, 3, err)
        self.assertIn("no profile: ", err)
        self.daemon.wait_state(job, "succeeded")

    def test_lockstepd_is_killed_and_asked_again(self):
        job = self.run_job(WAITS, framework="command")
        answer = self.daemon.api("POST", f"/v1/jobs/{job}/profiles", {"ranks": "0", "seconds": 3})
        self.assertEqual(answer[0], 202, answer)
        [socket] = {path.parent for path in self.questions(job)}
        self.daemon.kill9()
        self.daemon.start()
        self.daemon.wait_for(job, lambda one: one["state"] == "running")
        # The ranks record still what the first has asked for; whoever comes next is answered after it.
        harness.wait_until(lambda: self.daemon.get(f"/v1/jobs/{job}/nodes")["items"][0].get("agent_age_seconds", 99) < 5, 60,
                           "its agent is back")
        self.profile(job, "--ranks", "0", "--seconds", "1")
        self.assertEqual(self.names(), ["rank-00000.stacks.txt"])
        self.assertEqual(len(self.daemon.get(f"/v1/jobs/{job}/profiles")["items"]), 1, "the first is lost, and no other")
        self.assertEqual(list(socket.glob("profile.*")), [])

    def socket_folders(self, job):
        """Where its ranks are asked and answer."""
        sockets = [word.split(b"=", 1)[1].decode() for path in pathlib.Path("/proc").glob("[0-9]*/environ")
                   for word in harness_read(path).split(b"\0") if word.startswith(b"LOCKSTEP_SOCKET=")
                   and job.encode() in harness_read(path)]
        return {pathlib.Path(socket).parent for socket in sockets}

    def questions(self, job):
        def found():
            return [one for folder in self.socket_folders(job) for one in folder.glob("profile.*.ask")]
        return harness.wait_until(found, 20, "a process is asked")

    def test_two_at_once(self):
        job = self.run_job(WAITS, framework="command", resources={"nodes": 1, "ranks_per_node": 1})
        self.assertEqual(self.daemon.api("POST", f"/v1/jobs/{job}/profiles", {"seconds": 2})[0], 202)
        self.assertIn("is under way", self.profile(job, code=6).stderr)
        harness.wait_until(lambda: self.daemon.get(f"/v1/jobs/{job}/profiles")["items"], 30, "the first is done")
        # The node's own program asks the same process.
        self.assertEqual(self.daemon.api("POST", f"/v1/jobs/{job}/profiles", {"seconds": 3})[0], 202)
        self.questions(job)
        package = pathlib.Path(harness.__file__).resolve().parents[2] / "job" / "rank" / "python"
        done = subprocess.run(["/usr/bin/python3", "-m", "lockstep.profile", "--job", job, "--output", str(self.output)],
                              env={**os.environ, "PYTHONPATH": str(package)}, capture_output=True, text=True, check=False,
                              timeout=60)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("somebody else has asked", done.stderr)

    def test_a_stopped_rank_and_a_folder_that_cannot_be_written(self):
        job = self.run_job(WAITS, framework="command")
        pid = int((self.work / "pid.1").read_text())
        os.kill(pid, signal.SIGSTOP)
        done = self.profile(job, "--seconds", "1")
        self.assertEqual(self.names(), ["rank-00000.stacks.txt"])
        self.assertIn("no profile: the process is stopped", done.stderr)
        os.kill(pid, signal.SIGCONT)
        [attempt] = self.daemon.data.glob(f"runs/{job}/a1")
        shutil.rmtree(attempt / "profile")
        (attempt / "profile").write_text("in the way")
        done = self.profile(job, "--ranks", "0", "--seconds", "1", code=3)
        self.assertIn("Not a directory", done.stderr)

    @unittest.skipUnless(os.geteuid() == 0, "mounts a small file system: root only")
    @unittest.skipUnless(os.access(harness.BIN / "lockstep-train", os.X_OK), "lockstep-train is not built: no LibTorch")
    def test_of_a_full_disk_there_is_what_fits_and_no_half_of_a_file(self):
        job = self.daemon.submit(harness.small_native_job("native", 1, 1, epochs=100_000))["id"]
        harness.wait_until(lambda: self.daemon.get(f"/v1/jobs/{job}").get("step", 0) > 3, 120, "it makes steps")
        [attempt] = self.daemon.data.glob(f"runs/{job}/a1")
        (attempt / "profile").mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "lockstep-test", attempt / "profile"], capture_output=True,
                                 text=True, check=False)
        if mounted.returncode != 0:
            self.skipTest(f"no tmpfs can be mounted here: {mounted.stderr}")
        # Whatever comes: of a folder that something is mounted on the daemon's data would stay.
        self.addCleanup(subprocess.run, ["umount", "--lazy", attempt / "profile"], check=True)
        done = self.profile(job, "--seconds", "1")
        self.assertEqual(self.names(), ["rank-00000.operations.txt"])
        self.assertRegex(done.stderr, r"rank 0 on \S+: no trace.json.gz: .*No space left on device")
        left = [path.name for path in (attempt / "profile").rglob("*") if path.is_file()]
        self.assertEqual(left, ["operations.txt"])
        subprocess.run(["mount", "-o", "remount,size=64m", attempt / "profile"], check=True)
        self.profile(job, "--seconds", "1")
        self.assertEqual(self.names(), ["rank-00000.operations.txt", "rank-00000.trace.json.gz"])


if __name__ == "__main__":
    harness.main()
