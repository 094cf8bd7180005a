// What goes in and what comes out, once for each schema that an operation takes or answers, and for
// each operation that answers text. tests/web/client.test.mjs compares them with the schemas.
#include "daemon/http/routes/openapi.hpp"

namespace lockstep {

namespace {

constexpr std::string_view kExamples = R"json({
"JobSpec": {"name": "mnist-ddp", "framework": "pytorch", "command": ["python3", "train.py", "--lr", "0.1"],
  "working_directory": "/home/me/run", "resources": {"nodes": 2, "ranks_per_node": 8, "gpus_per_node": 8, "time_limit": "04:00:00"},
  "recovery": {"max_restarts": 2}, "labels": {"team": "vision"}},
"JobSpecAnswer": {"name": "mnist-ddp", "framework": "pytorch", "command": ["python3", "train.py", "--lr", "0.1"],
  "resources": {"nodes": 2, "ranks_per_node": 8, "gpus_per_node": 8, "cpus_per_rank": 1, "time_limit": "04:00:00"},
  "environment": {}, "working_directory": "/home/me/run", "capture": {"preset": "auto"}, "labels": {"team": "vision"}},
"Job": {"id": "ls-01M7Y0TEBE6RGPKNAPWHDXZPKF", "name": "mnist-ddp", "user": "ada", "framework": "pytorch", "state": "failed",
  "labels": {"team": "vision"}, "resources": {"nodes": 2, "ranks_per_node": 8, "gpus_per_node": 8, "cpus_per_rank": 1, "time_limit": "04:00:00"},
  "submitted_at": "2026-11-23T08:03:50.503Z", "started_at": "2026-11-23T08:04:12.520Z", "finished_at": "2026-11-23T09:11:40.575Z", "step": 8124,
  "spans": {"queue_seconds": 18.2, "launch_seconds": 2.1, "rendezvous_seconds": 1.7, "init_seconds": 12.4, "productive_seconds": 4031.6,
    "checkpoint_seconds": 0, "stalled_seconds": 0, "lost_seconds": 4.1, "suspended_seconds": 0}, "ettr": 0.996,
  "cause": {"class": "rank_exit", "message": "rank 3 on n1 raised KeyError: 'labels'", "rank": 3, "node": "n1", "exit_code": 1,
    "exception": {"type": "KeyError", "message": "'labels'"}},
  "attempts": [{"number": 1, "scheduler_id": "4711", "state": "failed", "nodes": ["n1", "n2"], "created_at": "2026-11-23T08:03:50.506Z",
    "started_at": "2026-11-23T08:04:08.700Z", "finished_at": "2026-11-23T09:11:40.575Z",
    "generations": [{"number": 1, "started_at": "2026-11-23T08:04:10.801Z", "running_at": "2026-11-23T08:04:12.520Z",
      "finished_at": "2026-11-23T09:11:40.575Z", "step": 8124}]}]},
"JobCommanded": {"id": "ls-01M7Y0TEBE6RGPKNAPWHDXZPKF", "name": "mnist-ddp", "user": "ada", "framework": "pytorch", "state": "running",
  "labels": {}, "resources": {"nodes": 2, "ranks_per_node": 8, "gpus_per_node": 8, "cpus_per_rank": 1},
  "submitted_at": "2026-11-23T08:03:50.503Z", "attempts": [], "already_done": true},
"JobPage": {"items": [], "next_cursor": "bHMtMDFNN1kw"},
"JobRemoved": {"removed": "ls-01M7Y0TEBE6RGPKNAPWHDXZPKF", "directory": "/var/lib/lockstep/runs/ls-01M7Y0TEBE6RGPKNAPWHDXZPKF", "checkpoints_kept": true},
"JobDisk": {"directory": "/var/lib/lockstep/runs/ls-01M7Y0TEBE6RGPKNAPWHDXZPKF", "total_bytes": 1100331, "logs_bytes": 20480, "evidence_bytes": 0,
  "checkpoints_bytes": 598016, "other_bytes": 471040, "history_bytes": 10795, "files": 15},
"SweepCancelled": {"cancelled": 7},
"Render": {"scheduler": "local", "nodes": 1, "ranks": 2, "command": ["python3", "train.py"], "environment": {"RANK": "0", "WORLD_SIZE": "2"}, "warnings": [],
  "render_hash": "1beb72ea641d7d7e6441300f3450a2ff285f69ae9fa10decc9ea1acf1061956a"},
"Ranks": {"items": [{"rank": 0, "local_rank": 0, "node_rank": 0, "node": "n1", "address": "10.0.0.7", "state": "running", "step": 8124, "report_age_seconds": 0.2}],
  "total": 16, "ranks_reporting": 16, "samples_per_second": 2064.5},
"MetricNames": {"ranks": 16, "items": ["busy_seconds", "loss", "step_seconds"]},
"JobGpus": {"total": 16, "metrics": ["gpu_memory_used_bytes", "gpu_power_watts", "gpu_utilization_ratio"],
  "items": [{"id": 0, "node": "n1", "gpu": 0, "ranks": [0]}, {"id": 1, "node": "n1", "gpu": 1, "ranks": [1]}]},
"SamplesAnswer": {"metric": "loss", "runs": [{"rank": 0, "attempt": 1, "generation": 1, "steps": [1, 2, 3], "times": [1795421030.9, 1795421031.4, 1795421031.9],
  "values": [2.34, 2.32, "nan"]}], "next_cursor": "MS41LjAuMC4w"},
"EventPage": {"items": [{"seq": 5, "time": "2026-11-23T08:04:08.700Z", "kind": "attempt_placed", "job": "ls-01M7Y0TEBE6RGPKNAPWHDXZPKF", "attempt": 1,
  "data": {"scheduler_id": "4711"}}], "next_cursor": "5"},
"JobNodes": {"items": [{"node_rank": 0, "node": "n1", "address": "10.0.0.7", "ranks": "0-7", "state": "running", "ranks_running": 8, "ranks_failed": 0,
  "step": 8123, "agent_age_seconds": 0.4, "report_age_seconds": 0.6, "clock_offset_seconds": -0.002, "gpus": 8, "gpu_utilization_ratio": 0.94}]},
"SeriesAnswer": {"metric": "loss", "x": "step", "series": [{"rank": 0, "points": [[2, 2.32, 2.34, 2.32], [5, 2.22, 2.29, 2.22]]}]},
"LogFindings": {"items": [{"text": "KeyError: 'labels'", "count": 2, "ranks": "1,3", "first": {"rank": 1, "offset": 40412, "time": "2026-11-23T09:11:40.140Z"}}],
  "ranks": 16, "searched_ranks": 16, "searched_bytes": 1048576, "truncated": false},
"Evidence": {"items": [{"attempt": 1, "generation": 1, "time": "2026-11-23T09:00:00.000Z", "reason": "hang", "message": "16 of 16 ranks", "step": 812,
  "ranks": [{"rank": 3, "node": "n1", "pid": 4242, "step": 811, "behind": true, "state": "S", "frame": "train.py:41 load_batch",
    "files": [{"name": "python.txt", "size": 2113}], "missing": []}]}]},
"ProfileRequest": {"ranks": "0,3-5", "seconds": 5},
"ProfileAsked": {"attempt": 1, "generation": 1, "profile": 1, "ranks": [0, 3, 4, 5], "seconds": 5, "patience_seconds": 80},
"Profiles": {"items": [{"attempt": 1, "generation": 1, "profile": 1, "time": "2026-11-23T09:00:00.000Z", "by": "ada", "seconds": 5,
  "message": "stacks of 1 of 1 ranks, traces of 1", "ranks": [{"rank": 3, "node": "n1", "files": [{"name": "stacks.txt", "size": 2113},
    {"name": "trace.json.gz", "size": 90113}], "missing": []}]}]},
"Cluster": {"scheduler": "slurm", "name": "alps", "version": "23.11.10", "reachable": true, "seen_at": "2026-11-23T08:03:52.323Z",
  "nodes": {"total": 16, "usable": 15, "idle": 3}, "cpus": {"usable": 960, "used": 768}, "gpus": {"usable": 120, "used": 96},
  "partitions": [{"name": "gpu", "state": "UP", "default": true, "max_time": "1-00:00:00"}]},
"NodePage": {"seen_at": "2026-11-23T08:03:52.323Z", "items": [{"name": "n1", "state": "ALLOCATED", "usable": true, "partitions": ["gpu"], "cpus": 64, "cpus_used": 64,
  "memory_mb": 515000, "gpus": 8, "gpus_used": 8, "jobs": ["ls-01M7Y0TEBE6RGPKNAPWHDXZPKF"]}]},
"NodeDetail": {"name": "n1", "state": "ALLOCATED", "usable": true, "partitions": ["gpu"], "cpus": 64, "cpus_used": 64, "gpus": 8, "gpus_used": 8, "jobs": [],
  "history": {"since": "2026-10-01T00:00:00.000Z", "attempts": 212, "faults": 1, "faults_7d": 1, "by_kind": {"gpu_xid": 1}, "slow": 4, "excluded": 0,
    "last_fault_at": "2026-11-20T17:05:01.000Z"},
  "faults": [{"time": "2026-11-20T17:05:01.000Z", "kind": "gpu_xid", "gpu": 5, "message": "Xid 79"}]},
"Identity": {"user": "ada", "role": "user", "scopes": ["metrics", "read", "write", "secrets"], "token": "tk-08a899ae30ff", "expires_at": "2026-12-23T08:03:52.328Z"},
"SignInCode": {"code": "6019d94419896ffd", "expires_at": "2026-11-23T08:04:52.327Z"},
"SignIn": {"code": "6019d94419896ffd"},
"SlurmToken": {"token": "SLURM_JWT=eyJhbGciOiJIUzI1NiJ9.e30.c2ln"},
"SecretValue": {"value": "0123456789abcdef0123456789abcdef01234567"},
"Secret": {"name": "WANDB_API_KEY", "set_at": "2026-11-25T08:03:52.328Z"},
"SecretPage": {"items": [{"name": "HF_TOKEN", "set_at": "2026-11-24T16:20:07.114Z"}, {"name": "WANDB_API_KEY", "set_at": "2026-11-25T08:03:52.328Z"}]},
"TokenRequest": {"name": "laptop", "expires_in": 2592000},
"NewToken": {"id": "tk-cd8713eb1fce", "name": "laptop", "user": "ada", "role": "user", "scopes": ["metrics", "read", "write", "secrets"],
  "created_at": "2026-11-23T08:03:52.328Z", "expires_at": "2026-12-23T08:03:52.328Z", "token": "lks_…"},
"TokenPage": {"items": [{"id": "tk-cd8713eb1fce", "name": "laptop", "user": "ada", "role": "user", "scopes": ["metrics", "read", "write", "secrets"],
  "created_at": "2026-11-23T08:03:52.328Z", "expires_at": "2026-12-23T08:03:52.328Z", "last_used_at": "2026-11-23T09:00:00.000Z"}]},
"ScrapeTargets": [{"targets": ["127.0.0.1:8470"], "labels": {"__metrics_path__": "/metrics/jobs/ls-01M7Y0TEBE6RGPKNAPWHDXZPKF", "instance": "ls-01M7Y0TEBE6RGPKNAPWHDXZPKF/0"}}],
"Health": {"status": "ok", "version": "0.2.0"},
"getOpenApi": {"openapi": "3.1.0"},
"getJobScript": "#!/bin/bash\n#SBATCH --nodes=2\n",
"getJobLogs": "step 10/400 loss 2.1754\nstep 20/400 loss 1.8817\n",
"getJobEvidenceFile": "Thread 0x00007f (most recent call first):\n  File \"train.py\", line 41 in load_batch\n",
"getJobProfileFile": "MainThread;<module> (train.py:12);one_step (train.py:7) 93\n",
"getMetrics": "# HELP lockstep_build_info The daemon.\n# TYPE lockstep_build_info gauge\nlockstep_build_info{version=\"0.2.0\"} 1\n",
"getJobMetrics": "# TYPE lockstep_rank_loss gauge\nlockstep_rank_loss{job=\"ls-01M7Y0TEBE6RGPKNAPWHDXZPKF\",rank=\"0\"} 0.031\n",
"streamEvents": "id: 5\nevent: attempt_placed\ndata: {\"seq\":5,\"time\":\"2026-11-23T08:04:08.700Z\",\"kind\":\"attempt_placed\",\"job\":\"ls-01M7Y0TEBE6RGPKNAPWHDXZPKF\",\"attempt\":1,\"data\":{\"scheduler_id\":\"4711\"}}\n\n"
})json";

}  // namespace

std::string_view openapi_examples() {
    return kExamples;
}

}  // namespace lockstep
