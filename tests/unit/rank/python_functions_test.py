"""What lockstep.functions says of a job that has ended, by what its ranks have left, and how lockstep.daemon waits and
submits behind a proxy: whole jobs are tests/integration/test_python_package.py's."""

import asyncio
import contextlib
import json
import os
import pathlib
import pickle
import re
import sys
import tempfile
import unittest
from unittest import mock

from python_hooks_test import HOOKS

sys.path.insert(0, str(HOOKS.parent))
from lockstep import daemon, functions

SCHEMA = pathlib.Path(__file__).resolve().parents[3] / "job/model/spec/spec_schema_text.cpp"


def returns(value):
    return value


def raises(words):
    raise ValueError(words)


class Outcome(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_rank(self, rank, generation, function, argument, attempt=1):
        with open(self.folder / "call.pickle", "wb") as file:
            pickle.dump((function, (argument,), {}), file)
        with mock.patch.dict(os.environ, {"LOCKSTEP_JOB_ID": "ls-x", "LOCKSTEP_RANK": str(rank),
                                          "LOCKSTEP_ATTEMPT": str(attempt), "LOCKSTEP_GENERATION": str(generation)}):
            try:
                functions._run(self.folder)
            except ValueError:
                pass

    def job(self, state, generation, world_size=2, attempt=1, **cause):
        """Of two nodes with a rank each."""
        document = {"id": "ls-x", "name": "train", "state": state, "attempts": [
            {"number": number, "generations": [] if generation == 0 else
             [{"number": one, "world_size": world_size} for one in range(1, generation + 1)]}
            for number in range(1, attempt + 1)]}
        if cause:
            document["cause"] = cause
        return functions.FunctionJob(mock.Mock(wait=mock.Mock(return_value=document)), "ls-x", self.folder, 2)

    def test_an_exception_of_the_newest_generation_is_why(self):
        self.run_rank(1, 2, raises, "a broken image")
        with self.assertRaises(functions.FunctionFailed) as caught:
            self.job("failed", 2, rank=1, message="ValueError").result()
        self.assertEqual(str(caught.exception.__cause__), "a broken image")
        self.assertIn("in raises", caught.exception.traceback)

    def test_an_exception_before_a_restart_is_not_why_the_job_failed(self):
        # Rank 1 raised, all went on, and later its node was lost: result() raised the first one's exception.
        self.run_rank(1, 1, raises, "a connection reset")
        for job in (self.job("failed", 2, rank=1, message="the node n2 is lost"),
                    self.job("failed", 1, attempt=2, rank=1, message="the node n2 is lost"),
                    self.job("failed", 0, attempt=2, rank=1, message="no such partition")):
            with self.assertRaises(functions.JobFailed) as caught:
                job.result()
            self.assertNotIsInstance(caught.exception, functions.FunctionFailed)
            self.assertIsNone(caught.exception.__cause__)

    def test_results_are_those_of_the_ranks_that_there_were_at_the_end(self):
        # Of an elastic job that had lost a node: rank 1's was one of before, or it said that there was none.
        self.run_rank(1, 1, returns, "half")
        self.run_rank(0, 2, returns, "whole")
        job = self.job("succeeded", 2, world_size=1)
        self.assertEqual(job.results(), ["whole"])
        with self.assertRaisesRegex(functions.JobFailed, "rank 1 left nothing"):
            job.result(rank=1)

    def test_results_of_before_an_update_of_lockstep_are_read(self):
        with open(self.folder / "result-0.pickle", "wb") as file:
            pickle.dump({"ok": True, "value": pickle.dumps(7)}, file)
        self.assertEqual(self.job("succeeded", 3).result(), 7)


class Resources(unittest.TestCase):
    def test_each_resource_of_a_specification_is_an_option(self):
        # ranks_per_gpu was none: it became a field beside `resources`, and was refused as unknown.
        text = SCHEMA.read_text(encoding="utf-8")
        schema = text[text.index('"Resources": {'):]
        schema = schema[:schema.index(')json"')]
        named = re.findall(r'^    "(\w+)": \{', schema, re.MULTILINE)
        self.assertIn("nodes", named)
        self.assertEqual(sorted(functions._RESOURCES), sorted(named))


class Proxied(unittest.TestCase):
    """A lockstepd behind a proxy that answers for it while it restarts."""

    def setUp(self):
        self.asked = []

    def answering(self, *answers):
        """A Daemon; until the test ends every one is answered so, one answer after the other."""
        left = list(answers)

        def request(method, path, body=None, headers=None, timeout=None):
            self.asked.append((method, path, headers))
            status, document = left.pop(0)
            return status, json.dumps(document).encode() if document else b"<html>"

        patches = contextlib.ExitStack()
        self.addCleanup(patches.close)
        patches.enter_context(mock.patch.object(daemon.Daemon, "request", side_effect=request))
        patches.enter_context(mock.patch.object(daemon, "_POLL_SECONDS", (0.0, 0.0)))
        return daemon.Daemon("http://127.0.0.1:1", "secret")

    def test_waiting_outlasts_what_a_proxy_says_for_a_lockstepd_that_restarts(self):
        ended = (200, {"id": "ls-x", "state": "succeeded"})
        away = [(502, None), (503, None), (504, None)]
        self.assertEqual(self.answering(*away, ended).wait("ls-x"), ended[1])
        self.answering(*away, ended)
        waiting = daemon.AsyncDaemon("http://127.0.0.1:1", "secret").wait("ls-x")
        self.assertEqual(asyncio.run(waiting), ended[1])

    def test_waiting_ends_with_what_lockstepd_itself_refuses(self):
        with self.assertRaisesRegex(daemon.DaemonError, "404"):
            self.answering((404, {"title": "no such job"})).wait("ls-x")

    def test_a_submission_that_a_proxy_answers_is_repeated_under_its_key(self):
        for status in 502, 504:
            self.asked.clear()
            job = self.answering((status, None), (200, {"id": "ls-x"})).submit({"name": "a"})
            self.assertEqual(job.id, "ls-x")
            self.assertEqual([one[:2] for one in self.asked], [("POST", "/v1/jobs")] * 2)
            self.assertEqual(self.asked[0][2], self.asked[1][2])


if __name__ == "__main__":
    unittest.main()
