"""What the events of a job say, for tests of real processes."""

import re

import harness


def kinds():
    """Every kind of event that there is, as the source names them."""
    text = (harness.SOURCE / "job" / "model" / "state.cpp").read_text(encoding="utf-8")
    return set(re.findall(r'"(\w+)"', re.search(r"kEventNames\{(.*?)\}", text, re.DOTALL)[1]))


def of_kinds(events, *wanted):
    """Those of `events` that are of these kinds. A kind that does not exist is refused: there are never any of it, and a test
    that none has come cannot fail."""
    if unknown := set(wanted) - kinds():
        raise ValueError(f"there is no event {', '.join(sorted(unknown))}")
    return [event for event in events if event["kind"] in wanted]


def assert_undisturbed(case, job):
    """`job`, as the API shows it after its end, has noticed nothing: one attempt, one generation, no fault, no hang."""
    case.assertEqual(of_kinds(case.daemon.events(job["id"]), "fault", "agent_refused"), [])
    [attempt] = job["attempts"]
    [generation] = attempt["generations"]
    case.assertNotIn("cause", generation)
    case.assertNotIn("hang", job.get("anomalies", {}))
