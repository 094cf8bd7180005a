"""The dashboards of deploy/grafana: uids, the data source variable, units, queries that name what
lockstepd has. Whether each query answers is seen with a live Prometheus (test_scrape.py)."""

import json
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
RULES = ROOT / "deploy" / "prometheus" / "lockstep.rules.yml"
LINK = re.compile(r"/d/([a-z-]+)")
METRIC = re.compile(r"[a-z_]+:lockstep_[a-z_:]+|\b(?:lockstep|process)_[a-z_]+")
# What a family's name gets in a body: daemon/telemetry/exposition/metric_text.cpp, and histograms.
ENDING = re.compile(r"_(total|info|bucket|sum|count)$")


def panels(board):
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries(board):
    """(panel, expression) of every panel."""
    return [(panel, target["expr"]) for panel in panels(board) for target in panel["targets"]]


def every_expression(board):
    """(where, expression) of panels, annotations and variables."""
    asked = [(panel["title"], expression) for panel, expression in queries(board)]
    asked += [(note["name"], note["expr"]) for note in board["annotations"]["list"]]
    asked += [(one["name"], one["query"]["query"]) for one in board["templating"]["list"] if one["type"] == "query"]
    return asked


def exported():
    """The names of families in lockstepd's sources, and of what lockstep.rules.yml records."""
    sources = [path for folder in ("daemon", "job", "scheduler-integration")
               for ending in ("*.cpp", "*.hpp") for path in (ROOT / folder).rglob(ending)]
    names = {name for path in sources for name in re.findall(r'"((?:lockstep|process)_[a-z_]+)"', path.read_text())}
    recorded = set(re.findall(r"- record: (\S+)", RULES.read_text()))
    return {ENDING.sub("", name) for name in names} | recorded


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

    def test_every_panel_says_what_it_shows(self):
        for name, board in self.boards.items():
            for panel in panels(board):
                with self.subTest(board=name, panel=panel["title"]):
                    text = panel.get("description", "")
                    self.assertGreaterEqual(len(text), 25)
                    self.assertEqual(text[-1:], ".")

    def test_every_query_names_metrics_that_lockstepd_exports(self):
        known = exported()
        self.assertIn("lockstep_jobs", known)
        for name, board in self.boards.items():
            for where, expression in every_expression(board):
                with self.subTest(board=name, where=where, expression=expression):
                    named = set(METRIC.findall(expression))
                    self.assertTrue(named)
                    self.assertEqual({one for one in named if one not in known and ENDING.sub("", one) not in known},
                                     set())

    def test_restarts_failures_and_hangs_are_marked_on_every_graph(self):
        marked = {name: [note["name"] for note in board["annotations"]["list"]] for name, board in self.boards.items()}
        # A job's series end with it, so how one ended is told of all jobs together.
        self.assertEqual(marked, {"lockstep-coordinator": ["Starts of lockstepd", "Failures"],
                                  "lockstep-fleet": ["Restarts", "Failures", "Hangs"],
                                  "lockstep-job": ["Restarts", "Hangs", "Anomalies", "End"],
                                  "lockstep-rank": ["Restarts", "Hangs", "Anomalies", "End"]})
        for board in self.boards.values():
            for note in board["annotations"]["list"]:
                self.assertEqual((note["datasource"], note["enable"]), (SOURCE, True), note["name"])

    def test_the_table_of_jobs_renames_columns_that_its_queries_have(self):
        [table] = [panel for panel in panels(self.boards["lockstep-fleet"]) if panel["type"] == "table"]
        columns = {f"Value #{target['refId']}" for target in table["targets"]}
        columns |= {label.strip() for target in table["targets"]
                    for labels in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in labels.split(",")}
        for step in table["transformations"]:
            options = step["options"]
            named = {options["byField"]} if "byField" in options else set()
            named |= set(options.get("include", {}).get("names", [])) | set(options.get("renameByName", {}))
            named |= set(options.get("indexByName", {}))
            self.assertTrue(named and named <= columns, (step["id"], named - columns))

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

    def test_a_job_is_chosen_by_its_name_and_not_by_its_id_alone(self):
        # As Grafana makes a line of a result, with the labels in the order in which Prometheus has them: sorted.
        # An aggregate has no metric's name.
        line = "{" + ",".join(f' {label}="{value}"' for label, value in sorted({
            "job_id": "ls-01A", "name": "llama", "title": "llama ls-01A"}.items())) + "} 1 1700000000000"
        for name in ("lockstep-job", "lockstep-rank"):
            [variable] = [one for one in self.boards[name]["templating"]["list"] if one["name"] == "job_id"]
            self.assertRegex(variable["query"]["query"],
                             r'^query_result\(label_join\(.+, "title", " ", "name", "job_id"\)\)$')
            pattern = variable["regex"].strip("/").replace("(?<", "(?P<")  # JavaScript's named groups in Python
            self.assertEqual(re.search(pattern, line).groupdict(), {"value": "ls-01A", "text": "llama ls-01A"})

    def test_a_job_that_has_ended_within_the_range_can_be_chosen(self):
        # The query is asked at the end of the range, and a job's series end with it.
        for name in ("lockstep-job", "lockstep-rank"):
            [variable] = [one for one in self.boards[name]["templating"]["list"] if one["name"] == "job_id"]
            self.assertIn("max by (name, job_id) (last_over_time(lockstep_job_info[$__range]))",
                          variable["query"]["query"])
            self.assertEqual(variable["refresh"], 2, "again whenever the range changes")

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
