"""lockstep.ray where Ray takes its time: what a cluster does is tests/frameworks/test_ray.py's."""

import sys
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


if __name__ == "__main__":
    unittest.main()
