"""Every alert and recording rule of deploy/prometheus, played by promtool: each alert fires on what it is
for, with the labels its summary names, and not on its look-alike."""
# size: a case for each alert and its look-alikes, with the rules read once

import json
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import unittest

import yaml

import gpu_tests

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
JOB = 'job_id="ls-1"'
GPU = 'node="n1",gpu="0"'
RUNNING = (f'lockstep_job_state{{{JOB},state="running"}}', "1x600")


def rising(per_minute, minutes=600):
    return f"0+{per_minute}x{minutes}"


# alert: (minute at which it is looked at, series that make it fire, labels of the alert without severity,
#         series that look alike and must not)
CASES = {
    "LockstepCoordinatorDown": (
        3, [('up{job="lockstep",instance="c"}', "0x9")], {"job": "lockstep", "instance": "c"},
        [('up{job="lockstep",instance="c"}', "1x9"), ('up{job="node",instance="c"}', "0x9")]),
    "LockstepApiSlow": (
        15,
        [('lockstep_http_request_duration_seconds_bucket{route="/v1/jobs",le="0.5"}', rising(1)),
         ('lockstep_http_request_duration_seconds_bucket{route="/v1/jobs",le="1"}', rising(100)),
         ('lockstep_http_request_duration_seconds_bucket{route="/v1/jobs",le="+Inf"}', rising(100))], {},
        # The stream of events is open for minutes, as it should be.
        [('lockstep_http_request_duration_seconds_bucket{route="/v1/events",le="0.5"}', rising(0)),
         ('lockstep_http_request_duration_seconds_bucket{route="/v1/events",le="+Inf"}', rising(100)),
         ('lockstep_http_request_duration_seconds_bucket{route="/v1/jobs",le="0.5"}', rising(100)),
         ('lockstep_http_request_duration_seconds_bucket{route="/v1/jobs",le="+Inf"}', rising(100))]),
    "LockstepTurnsAway": (
        15, [('lockstep_http_turned_away_total{reason="stranger"}', rising(600))], {"reason": "stranger"},
        # Browsers open connections that they do not use.
        [('lockstep_http_turned_away_total{reason="silent"}', rising(600)),
         ('lockstep_http_turned_away_total{reason="stranger"}', rising(6))]),
    "LockstepDiskNearlyFull": (
        10, [('lockstep_disk_free_bytes{folder="runs"}', "40x60"), ('lockstep_disk_size_bytes{folder="runs"}', "1000x60")],
        {"folder": "runs"},
        # Full for three minutes only; half full; a file system without a number of inodes.
        [('lockstep_disk_free_bytes{folder="runs"}', "40x3 400x50"), ('lockstep_disk_size_bytes{folder="runs"}', "1000x60"),
         ('lockstep_disk_free_bytes{folder="data"}', "500x60"), ('lockstep_disk_size_bytes{folder="data"}', "1000x60"),
         ('lockstep_disk_inodes_free{folder="data"}', "0x60"), ('lockstep_disk_inodes{folder="data"}', "0x60")]),
    "LockstepDiskFills": (
        100, [('lockstep_disk_free_bytes{folder="runs"}', "2000-10x200"), ('lockstep_disk_size_bytes{folder="runs"}', "10000x200")],
        {"folder": "runs"},
        # Fills as fast with much room left, and stands still with little.
        [('lockstep_disk_free_bytes{folder="runs"}', "8000-10x200"), ('lockstep_disk_size_bytes{folder="runs"}', "10000x200"),
         ('lockstep_disk_free_bytes{folder="data"}', "1000x200"), ('lockstep_disk_size_bytes{folder="data"}', "10000x200")]),
    "LockstepCertificateEnds": (
        90, [('lockstep_certificate_not_after_timestamp_seconds{instance="c"}', f"{13 * 86400}x200")], {"instance": "c"},
        # Three weeks are left; one that was renewed within the hour.
        [('lockstep_certificate_not_after_timestamp_seconds{instance="c"}', f"{21 * 86400}x200"),
         ('lockstep_certificate_not_after_timestamp_seconds{instance="d"}', f"{13 * 86400}x50 {90 * 86400}x150")]),
    "LockstepTokenEnds": (
        90, [('lockstep_token_not_after_timestamp_seconds{role="viewer"}', f"{13 * 86400}x200")], {"role": "viewer"},
        [('lockstep_token_not_after_timestamp_seconds{role="viewer"}', f"{21 * 86400}x200"),
         # Replaced, and not used any more.
         ('lockstep_token_not_after_timestamp_seconds{role="admin"}', f"{13 * 86400}x50 stale")]),
    "LockstepSlurmUnreachable": (
        5, [("lockstep_slurm_last_success_timestamp_seconds", "60x9"), ("lockstep_slurm_attempts", "1x9")], {},
        # In the second, nobody has had a job for four minutes; in the third, somebody has one again.
        [("lockstep_slurm_last_success_timestamp_seconds", rising(60)), ("lockstep_slurm_attempts", "3x600"),
         ('lockstep_slurm_last_success_timestamp_seconds{instance="b"}', "60x9"),
         ('lockstep_slurm_attempts{instance="b"}', "0x9"),
         ('lockstep_slurm_last_success_timestamp_seconds{instance="c"}', "0x4 300x5"),
         ('lockstep_slurm_attempts{instance="c"}', "0x4 1x5"),
         ('lockstep_slurm_reachable{instance="d"}', "1x9"), ('lockstep_slurm_attempts{instance="d"}', "1x9")]),
    "LockstepSlurmLeftovers": (
        15, [("lockstep_slurm_leftovers", "2x60")], {},
        # Cancelled, and gone after two minutes.
        [("lockstep_slurm_leftovers", "0x5 2x2 0x50")]),
    "LockstepSlurmJobsHeld": (
        20, [('lockstep_slurm_pending_reason_jobs{reason="JobHeldAdmin"}', "2x60")], {"reason": "JobHeldAdmin"},
        # What only takes its time, and a partition that was down for five minutes.
        [('lockstep_slurm_pending_reason_jobs{reason="Resources"}', "40x60"),
         ('lockstep_slurm_pending_reason_jobs{reason="Priority"}', "9x60"),
         ('lockstep_slurm_pending_reason_jobs{reason="JobHeldUser"}', "1x60"),
         ('lockstep_slurm_pending_reason_jobs{reason="PartitionDown"}', "3x5 0x50")]),
    "LockstepIngestDrops": (
        15, [('lockstep_ingest_dropped_samples_total{reason="late"}', rising(60))], {"reason": "late"},
        [('lockstep_ingest_dropped_samples_total{reason="late"}', "5000x60"),
         ('lockstep_ingest_dropped_samples_total{reason="rate_limited"}', rising(60))]),
    "LockstepAgentDrops": (
        15, [("lockstep_agent_dropped_reports_total", rising(60))], {},
        [("lockstep_agent_dropped_reports_total", "5000x60")]),
    "LockstepRendezvousStuck": (
        # Early enough: after 300 s lockstepd gives the attempt up.
        4, [(f"lockstep_rendezvous_ranks_missing{{{JOB}}}", "3x5 0x60"),
            (f"lockstep_rendezvous_age_seconds{{{JOB}}}", "0+60x5 0x60")], {"job_id": "ls-1"},
        [(f"lockstep_rendezvous_ranks_missing{{{JOB}}}", "3x60"),
         (f"lockstep_rendezvous_age_seconds{{{JOB}}}", "100x60"),
         ('lockstep_rendezvous_ranks_missing{job_id="ls-2"}', "0x60"),
         ('lockstep_rendezvous_age_seconds{job_id="ls-2"}', rising(60))]),
    "LockstepJobHang": (
        10, [(f"lockstep_job_hang{{{JOB}}}", "0x5 1x60")], {"job_id": "ls-1"},
        # Quick steps of which every 500th is reported: no report for four minutes is no hang. Imports after a
        # restart, a long watch.hang_seconds and an allocation that Slurm has suspended look the same. One that is over.
        [(f"lockstep_job_hang{{{JOB}}}", "0x60"),
         (f"lockstep_job_last_step_timestamp_seconds{{{JOB}}}", "360x60"),
         (f'lockstep_job_step_time_seconds{{{JOB},stat="p99"}}', "0.2x60"), RUNNING,
         ('lockstep_job_hang{job_id="ls-2"}', "1x5 0x60")]),
    "LockstepRankSilent": (
        8, [(f'lockstep_job_anomalies_total{{{JOB},kind="rank_silent"}}', "0x5 1x60")],
        {"job_id": "ls-1", "kind": "rank_silent"},
        # A script that prints on rank 0 alone, as most do; ranks that have ended look the same. Another anomaly, and
        # a rank that was silent before.
        [(f"lockstep_job_ranks_reporting{{{JOB}}}", "1x60"),
         (f"lockstep_job_ranks_expected{{{JOB}}}", "8x60"), RUNNING,
         (f'lockstep_job_anomalies_total{{{JOB},kind="rank_silent"}}', "0x60"),
         (f'lockstep_job_anomalies_total{{{JOB},kind="straggler"}}', "0x5 1x60"),
         ('lockstep_job_anomalies_total{job_id="ls-2",kind="rank_silent"}', "1x60")]),
    "LockstepRankStraggler": (
        10, [(f'lockstep_rank_straggler_score{{{JOB},rank="3"}}', "0.6x60")], {"job_id": "ls-1", "rank": "3"},
        # Slow for four minutes, as in an evaluation.
        [(f'lockstep_rank_straggler_score{{{JOB},rank="3"}}', "1x5 0.6x4 1x50")]),
    "LockstepStepTimeRegression": (
        240, [(f'lockstep_job_step_time_seconds{{{JOB},stat="p50"}}', "1x200 1.5x200")],
        {"job_id": "ls-1", "stat": "p50"},
        [(f'lockstep_job_step_time_seconds{{{JOB},stat="p50"}}', "1x200 1.1x200")]),
    "LockstepNonFinite": (
        8, [(f'lockstep_job_nonfinite_total{{{JOB},what="loss"}}', "0x5 1x60")],
        {"job_id": "ls-1", "what": "loss"},
        # An fp16 run, which skips a step in which the gradients overflow.
        [(f'lockstep_job_nonfinite_total{{{JOB},what="loss"}}', "7x60"),
         (f'lockstep_job_nonfinite_total{{{JOB},what="grad_norm"}}', rising(1)),
         (f'lockstep_job_nonfinite_total{{{JOB},what="other"}}', rising(1))]),
    "LockstepGradNormNonFinite": (
        40, [(f'lockstep_job_nonfinite_total{{{JOB},what="grad_norm"}}', rising(60)),
             (f"lockstep_job_grad_norm{{{JOB}}}", " ".join(["+Inf"] * 20 + ["NaN"] * 30))], {"job_id": "ls-1", "what": "grad_norm"},
        # A skipped step every few minutes; a job that has stood still since one.
        [(f'lockstep_job_nonfinite_total{{{JOB},what="grad_norm"}}', rising(1)),
         (f"lockstep_job_grad_norm{{{JOB}}}", " ".join(["+Inf", "2", "2"] * 20)),
         ('lockstep_job_nonfinite_total{job_id="ls-2",what="grad_norm"}', "0x5 1x60"),
         ('lockstep_job_grad_norm{job_id="ls-2"}', " ".join(["2"] * 5 + ["+Inf"] * 60))]),
    "LockstepLossSpike": (
        5, [(f"lockstep_job_loss_zscore{{{JOB}}}", "7x60")], {"job_id": "ls-1"},
        [(f"lockstep_job_loss_zscore{{{JOB}}}", "5x60"),
         ('lockstep_job_loss_zscore{job_id="ls-2"}', "-20x60")]),
    "LockstepDivergence": (
        120, [(f'lockstep_job_loss{{{JOB},stat="mean"}}', "1x60 2x100"), RUNNING], {"job_id": "ls-1"},
        [(f'lockstep_job_loss{{{JOB},stat="mean"}}', "9-0.05x140"), RUNNING,
         # Below zero and steady, as a log likelihood is.
         ('lockstep_job_loss{job_id="ls-3",stat="mean"}', "-10x160"),
         ('lockstep_job_state{job_id="ls-3",state="running"}', "1x160"),
         # It has ended: the last values are still there.
         ('lockstep_job_loss{job_id="ls-2",stat="mean"}', "1x60 2x100"),
         ('lockstep_job_state{job_id="ls-2",state="running"}', "1x60 0x100")]),
    "LockstepJobFailed": (
        8, [('lockstep_jobs_finished_total{result="failed"}', "4x5 5x60"),
            ('lockstep_jobs_finished_total{result="completed"}', rising(3))], {"result": "failed"},
        [('lockstep_jobs_finished_total{result="failed"}', "4x60"),
         ('lockstep_jobs_finished_total{result="completed"}', rising(3)),
         ('lockstep_jobs_finished_total{result="cancelled"}', rising(3))]),
    "LockstepDataStarved": (
        20, [(f"lockstep_job_data_wait_ratio{{{JOB}}}", "0.3x60")], {"job_id": "ls-1"},
        [(f"lockstep_job_data_wait_ratio{{{JOB}}}", "0.9x8 0.1x60")]),
    "LockstepCommBound": (
        30, [(f"lockstep_job_comm_exposed_ratio{{{JOB}}}", "0.5x60")], {"job_id": "ls-1"},
        [(f"lockstep_job_comm_exposed_ratio{{{JOB}}}", "0.3x60")]),
    "LockstepGoodputLow": (
        120, [(f'lockstep_job_span_seconds{{{JOB},span="productive"}}', rising(30)),
              (f'lockstep_job_span_seconds{{{JOB},span="stalled"}}', rising(30)),
              (f"lockstep_job_ettr_ratio{{{JOB}}}", "0.5x600")], {"job_id": "ls-1"},
        # A job that is over has no share at all, nor has one that waits for another attempt or is suspended; of one
        # that reports nothing none is known.
        [(f'lockstep_job_span_seconds{{{JOB},span="productive"}}', rising(58)),
         (f'lockstep_job_span_seconds{{{JOB},span="stalled"}}', rising(2)),
         ('lockstep_job_span_seconds{job_id="ls-2",span="productive"}', "60x140"),
         ('lockstep_job_span_seconds{job_id="ls-2",span="lost"}', "60x140"),
         ('lockstep_job_span_seconds{job_id="ls-3",span="productive"}', "0+60x50 3000x90"),
         ('lockstep_job_span_seconds{job_id="ls-3",span="queue"}', "0x50 0+60x90"),
         ('lockstep_job_span_seconds{job_id="ls-4",span="productive"}', "0+60x50 3000x90"),
         ('lockstep_job_span_seconds{job_id="ls-4",span="suspended"}', "0x50 0+60x90"),
         ('lockstep_job_span_seconds{job_id="ls-5",span="productive"}', "0x140"),
         ('lockstep_job_span_seconds{job_id="ls-5",span="init"}', rising(60)),
         *[(f'lockstep_job_ettr_ratio{{job_id="ls-{job}"}}', "0.5x140") for job in (1, 2, 3, 4)]]),
    "LockstepGpuXidFatal": (
        5, [(f'lockstep_gpu_xid_last_timestamp_seconds{{{GPU},xid="79"}}', "120x60")],
        {"node": "n1", "gpu": "0", "xid": "79"},
        # 31 is a fault of the program; the other one was long ago.
        [(f'lockstep_gpu_xid_last_timestamp_seconds{{{GPU},xid="31"}}', "120x60"),
         (f'lockstep_gpu_xid_last_timestamp_seconds{{{GPU},xid="79"}}', "-1000x60")]),
    "LockstepGpuRecoveryAction": (
        5, [(f"lockstep_gpu_recovery_action{{{GPU}}}", "1x60")], {"node": "n1", "gpu": "0"},
        [(f"lockstep_gpu_recovery_action{{{GPU}}}", "0x60")]),
    "LockstepGpuRowRemap": (
        5, [(f"lockstep_gpu_row_remap_pending{{{GPU}}}", "1x60")], {"node": "n1", "gpu": "0"},
        [(f"lockstep_gpu_row_remap_pending{{{GPU}}}", "0x60"),
         (f"lockstep_gpu_row_remap_failure{{{GPU}}}", "0x60")]),
    "LockstepGpuEccUncorrected": (
        10, [(f'lockstep_gpu_ecc_errors_total{{{GPU},type="uncorrected"}}', "0x5 2x60")],
        {"node": "n1", "gpu": "0", "type": "uncorrected"},
        [(f'lockstep_gpu_ecc_errors_total{{{GPU},type="uncorrected"}}', "2x60"),
         (f'lockstep_gpu_ecc_errors_total{{{GPU},type="corrected"}}', rising(5))]),
    "LockstepGpuThermal": (
        15, [(f'lockstep_gpu_throttle_seconds_total{{{GPU},reason="hw_thermal"}}', rising(10))],
        {"node": "n1", "gpu": "0", "reason": "hw_thermal"},
        # Power capping is how GPUs are run; a little heat is no alert.
        [(f'lockstep_gpu_throttle_seconds_total{{{GPU},reason="sw_power"}}', rising(50)),
         (f'lockstep_gpu_throttle_seconds_total{{{GPU},reason="hw_thermal"}}', rising(1))]),
    "LockstepNvlinkErrors": (
        10, [(f'lockstep_gpu_nvlink_errors_total{{{GPU},kind="replay"}}', "0x5 3x60")],
        {"node": "n1", "gpu": "0", "kind": "replay"},
        [(f'lockstep_gpu_nvlink_errors_total{{{GPU},kind="replay"}}', "3x60")]),
    "LockstepGpuIdleInJob": (
        40, [(f"lockstep_gpu_tensor_active_ratio{{{GPU}}}", "0x60"), (f"lockstep_gpu_sm_active_ratio{{{GPU}}}", "0.01x60"),
             (f'lockstep_rank_info{{{JOB},rank="0",{GPU}}}', "1x60")], {"node": "n1", "gpu": "0"},
        # Nobody's GPU; one that works now and then; matrix products in fp32, which are none of the tensor cores'.
        [('lockstep_gpu_tensor_active_ratio{node="n2",gpu="0"}', "0x60"),
         ('lockstep_gpu_sm_active_ratio{node="n2",gpu="0"}', "0x60"),
         ('lockstep_gpu_tensor_active_ratio{node="n3",gpu="0"}', "0x60"),
         ('lockstep_gpu_sm_active_ratio{node="n3",gpu="0"}', "0.99x60"),
         (f'lockstep_rank_info{{{JOB},rank="1",node="n3",gpu="0"}}', "1x60"),
         (f"lockstep_gpu_sm_active_ratio{{{GPU}}}", "0x60"),
         (f"lockstep_gpu_tensor_active_ratio{{{GPU}}}", "0 0 0.9 0 0 0.9 0 0 0.9 0 0 0.9x60"),
         (f'lockstep_rank_info{{{JOB},rank="0",{GPU}}}', "1x60")]),
    "LockstepTargetsFailing": (
        10, [('prometheus_sd_refresh_failures_total{mechanism="http",config="lockstep-jobs"}', rising(1))],
        {"mechanism": "http", "config": "lockstep-jobs"},
        # As before 2.48, without `config`, and one that failed once; another way of discovery; other jobs'.
        [('prometheus_sd_refresh_failures_total{mechanism="http"}', "0x4 2x60"),
         ('prometheus_sd_refresh_failures_total{mechanism="dns"}', rising(5)),
         ('prometheus_sd_refresh_failures_total{mechanism="http",config="others"}', rising(5))]),
    "LockstepScrapeNearLimit": (
        20, [('scrape_duration_seconds{job="lockstep",instance="c"}', "8x60"),
             ('scrape_timeout_seconds{job="lockstep",instance="c"}', "10x60")],
        {"job": "lockstep", "instance": "c"},
        [('scrape_duration_seconds{job="lockstep",instance="c"}', "2x60"),
         ('scrape_timeout_seconds{job="lockstep",instance="c"}', "10x60"),
         ('scrape_duration_seconds{job="other",instance="x"}', "8x60"),
         ('scrape_timeout_seconds{job="other",instance="x"}', "10x60")]),
}

# Other ways to the same alert: (series, minute)
ALSO = {
    # Since its start, which slurmctld did not outlive.
    "LockstepSlurmUnreachable": ([("lockstep_slurm_reachable", "0x9"), ("lockstep_slurm_attempts", "1x9")], 5),
}

# record: (series, minute, expression, [(labels, value)])
RULES = {
    "job_id:lockstep_rank_busy_seconds:median": (
        [(f'lockstep_rank_busy_seconds{{{JOB},rank="{r}"}}', f"{v}x9") for r, v in enumerate((1, 2, 9))], 5,
        [(f'job_id:lockstep_rank_busy_seconds:median{{{JOB}}}', 2)]),
    "job_id_rank:lockstep_rank_busy_seconds:ratio_median": (
        [(f'lockstep_rank_busy_seconds{{{JOB},rank="{r}"}}', f"{v}x9") for r, v in enumerate((1, 2, 9))], 5,
        [(f'job_id_rank:lockstep_rank_busy_seconds:ratio_median{{{JOB},rank="{r}"}}', v)
         for r, v in enumerate((0.5, 1, 4.5))]),
    "job_id:lockstep_rank_step:spread": (
        [(f'lockstep_rank_step{{{JOB},rank="0"}}', "10x9"), (f'lockstep_rank_step{{{JOB},rank="1"}}', "7x9")],
        5, [(f'job_id:lockstep_rank_step:spread{{{JOB}}}', 3)]),
    "job_id:lockstep_job_loss:min6h": (
        [(f'lockstep_job_loss{{{JOB},stat="mean"}}', "1x60 3x400"),
         (f'lockstep_job_loss{{{JOB},stat="max"}}', "0.1x500"),
         ('lockstep_job_loss{job_id="ls-2",stat="mean"}', "-10x30 -2x470")], 60,
        [(f'job_id:lockstep_job_loss:min6h{{{JOB}}}', 1), ('job_id:lockstep_job_loss:min6h{job_id="ls-2"}', -10)]),
    "job_id:lockstep_job_loss:mean10m": (
        # Before 10 minutes have passed it has none.
        [(f'lockstep_job_loss{{{JOB},stat="mean"}}', "1x60 3x400"),
         ('lockstep_job_loss{job_id="ls-2",stat="mean"}', "_x75 7x400")], 80,
        [(f'job_id:lockstep_job_loss:mean10m{{{JOB}}}', 3)]),
    "job_id:lockstep_job_loss:stddev10m": (
        # Nothing at the ends of the window, which are in it or not by Prometheus' release.
        [(f'lockstep_job_loss{{{JOB},stat="mean"}}', "_ 1 3 1 3 _ 1 3 1 3 " * 4)], 20,
        [(f'job_id:lockstep_job_loss:stddev10m{{{JOB}}}', 1)]),
    "job_id:lockstep_job_loss:noise1h": (
        # What has grown meanwhile is no noisier.
        [(f'lockstep_job_loss{{{JOB},stat="mean"}}', "1x60 3x400")], 100,
        [(f'job_id:lockstep_job_loss:noise1h{{{JOB}}}', 0)]),
    # Two ranks share a GPU, which counts once. It was in another job's body before, another instance.
    "job_id:lockstep_gpu_power_watts:sum": (
        [(f'lockstep_rank_info{{{JOB},rank="0",{GPU}}}', "1x9"),
         (f'lockstep_rank_info{{{JOB},rank="1",node="n1",gpu="1"}}', "1x9"),
         (f'lockstep_rank_info{{{JOB},rank="2",{GPU}}}', "1x9"),
         (f'lockstep_gpu_energy_joules_total{{{GPU},instance="ls-0/1"}}', "0+1500x6 stale"),
         (f'lockstep_gpu_energy_joules_total{{{GPU},instance="ls-1/1"}}', "0+1500x20"),
         ('lockstep_gpu_energy_joules_total{node="n1",gpu="1"}', "0+3000x20"),
         ('lockstep_gpu_energy_joules_total{node="n9",gpu="0"}', "0+9000x20")], 2,
        [(f'job_id:lockstep_gpu_power_watts:sum{{{JOB}}}', 300)]),
    "job_id:lockstep_gpu_tensor_active_ratio:avg": (
        [(f'lockstep_rank_info{{{JOB},rank="0",{GPU}}}', "1x9"),
         (f'lockstep_rank_info{{{JOB},rank="1",node="n1",gpu="1"}}', "1x9"),
         (f'lockstep_rank_info{{{JOB},rank="2",{GPU}}}', "1x9"),
         (f'lockstep_gpu_tensor_active_ratio{{{GPU},instance="ls-0/1"}}', "0.5x4"),
         (f'lockstep_gpu_tensor_active_ratio{{{GPU},instance="ls-1/1"}}', "0.5x9"),
         ('lockstep_gpu_tensor_active_ratio{node="n1",gpu="1"}', "0.7x9")], 5,
        [(f'job_id:lockstep_gpu_tensor_active_ratio:avg{{{JOB}}}', 0.6)]),
    "job_id:lockstep_job_goodput:ratio": (
        [(f'lockstep_job_span_seconds{{{JOB},span="productive"}}', rising(45)),
         (f'lockstep_job_span_seconds{{{JOB},span="lost"}}', rising(15)),
         # Nor is time in the queue lost, between two attempts and before the first, nor suspended.
         (f'lockstep_job_span_seconds{{{JOB},span="queue"}}', rising(20)),
         (f'lockstep_job_span_seconds{{{JOB},span="suspended"}}', rising(20)),
         # A restart took back what it had: not below 0.
         ('lockstep_job_span_seconds{job_id="ls-2",span="productive"}', "900-9x90"),
         ('lockstep_job_span_seconds{job_id="ls-2",span="lost"}', rising(69))], 80,
        [(f'job_id:lockstep_job_goodput:ratio{{{JOB}}}', 0.75),
         ('job_id:lockstep_job_goodput:ratio{job_id="ls-2"}', 0)]),
}


def samples(series):
    return [{"series": name, "values": values} for name, values in series]


def group(name, series, interval="1m", **tests):
    return {"name": name, "interval": interval, "input_series": samples(series), **tests}


def alert_groups():
    alerts = {rule["alert"]: rule for rule in rules("lockstep.alerts.yml") if "alert" in rule}
    for name, (minute, fires, labels, quiet) in CASES.items():
        severity = alerts[name]["labels"]["severity"]
        ask = {"eval_time": f"{minute}m", "alertname": name}
        annotated = {"exp_labels": {"severity": severity, **labels}}
        yield group(f"{name} fires", fires, alert_rule_test=[{**ask, "exp_alerts": [annotated]}])
        if name in ALSO:
            series, at = ALSO[name]
            yield group(f"{name} fires, too", series,
                        alert_rule_test=[{**ask, "eval_time": f"{at}m", "exp_alerts": [annotated]}])
        yield group(f"{name} is quiet", quiet, alert_rule_test=[{**ask, "exp_alerts": []}])


def rule_groups():
    for name, (series, minute, expected) in RULES.items():
        interval = "15s" if "power" in name else "1m"
        yield group(name, series, interval, promql_expr_test=[
            {"expr": name, "eval_time": f"{minute}m",
             "exp_samples": [{"labels": labels, "value": value} for labels, value in expected]}])


def rules(file):
    groups = yaml.safe_load((DEPLOY / file).read_text())["groups"]
    return [rule for one in groups for rule in one["rules"]]


@unittest.skipUnless(shutil.which("promtool"), "promtool is not installed (Debian package prometheus)")
class Rules(unittest.TestCase):
    def promtool(self, *arguments):
        done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    def test_the_files_are_valid(self):
        for file in ("lockstep.rules.yml", "lockstep.alerts.yml"):
            code, said = self.promtool("check", "rules", DEPLOY / file)
            self.assertEqual(code, 0, said)
        with tempfile.TemporaryDirectory() as folder:
            for path in DEPLOY.glob("*.yml"):
                shutil.copy(path, folder)
            (pathlib.Path(folder) / "lockstep.token").write_text("x")
            for name in ("prometheus.yml", "prometheus-large.yml"):
                code, said = self.promtool("check", "config", pathlib.Path(folder) / name)
                self.assertEqual(code, 0, said)

    def test_each_alert_and_each_rule_has_a_case(self):
        alerts = {rule["alert"]: rule for rule in rules("lockstep.alerts.yml")}
        self.assertEqual(set(CASES), set(alerts))
        self.assertEqual(set(RULES), {rule["record"] for rule in rules("lockstep.rules.yml")})
        for name, rule in alerts.items():
            self.assertIn(rule["labels"]["severity"], ("page", "warning"), name)
            self.assertEqual(set(rule["annotations"]), {"summary", "description"}, name)

    def test_each_alert_fires_when_it_should_and_only_then(self):
        self.play(list(alert_groups()))

    def test_each_recording_rule_has_the_value_it_should(self):
        self.play(list(rule_groups()))

    def test_a_noisy_loss_that_has_converged_is_no_divergence(self):
        """Alternating 0.008 and 0.05 at every scrape: the end of a healthy run."""
        series = [(f'lockstep_job_loss{{{JOB},stat="mean"}}', " ".join(["0.008", "0.05"] * 240)),
                  (f'lockstep_job_state{{{JOB},state="running"}}', "1x480")]
        self.play([group("noisy", series, "15s", alert_rule_test=[
            {"eval_time": f"{minute}m", "alertname": "LockstepDivergence", "exp_alerts": []}
            for minute in (15, 30, 60, 110)])])

    def test_a_noisy_loss_that_is_flat_does_not_diverge_however_long_its_steps_take(self):
        """Of ten minutes with few steps the lowest mean of six hours is far below the others."""
        running = (f'lockstep_job_state{{{JOB},state="running"}}', "1x9999")

        def ask(minutes, alerts):
            return [{"eval_time": f"{minute}m", "alertname": "LockstepDivergence", "exp_alerts": alerts} for minute in minutes]

        fires = [{"exp_labels": {"severity": "warning", "job_id": "ls-1"}}]
        groups = []
        for seconds, noise in ((0.5, 0.3), (60, 0.3), (60, 0.5)):
            dice = random.Random(7)
            held = max(1, int(seconds / 15))  # scrapes that see the same step
            flat = [f"{dice.gauss(1, noise):.4f}" for _ in range(8 * 240 // held) for _ in range(held)]
            high = [f"{dice.gauss(3, noise):.4f}" for _ in range(60 // held) for _ in range(held)] * 4
            loss = [(f'lockstep_job_loss{{{JOB},stat="mean"}}', " ".join(flat + high)), running]
            groups.append(group(f"flat, {seconds} s, {noise}", loss, "15s",
                                alert_rule_test=ask(range(20, 481, 10), []) + ask([510], fires)))
        # Too few steps to tell in ten minutes; lockstepd does, in more.
        groups.append(group("slow", [*loss, (f'lockstep_job_step_time_seconds{{{JOB},stat="p50"}}', "300x9999")], "15s",
                            alert_rule_test=ask([510], [])))
        self.play(groups, every="1m")

    def test_an_error_that_loses_a_node_pages_too(self):
        header = (DEPLOY.parents[1] / "job" / "model" / "gpu_error.hpp").read_text()
        own = set(re.findall(r"GpuError\{(\d+),", header))
        alerts = yaml.safe_load((DEPLOY / "lockstep.alerts.yml").read_text())["groups"]
        paged = next(rule["expr"] for group in alerts for rule in group["rules"] if rule["alert"] == "LockstepGpuXidFatal")
        self.assertGreaterEqual(len(own), 5)
        self.assertLessEqual(own, set(re.search(r'xid=~"([^"]*)"', paged)[1].split("|")))

    def test_a_case_that_is_wrong_is_noticed(self):
        one = next(alert_groups())
        one["alert_rule_test"][0]["exp_alerts"] = []
        with self.assertRaises(AssertionError):
            self.play([one])

    def play(self, groups, every="15s"):
        with tempfile.TemporaryDirectory() as folder:
            # Without annotations: promtool wants their rendered text, word for word. That their
            # templates are sound is seen with a live Prometheus (test_scrape.py).
            bare = [{key: value for key, value in rule.items() if key != "annotations"}
                    for rule in rules("lockstep.alerts.yml")]
            alerts = pathlib.Path(folder) / "alerts.yml"
            alerts.write_text(json.dumps({"groups": [{"name": "alerts", "rules": bare}]}))
            path = pathlib.Path(folder) / "test.yml"
            path.write_text(json.dumps({"rule_files": [str(DEPLOY / "lockstep.rules.yml"), str(alerts)],
                                        "evaluation_interval": every, "tests": groups}))
            code, said = self.promtool("test", "rules", path)
            self.assertEqual(code, 0, said)


if __name__ == "__main__":
    gpu_tests.main()
