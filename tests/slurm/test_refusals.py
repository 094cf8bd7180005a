"""What a site refuses, and what nobody knows whether it was taken: told at once, in the site's words, and
cancelled at once. With a real job_submit/lua plugin, as most sites have one."""

import datetime
import time

from harness import wait_until
from lockstep_slurm import command_spec, main
from lying_sbatch import LyingSbatch
from slurm_machine import release
from test_more_states import StateCase

# As sites write it: a sentence for the user and slurm.ERROR, or a plain number, or no word at all.
JOB_SUBMIT = """
function slurm_job_submit(job, partitions, uid)
    if job.comment == "refused" then
        slurm.log_user("You have no allocation on this cluster: see https://site.example/allocations")
        return slurm.ERROR
    elseif job.comment == "number" then
        return 1
    elseif job.comment == "silent" then
        return slurm.ERROR
    end
    return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
    return slurm.SUCCESS
end
return slurm.SUCCESS
"""


class Site(StateCase):
    settings = {"nodes": 2, "job_submit": JOB_SUBMIT, "gpu_type": "h100"}

    def site_refuses(self, comment, *words):
        begun = time.monotonic()
        job = self.accepted(slurm={"directives": {"comment": comment}})
        self.ends(job, "failed", "scheduler", *words, seconds=20)
        print(f"refusal by the site ({comment}): told after {time.monotonic() - begun:.1f} s", flush=True)
        self.assertEqual(self.daemon.kinds(job).count("attempt_submitting"), 1)
        self.counted("lockstep_slurm_refused_total")
        self.assertEqual(self.daemon.metric("lockstep_slurm_unclear_total"), 0)

    def test_a_sites_own_refusal_is_told_at_once_in_its_words(self):
        self.site_refuses("refused", "You have no allocation on this cluster: see https://site.example/allocations")

    def test_a_refusal_with_a_number_of_the_sites_own(self):
        self.site_refuses("number", "Operation not permitted")

    def test_a_refusal_without_a_word(self):
        self.site_refuses("silent", "Unspecified error")

    def test_more_nodes_named_than_asked_for_is_refused_at_the_field_where_slurm_does(self):
        self.refused("/slurm/exclude", "n1 is in /slurm/nodelist", slurm={"nodelist": "n1", "exclude": "n[1-2]"})
        if release() >= (23, 2):
            job = self.accepted(slurm={"nodelist": "n[1-2]"})
            self.daemon.wait_state(job, "succeeded")
            self.assertEqual(len(self.daemon.job(job)["attempts"][0]["nodes"]), 1)
            return
        self.refused("/slurm/nodelist", "names 2 nodes", "/resources/nodes asks for 1", slurm={"nodelist": "n[1-2]"})
        # What sbatch says of it, should it come that far.
        said = self.cluster.run("sbatch", "-N1", "--nodelist=n[1-2]", "--wrap=true", check=False)
        self.assertIn("invalid number of nodes (-N 2-1)", said.stderr)

    def test_what_is_harmless_is_passed_on(self):
        job = self.accepted(slurm={"partition": "low,main", "directives": {
            "comment": "run 7 of team/vision", "nice": "-5", "use-min-nodes": "", "sockets-per-node": "1",
            "propagate": "NONE", "gpu-freq": "high"}})
        number = self.slurm_id(job)
        shown = self.cluster.run("scontrol", "-o", "show", "job", number).stdout
        self.assertIn(" Comment=run 7 of team/vision ", shown)
        self.assertIn(" Nice=-5 ", shown)
        self.daemon.wait_state(job, "succeeded")

    def test_gpus_of_a_type(self):
        job = self.accepted("echo $CUDA_VISIBLE_DEVICES", resources={"gpus_per_node": 2, "gpu_type": "h100"})
        self.daemon.wait_state(job, "succeeded")
        self.assertEqual(self.daemon.rank_log(job, 0), "0,1\n")
        self.assertIn("#SBATCH --gpus-per-node=h100:2\n", self.daemon.text(f"/v1/jobs/{job}/script"))
        number = self.daemon.job(job)["attempts"][0]["scheduler_id"]
        self.assertEqual(self.cluster.job(number)["TresPerNode"].replace("/", ":"), "gres:gpu:h100:2")

    def estimate(self, **more):
        spec = command_spec("true", 2, **more)
        status, rendered = self.daemon.api("POST", "/v1/jobs/render?estimate=true", spec)
        self.assertEqual(status, 200, rendered)
        self.assertNotIn("start_estimate", self.daemon.api("POST", "/v1/jobs/render", spec)[1])
        return rendered["start_estimate"]

    def seconds_to(self, estimate):
        start = datetime.datetime.fromisoformat(estimate["start"].replace("Z", "+00:00"))
        return (start - datetime.datetime.now(datetime.timezone.utc)).total_seconds()

    def test_when_it_would_start_is_told_before_anything_is_submitted(self):
        free = self.estimate()
        self.assertEqual((free["nodes"], free["partition"]), ("n[1-2]", "main"))
        self.assertLess(abs(self.seconds_to(free)), 600)
        self.block("--time=60")
        taken = self.estimate()
        self.assertGreater(self.seconds_to(taken), 1800)
        self.assertEqual(self.cluster.run("squeue", "-h", "-o", "%i").stdout.split(), [str(self.blocker)])
        refused = self.estimate(slurm={"directives": {"comment": "refused"}})
        self.assertNotIn("start", refused)
        self.assertIn("You have no allocation on this cluster", refused["message"])
        status, problem = self.daemon.api("POST", "/v1/jobs/render?estimate=perhaps", command_spec("true"))
        self.assertEqual((status, problem["errors"][0]["pointer"]), (400, "?estimate"))

    def test_why_jobs_wait_and_how_long_they_did_is_measured(self):
        self.block()
        job = self.accepted()
        reasons = 'lockstep_slurm_pending_reason_jobs{reason="'
        wait_until(lambda: any(reasons + why + '"} 1' in self.daemon.text("/metrics") for why in ("Resources", "Priority")),
                   60, "why it waits is in /metrics")
        self.end_block()
        self.daemon.wait_state(job, "succeeded")
        waited = 'lockstep_slurm_queue_wait_seconds_count{partition="main"} 1'
        wait_until(lambda: waited in self.daemon.text("/metrics"), 60, "the wait is in /metrics")
        wait_until(lambda: reasons not in self.daemon.text("/metrics"), 60, "nothing waits any more")

    def test_a_type_of_gpus_that_is_not_there_is_refused_at_the_field(self):
        self.refused("/resources/gpu_type", "has GPUs of this type; there are h100",
                     resources={"gpus_per_node": 1, "gpu_type": "a100"})
        self.refused("/resources/gpus_per_node", "at most 2", resources={"gpus_per_node": 3, "gpu_type": "h100"})


class Unknown(StateCase):
    """An sbatch of which nobody knows what it did: three minutes must pass before it may run again."""
    settings = {"nodes": 2}

    def lie(self, mode):
        self.sbatch = LyingSbatch(self.daemon.root / "bin")
        self.sbatch.mode = mode
        self.daemon.bin_dir = self.sbatch.folder
        self.daemon.restart()

    def cancelled(self, job):
        begun = time.monotonic()
        self.assertEqual(self.daemon.api("POST", f"/v1/jobs/{job}/cancel")[0], 200)
        self.daemon.wait_state(job, "cancelled", 10)
        print(f"cancelled in doubt after {time.monotonic() - begun:.1f} s", flush=True)

    def test_a_job_in_doubt_is_cancelled_at_once(self):
        self.lie("lost")
        job = self.accepted()
        self.daemon.wait_pending(job, "not known yet")
        self.cancelled(job)
        self.assertEqual(self.slurm_states(job), {})

    def test_what_appears_of_it_later_is_cancelled_and_starts_no_rank(self):
        self.lie("late")
        self.block()
        starts = self.daemon.root / "starts"
        job = self.accepted(f"touch {starts}")
        self.daemon.wait_pending(job, "not known yet")
        self.cancelled(job)
        wait_until(lambda: self.slurm_states(job), 20, "it came after all")
        self.wait_slurm(job, "CANCELLED")
        self.assertFalse(starts.exists())

    def test_one_that_sbatch_still_holds_is_cancelled_at_once(self):
        self.lie("hang")
        self.block()
        job = self.accepted()
        self.slurm_id(job)
        self.cancelled(job)
        self.wait_slurm(job, "CANCELLED")

    def test_submissions_that_hang_hold_up_no_others(self):
        self.lie("hang")
        begun = time.monotonic()
        jobs = [self.accepted() for _ in range(6)]
        for job in jobs:
            self.daemon.wait_state(job, "succeeded", 45)
        print(f"six through an sbatch that hangs: {time.monotonic() - begun:.1f} s", flush=True)
        for job in jobs:
            self.assertEqual(len(self.slurm_states(job)), 1)


if __name__ == "__main__":
    main()
