"""What lockstepd remembers of a node, over a kill -9 of itself. With the local scheduler every node is this machine."""

import os
import signal

import harness


class NodeHistory(harness.TestCase):
    def node(self):
        found, = self.daemon.get("/v1/nodes")["items"]
        return found

    def test_a_lost_node_is_remembered_and_so_is_a_good_run(self):
        self.assertNotIn("history", self.node())
        job = self.daemon.submit({"name": "lost", "framework": "command", "command": ["sleep", "600"],
                                  "resources": {"nodes": 2}})["id"]
        self.daemon.wait_state(job, "running")
        claims = {event["data"]["node_rank"]: event["data"]["pid"] for event in self.daemon.events(job)
                  if event["kind"] == "agent_claimed"}
        os.kill(claims[1], signal.SIGKILL)
        done = self.daemon.wait_state(job, harness.FINAL, 90)
        self.assertEqual(done["cause"]["class"], "node_lost", done)
        seen = self.node()["history"]
        self.assertEqual((seen["attempts"], seen["faults_7d"], seen["by_kind"]), (1, 1, {"node_lost": 1}))
        self.assertNotIn("healthy_at", seen)

        good = self.daemon.submit(harness.command_job("good", "true"))["id"]
        self.assertEqual(self.daemon.wait_state(good, harness.FINAL)["state"], "succeeded")
        self.daemon.restart()
        name = self.node()["name"]
        one = self.daemon.get(f"/v1/nodes/{name}")
        self.assertEqual(one["history"]["attempts"], 2)
        self.assertIn("healthy_at", one["history"])
        fault, = one["faults"]
        self.assertEqual((fault["kind"], fault["job"], fault["attempt"], fault["generation"]),
                         ("node_lost", job, 1, 1))
        self.assertEqual(self.daemon.api("GET", "/v1/nodes/nobody")[0], 404)

        head, row = self.daemon.cli("nodes").stdout.splitlines()
        self.assertEqual(row[:head.index("FAULTS 7D") + len("FAULTS 7D")].split()[-1], "1", (head, row))
        shown = self.daemon.cli("nodes", name).stdout
        self.assertIn("1 in 90 days, 1 in 7: node_lost 1", shown)
        self.assertIn(job, shown)


if __name__ == "__main__":
    harness.main()
