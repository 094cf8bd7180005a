"""The agent's TCPStore under torch's own clients: in a process of its own, and in real jobs."""

import pathlib
import subprocess
import unittest

import harness

SERVER = pathlib.Path(harness.BIN).parent / "tests" / "tcp_store_server"
TWO_BY_TWO = {"nodes": 2, "ranks_per_node": 2}

MEET = """
import os, torch, torch.distributed as dist
assert os.environ['TORCHELASTIC_USE_AGENT_STORE'] == 'True', os.environ
dist.init_process_group('gloo', init_method='env://')
value = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(value)
pair = dist.new_group([0, 3])
assert value.item() == 10, value
dist.barrier()
print('sum', value.item(), flush=True)
"""

# Rank 0 hosts a store of its own on MASTER_PORT, whatever torch would do.
HOSTS_ITS_OWN = """
import datetime, os, torch.distributed as dist
rank = int(os.environ['RANK'])
store = dist.TCPStore('0.0.0.0' if rank == 0 else os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']), 4,
                      rank == 0, datetime.timedelta(seconds=60))
dist.init_process_group('gloo', store=store, rank=rank, world_size=4)
dist.barrier()
print('hosted', os.environ['TORCHELASTIC_USE_AGENT_STORE'], flush=True)
# Rank 0 goes last: its store goes with it.
if rank != 0:
    store.add('done', 1)
else:
    while store.add('done', 0) < 3:
        pass
"""

# As a batch script did it: a port of its own for every rank, before its Python begins.
EXPORTS = f"export MASTER_PORT=$PORT; exec {harness.PYTHON} -c \"$MEETS\""
MEETS = """
import os, torch, torch.distributed as dist
dist.init_process_group('gloo')
value = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(value)
print('sum', value.item(), 'at', os.environ['MASTER_PORT'], os.environ['TORCHELASTIC_USE_AGENT_STORE'], flush=True)
dist.barrier()
dist.destroy_process_group()
"""


@unittest.skipUnless(harness.has_module("torch"), "python3-torch is not installed")
class Clients(unittest.TestCase):
    def test_torch_s_own_clients_find_what_torch_s_own_store_has(self):
        with subprocess.Popen([SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            port = server.stdout.readline().strip()
            clients = subprocess.run([harness.PYTHON, harness.FIXTURES / "tcp_store_clients.py", port],
                                     capture_output=True, text=True, timeout=120, check=False)
            said, _ = server.communicate(timeout=60)
        self.assertEqual((clients.returncode, clients.stdout), (0, "good\n"), clients.stderr)
        self.assertRegex(said, r"queries \d{3,} refused 0")


@unittest.skipUnless(harness.has_module("torch"), "python3-torch is not installed")
class Jobs(harness.TestCase):
    def run_job(self, script, **more):
        job = self.daemon.submit({"name": "store", "framework": "pytorch", "resources": TWO_BY_TWO,
                                  "command": [harness.PYTHON, "-c", script], **more})
        done = self.daemon.wait_state(job["id"], harness.FINAL, 180)
        self.assertEqual(done["state"], "succeeded", done)
        return [self.daemon.rank_log(job["id"], rank) for rank in range(4)]

    def test_four_ranks_on_two_nodes_meet_at_the_agent_s_store(self):
        for log in self.run_job(MEET):
            self.assertIn("sum 10.0", log)

    def test_a_script_that_hosts_its_own_store_says_so_and_gets_the_port(self):
        for log in self.run_job(HOSTS_ITS_OWN, environment={"TORCHELASTIC_USE_AGENT_STORE": "False"}):
            self.assertIn("hosted False", log)

    def test_a_script_that_meets_at_a_port_of_its_own_hosts_that_store(self):
        """Its processes took themselves for clients of an agent's store there, and retried for half an hour."""
        for method in ("", "tcp"):
            with self.subTest(method=method):
                job = self.daemon.submit({
                    "name": "spawns", "framework": "pytorch",
                    "command": [harness.PYTHON, str(harness.FIXTURES / "spawns_ranks.py"), method,
                                str(harness.quiet_port())]})
                done = self.daemon.wait_state(job["id"], harness.FINAL, 180)
                self.assertEqual(done["state"], "succeeded", done)
                log = self.daemon.rank_log(job["id"], 0)
                self.assertIn("spawned 0: sum 3.0", log)
                self.assertIn("spawned 1: sum 3.0", log)

    def test_a_port_that_a_shell_exports_is_served_by_rank_0(self):
        port = str(harness.quiet_port())
        job = self.daemon.submit({"name": "exports", "framework": "pytorch", "resources": TWO_BY_TWO,
                                  "environment": {"PORT": port, "MEETS": MEETS}, "command": ["sh", "-c", EXPORTS]})
        done = self.daemon.wait_state(job["id"], harness.FINAL, 180)
        self.assertEqual(done["state"], "succeeded", done)
        for rank in range(4):
            self.assertIn(f"sum 10.0 at {port} True", self.daemon.rank_log(job["id"], rank))


if __name__ == "__main__":
    harness.main()
