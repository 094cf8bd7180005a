"""GET /v1/jobs?q=: a job is found by words, among more jobs than one answer looks at."""

import json
import sqlite3
import urllib.parse

import harness


class JobSearch(harness.TestCase):
    def ended_job(self, name, **labels):
        job = self.daemon.submit({**harness.command_job(name, "true"), "labels": labels})["id"]
        self.daemon.wait_state(job, harness.FINAL)
        return job

    def found(self, words):
        """The ids, and how many answers it took."""
        ids, answers, cursor = [], 0, ""
        while True:
            page = self.daemon.get(f"/v1/jobs?limit=2&fields=id&q={urllib.parse.quote(words)}{cursor}")
            ids += [item["id"] for item in page["items"]]
            answers += 1
            if not page.get("next_cursor"):
                return ids, answers
            cursor = "&cursor=" + urllib.parse.quote(page["next_cursor"])

    def test_words_find_the_jobs_that_have_all_of_them(self):
        old = self.ended_job("llama-7b", team="vision")
        other = self.ended_job("llama-13b", team="speech")
        self.assertEqual(self.found("LLAMA team:vis")[0], [old])
        self.assertEqual(self.found("llama")[0], [other, old])
        self.assertEqual(self.found(old[-6:].lower())[0], [old])
        self.assertEqual(self.found("llama nobody")[0], [])
        self.assertIn("llama-7b", self.daemon.cli("jobs", "--search", "llama vision").stdout)
        self.assertNotIn("llama-13b", self.daemon.cli("jobs", "--search", "llama vision").stdout)

    def test_behind_more_jobs_than_one_answer_looks_at(self):
        old = self.ended_job("llama-7b", team="vision")
        new = self.ended_job("other")
        self.daemon.stop()
        with sqlite3.connect(self.daemon.data / "lockstep.db") as database:
            row = list(database.execute("SELECT * FROM jobs WHERE id = ?", (new,)).fetchone())
            view = json.loads(row[-1])
            # Newer than all others: ids begin with the time.
            many = [f"ls-7ZZZ{number:022}" for number in range(20_500)]
            database.executemany("INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                                 ([one, *row[1:-1], json.dumps({**view, "id": one})] for one in many))
        database.close()
        self.daemon.start()
        self.assertEqual(self.found("llama vision"), ([old], 2))
        self.assertEqual(self.found(many[0])[0], [many[0]])
        first = self.daemon.get("/v1/jobs?q=llama")
        self.assertEqual((first["items"], bool(first["next_cursor"])), ([], True))
        self.assertIn("llama-7b", self.daemon.cli("jobs", "--search", "llama").stdout)


if __name__ == "__main__":
    harness.main()
