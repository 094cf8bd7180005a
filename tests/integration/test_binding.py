"""resources.binding: on which CPUs a rank finds itself."""

import json
import os
import pathlib

import harness

SAY = "import json, os; print(json.dumps(sorted(os.sched_getaffinity(0))))"
SYSTEM = pathlib.Path("/sys/devices/system")


def numbers(text):
    found = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def cores():
    """The cores that this process may use, each as a set of CPUs, node by node: {node: [{cpu, …}, …]}."""
    allowed = os.sched_getaffinity(0)
    nodes = {int(one.name[4:]): numbers((one / "cpulist").read_text())
             for one in (SYSTEM / "node").glob("node[0-9]*")} or {0: allowed}
    out = {}
    for node, cpus in sorted(nodes.items()):
        of_node = {}
        for cpu in sorted(cpus & allowed):
            file = SYSTEM / "cpu" / f"cpu{cpu}" / "topology" / "thread_siblings_list"
            siblings = numbers(file.read_text()) if file.exists() else {cpu}
            of_node.setdefault(min(siblings), set()).add(cpu)
        if of_node:
            out[node] = [of_node[core] for core in sorted(of_node)]
    return out


class Binding(harness.TestCase):
    def affinities(self, binding, nodes=1, ranks=2):
        job = self.daemon.submit(harness.command_job(
            "where", harness.PYTHON, "-c", SAY,
            resources={"nodes": nodes, "ranks_per_node": ranks, "binding": binding}))
        self.assertEqual(job["resources"].get("binding"), None if binding == "none" else binding)
        self.daemon.wait_state(job["id"], "succeeded")
        return [set(json.loads(self.daemon.rank_log(job["id"], rank))) for rank in range(nodes * ranks)]

    def test_ranks_are_where_they_were_asked_to_be(self):
        everything = set(os.sched_getaffinity(0))
        machine = cores()
        self.assertEqual(self.affinities("none"), [everything, everything])
        whole_nodes = [set().union(*of_node) for of_node in machine.values()]
        for rank in self.affinities("numa"):
            self.assertIn(rank, whole_nodes)
        for nodes, ranks in ((1, 2), (2, 1)):  # two nodes of the local scheduler are this machine too
            with self.subTest(nodes=nodes):
                own = self.affinities("cores", nodes, ranks)
                if sum(map(len, machine.values())) < 2:
                    self.assertEqual(own, [everything, everything])  # one core: shared
                    continue
                self.assertFalse(own[0] & own[1], own)
                for rank in own:
                    self.assertTrue(rank)
                    for core in (core for of_node in machine.values() for core in of_node):
                        self.assertIn(rank & core, (set(), core))  # whole cores

    def test_what_has_no_effect_is_refused(self):
        spec = harness.command_job("torchrun", "/bin/true", launch="node", resources={"binding": "cores"})
        self.assert_problem(self.daemon.api("POST", "/v1/jobs", spec), 400, "/resources/binding", "launch node")
        spec = harness.command_job("wrong", "/bin/true", resources={"binding": "socket"})
        self.assert_problem(self.daemon.api("POST", "/v1/jobs", spec), 400, "/resources/binding", "numa")


if __name__ == "__main__":
    harness.main()
