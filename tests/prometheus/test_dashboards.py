"""The dashboards of deploy/grafana: uids, the data source variable, units, queries that name what
lockstepd has. Whether each query answers is seen with a live Prometheus (test_scrape.py)."""

import json
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
LINK = re.compile(r"/d/([a-z-]+)")


def panels(board):
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries(board):
    """(panel, expression) of every panel."""
    return [(panel, target["expr"]) for panel in panels(board) for target in panel["targets"]]


class Dashboards(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.boards = {path.stem: json.loads(path.read_text()) for path in BOARDS}

    def test_there_are_four_and_their_uids_are_their_names(self):
        self.assertEqual(sorted(self.boards), ["lockstep-coordinator", "lockstep-fleet", "lockstep-job",
                                               "lockstep-rank"])
        for name, board in self.boards.items():
            self.assertEqual(board["uid"], name)
            self.assertIn("lockstep", board["tags"])

    def test_every_panel_reads_the_chosen_source_and_has_a_unit_and_its_own_id(self):
        for name, board in self.boards.items():
            variables = {one["name"]: one for one in board["templating"]["list"]}
            self.assertEqual(variables["datasource"]["type"], "datasource")
            ids = [panel["id"] for panel in board["panels"]]
            self.assertEqual(len(ids), len(set(ids)), name)
            for panel in panels(board):
                where = f"{name}: {panel['title']}"
                self.assertEqual(panel["datasource"], SOURCE, where)
                self.assertTrue(panel["fieldConfig"]["defaults"]["unit"], where)
                self.assertTrue(panel["targets"], where)
                for target in panel["targets"]:
                    self.assertEqual(target["datasource"], SOURCE, where)
                    for used in re.findall(r"\$(\w+)", target["expr"]):
                        self.assertIn(used, variables, where)

    def test_panels_do_not_overlap(self):
        for name, board in self.boards.items():
            taken = {}
            for panel in board["panels"]:
                at = panel["gridPos"]
                self.assertLessEqual(at["x"] + at["w"], 24, panel["title"])
                for x in range(at["x"], at["x"] + at["w"]):
                    for y in range(at["y"], at["y"] + at["h"]):
                        self.assertNotIn((x, y), taken, f"{name}: {panel['title']}, {taken.get((x, y))}")
                        taken[x, y] = panel["title"]

    def test_links_lead_to_dashboards_that_exist(self):
        links = [uid for path in BOARDS for uid in LINK.findall(path.read_text())]
        self.assertTrue(links)
        self.assertLessEqual(set(links), set(self.boards))

    def test_no_query_uses_a_label_that_lockstep_does_not_set(self):
        # They would be Prometheus' own, and mean the target.
        for name, board in self.boards.items():
            for panel, expression in queries(board):
                self.assertNotRegex(expression, r"by \([^)]*\b(job|instance)\b",
                                    f"{name}: {panel['title']}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
