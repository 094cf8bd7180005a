"""Horovod's rendezvous, served by the agent of rank 0, under ranks that play Horovod's client. A real one meets in
tests/frameworks."""

import harness
from harness import FIXTURES, PYTHON


class Rendezvous(harness.TestCase):
    def run_job(self, command, environment=None, **fields):
        environment = {"PYTHONPATH": str(harness.PYTHON_PACKAGE), **(environment or {})}
        job = self.daemon.submit({"name": "hvd", "framework": "horovod", "command": command,
                                  "environment": environment,
                                  "resources": {"nodes": 2, "ranks_per_node": 2}, **fields})
        done = self.daemon.wait_state(job["id"], harness.FINAL, 120)
        return done, [self.daemon.rank_log(job["id"], rank) for rank in range(4)]

    def test_four_ranks_on_two_nodes_meet_twice(self):
        done, logs = self.run_job([PYTHON, str(FIXTURES / "http_store.py")])
        self.assertEqual(done["state"], "succeeded", (done, logs))
        for log in logs:
            self.assertIn("met 4 generation 1", log)

    def test_another_generation_meets_afresh(self):
        # In the first, rank 3 goes after it has put what the others wait for in vain.
        script = ("import http.client, os\n"
                  "if os.environ['LOCKSTEP_GENERATION'] == '1' and os.environ['RANK'] == '3':\n"
                  "    line = http.client.HTTPConnection(os.environ['HOROVOD_GLOO_RENDEZVOUS_ADDR'],\n"
                  "                                      int(os.environ['HOROVOD_GLOO_RENDEZVOUS_PORT']))\n"
                  "    line.request('PUT', '/global/3', b'of a rank that is gone')\n"
                  "    assert line.getresponse().status == 200\n"
                  "    os._exit(7)\n"
                  f"exec(open({str(FIXTURES / 'http_store.py')!r}).read())\n")
        done, logs = self.run_job([PYTHON, "-c", script], recovery={"max_restarts": 1})
        self.assertEqual(done["state"], "succeeded", (done, logs))
        for log in logs:
            self.assertIn("met 4 generation 2", log)

    def test_a_job_with_its_own_server_is_not_served(self):
        script = ("import os, socket\n"
                  "held = socket.socket()\n"
                  "if os.environ['RANK'] == '0':\n"
                  "    held.bind(('', int(os.environ['MASTER_PORT'])))\n"
                  "print('theirs', os.environ['HOROVOD_GLOO_RENDEZVOUS_PORT'], flush=True)\n")
        done, logs = self.run_job([PYTHON, "-c", script], environment={"HOROVOD_GLOO_RENDEZVOUS_PORT": "1"})
        self.assertEqual(done["state"], "succeeded", (done, logs))
        self.assertIn("theirs 1", logs[0])


if __name__ == "__main__":
    harness.main()
