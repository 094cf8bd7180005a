"""lockstep.ray where Ray takes its time: what a cluster does is tests/frameworks/test_ray.py's."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

from python_hooks_test import HOOKS

sys.path.insert(0, str(HOOKS.parent))
import lockstep.ray


class Connect(unittest.TestCase):
    def setUp(self):
        self.asked = []
        self.refusals = 0
        self.node = mock.Mock()
        ray = types.SimpleNamespace(init=self.init, shutdown=mock.Mock())
        for patch in (mock.patch.dict(sys.modules, {"ray": ray}), mock.patch.object(lockstep.ray, "_LOOK_SECONDS", 0)):
            patch.start()
            self.addCleanup(patch.stop)

    def init(self, **arguments):
        self.asked.append(arguments["address"])
        if len(self.asked) <= self.refusals:
            raise ConnectionError("Failed to connect to Ray cluster")

    def test_a_head_that_takes_no_driver_yet_is_asked_again(self):
        # Its port was open: the script's rank failed, and with it the job's generation.
        self.refusals = 2
        self.assertIs(lockstep.ray._connect(self.node, "h:1", time.monotonic() + 60), sys.modules["ray"])
        self.assertEqual(self.asked, ["h:1"] * 3)
        self.assertEqual(self.node.check.call_count, 2)

    def test_but_not_for_ever(self):
        self.refusals = 2
        with self.assertRaises(ConnectionError):
            lockstep.ray._connect(self.node, "h:1", time.monotonic() - 1)

    def test_nor_once_the_head_has_ended(self):
        self.refusals = 100
        self.node.check.side_effect = SystemExit("lockstep.ray: ray start ended with 1 on node 0")
        with self.assertRaises(SystemExit):
            lockstep.ray._connect(self.node, "h:1", time.monotonic() + 60)


class Meeting(unittest.TestCase):
    """Where the head is was in the key store: whoever had taken over lockstepd could have the workers of a signed job
    join a cluster of another's, and run what that one says."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        patch = mock.patch.dict(os.environ, {"TORCHELASTIC_ERROR_FILE": f"{self.folder}/rank-00001.error.json"})
        patch.start()
        self.addCleanup(patch.stop)
        self.place = lockstep.RankContext(rank=1, world_size=2, job_id="ls-test", generation=3)
        self.path = lockstep.ray._meeting_file(self.place)

    def test_the_workers_join_whom_their_users_file_names_whatever_the_key_store_says(self):
        lockstep.ray._tell(self.path, "10.0.0.1:5", "ours")
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o600)
        self.assertEqual(os.listdir(self.folder), ["ray-head-3.json"])
        with mock.patch.multiple(lockstep, wait=mock.Mock(), get=mock.Mock(return_value=b"6.6.6.6:6"), set=mock.Mock()), \
                mock.patch.object(lockstep.ray, "_Node") as node, mock.patch.dict(os.environ):
            self.assertEqual(lockstep.ray._worker(self.place, []), 0)
            self.assertEqual(os.environ["RAY_AUTH_TOKEN"], "ours")
            node.assert_called_once_with(self.place, "10.0.0.1:5", [], "")
            lockstep.get.assert_not_called()

    def test_nor_does_rank_0_tell_the_key_store(self):
        place = lockstep.RankContext(rank=0, world_size=2, job_id="ls-test", generation=3, address="10.0.0.1")
        seen = []
        with mock.patch.multiple(lockstep, set=mock.Mock()), \
                mock.patch.multiple(lockstep.ray, _Node=mock.Mock(), _drive=mock.Mock(return_value=0),
                                    _wait_for_nodes=lambda *_: seen.append(lockstep.ray._find(self.path))), \
                mock.patch.dict(os.environ, {"MASTER_PORT": "5"}):
            os.environ.pop("RAY_AUTH_MODE", None)
            self.assertEqual(lockstep.ray._head(place, [], ["true"]), 0)
            token = os.environ["RAY_AUTH_TOKEN"]
            told = [word for call in lockstep.set.call_args_list for word in call.args]
        self.assertEqual(seen, [("10.0.0.1:5", token)])
        self.assertFalse({token, "10.0.0.1:5"} & set(told))
        self.assertEqual(os.listdir(self.folder), [], "over, and nothing is left")

    def test_a_file_of_somebody_else_s_is_not_read(self):
        lockstep.ray._tell(self.path, "10.0.0.1:5", "theirs")
        with mock.patch.object(os, "geteuid", return_value=os.getuid() + 1):
            with self.assertRaisesRegex(SystemExit, "another user"):
                lockstep.ray._find(self.path)
        os.rename(self.path, self.path + ".own")
        os.symlink(self.path + ".own", self.path)
        with self.assertRaises(OSError):
            lockstep.ray._find(self.path)


# lockstep.ray's head without a Ray, and a driver that saves when it is told to end.
HEAD = """
import os, signal, sys
from unittest import mock
import lockstep, lockstep.ray
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as main() does
os.environ.update(MASTER_PORT="1", RAY_AUTH_MODE="none", LOCKSTEP_JOB_ID="ls-test")
with mock.patch.multiple(lockstep.ray, _Node=mock.Mock(), _wait_for_nodes=mock.Mock()):
    code = lockstep.ray._head(lockstep.context(), [], [sys.executable, "-c", sys.argv[1]])
print("the driver ended with", code, flush=True)
"""
DRIVER = """
import signal, time
def save(number, _frame):
    time.sleep(0.3)  # it takes a while
    print("saved", flush=True)
    raise SystemExit(3)
signal.signal(signal.SIGTERM, save)
print("trains", flush=True)
signal.pause()
"""


class Driver(unittest.TestCase):
    def test_one_that_saves_when_the_job_is_told_to_end_has_the_time_for_it(self):
        # It was killed in the moment in which the rank was told.
        with subprocess.Popen([sys.executable, "-B", "-c", HEAD, DRIVER], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONPATH": str(HOOKS.parent)}, start_new_session=True) as head:
            try:
                self.assertEqual(head.stdout.readline(), "trains\n")
                os.killpg(head.pid, signal.SIGTERM)  # as the agent does
                self.assertEqual(head.communicate(timeout=60)[0], "saved\nthe driver ended with 3\n")
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(head.pid, signal.SIGKILL)
                raise

    def test_without_lockstep_the_script_takes_the_place_of_this_process(self):
        # Who ended the process by its number left the script running.
        script = "import os, time; print(os.getpid(), flush=True)"
        with subprocess.Popen([sys.executable, "-B", "-m", "lockstep.ray", "--", sys.executable, "-c", script],
                              stdout=subprocess.PIPE, text=True,
                              env={**{k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")},
                                   "PYTHONPATH": str(HOOKS.parent)}) as started:
            self.assertEqual(started.communicate(timeout=60)[0], f"{started.pid}\n")
        self.assertEqual(started.returncode, 0)


if __name__ == "__main__":
    unittest.main()
