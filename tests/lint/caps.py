"""No cap and no duration that users, clients, agents or ranks can run into is declared beside the code: it is in the limits file
of its program or library, or in job/base/limits.hpp if several have it in common, with its reason, where whoever runs into it
finds it. What is of one file alone is named here, with what it is.
"""

import re

import tree

COMMON = "job/base/limits.hpp"
LIMITS = {  # of what lies in a folder, the longest that fits; of all else: COMMON
    "daemon/backup/": "daemon/backup/backup_limits.hpp",
    "daemon/http/": "daemon/http/http_limits.hpp",
    "daemon/telemetry/": "daemon/telemetry/telemetry_limits.hpp",
    "job/async/": "job/async/async_limits.hpp",
    "job/cli/": "job/cli/cli_limits.hpp",
    "job/collective/": "job/collective/collective_limits.hpp",
    "job/model/": "job/model/limits/model_limits.hpp",
    "job/rank/": "job/rank/rank_limits.hpp",
    "job/trainer/": "job/trainer/trainer_limits.hpp",
    "scheduler-integration/exec/": "scheduler-integration/exec/exec_limits.hpp",
}
WHOLE = ("daemon/", "job/", "scheduler-integration/")
CONSTANT = re.compile(r"^\s*(?:inline |static )*constexpr\s+(?P<type>[^=({;]+?)\s+(?P<name>k[A-Z]\w*)\s*(?P<value>[={][^;]*);",
                      re.MULTILINE)
CAP = re.compile(r"(?:Bytes|Seconds|Patience|Timeout|Deadline|Waiting|Kept|Shown|Page|Cells|Points|Most|Max|PerJob|OfUser|OfJob"
                 r"|OfJobs|AtOnce|Samples|Rows|Ranks|Queue|Depth|Connections|Steps|Shards)$")
DURATION = re.compile(r"chrono::|\d(?:us|ms|s|min|h)\b")
# poll: how often something is looked at. retry: the pause before one. age: how old an answer from memory may be. span: of time, that a
# figure is of. turn: work before others have theirs. read: more than a file of the system, of a program of ours or of a peer has.
# buffer: of one. text: cut for a person. format: another's, or ours on the wire. cost: what something takes, or from where on another
# way takes less. type: what its type holds. test: what a measurement sends or takes. default: where a job says nothing; its limit is
# elsewhere.
LOCAL = {
    "daemon/backup/backup.cpp": {"kManifestBytes": "read"},
    "daemon/backup/manifest.cpp": {"kTextBytes": "read"},
    "daemon/backup/store_place.cpp": {"kMarkBytes": "read"},
    "daemon/control/actor/job_actor.cpp": {"kGatherLeast": "turn", "kGatherMost": "turn"},
    "daemon/control/actor/job_actor.hpp": {"kStoreRetry": "retry"},
    "daemon/control/actor/job_face.cpp": {"kViewAge": "age"},
    "daemon/control/actor/job_placement.hpp": {"kLookAtNodes": "poll"},
    "daemon/control/history/history_keeper.cpp": {"kStoredBatchBytes": "turn", "kRetryFirst": "retry", "kRetryMost": "retry",
                                                  "kLate": "poll", "kKeepEvery": "poll"},
    "daemon/control/history/ingest.cpp": {"kRetry": "retry"},
    "daemon/control/jobs/retention.cpp": {"kPassEvery": "poll", "kChunksAtOnce": "turn", "kJobsAtOnce": "turn", "kClearedAtOnce": "turn"},
    "daemon/control/jobs/retention_size.cpp": {"kMeasuredAtOnce": "turn", "kMeasuring": "turn"},
    "daemon/control/machine/anomaly_run.cpp": {"kAnomaliesEvery": "poll"},
    "daemon/control/machine/desync.cpp": {"kSteps": "poll"},
    "daemon/control/machine/generation_run.cpp": {"kStatsAge": "age"},
    "daemon/control/machine/hang_watch.cpp": {"kLookEvery": "poll"},
    "daemon/control/machine/generation/next_generation.cpp": {"kStepMost": "type"},
    "daemon/control/machine/kv_store.cpp": {"kEncodedValueBytes": "format"},
    "daemon/control/machine/missing_nodes.cpp": {"kTellLog": "poll", "kTellView": "poll"},
    "daemon/control/notices/notifier.cpp": {"kFirstPause": "retry", "kLongestPause": "retry", "kLongestSleep": "poll",
                                            "kNoticeStoreRetry": "retry"},
    "daemon/control/queries/stream_hub.cpp": {"kRanksEvery": "poll", "kStepsEvery": "poll"},
    "daemon/http/auth/audit_log.cpp": {"kPathBytes": "text", "kTryAgain": "retry"},
    "daemon/http/base/ws_frames.cpp": {"kKeepBytes": "buffer"},
    "daemon/http/base/ws_frames.hpp": {"kControlBytes": "format"},
    "daemon/http/logs/log_times.cpp": {"kMarksAtOnce": "buffer"},
    "daemon/http/routes/folder_reads.hpp": {"kFirstTurn": "poll", "kLastTurn": "poll"},
    "daemon/http/routes/log_follower.cpp": {"kLook": "poll", "kLookLater": "poll", "kQuiet": "poll", "kLookRarely": "poll",
                                               "kLongQuiet": "poll"},
    "daemon/http/routes/web_page.cpp": {"kWebFileBytes": "read"},
    "daemon/http/server/event_feed.cpp": {"kReplayPage": "turn"},
    "daemon/http/server/server.cpp": {"kAcceptRetry": "retry"},
    "daemon/lockstepd/main.cpp": {"kPeriod": "poll", "kTokensEvery": "poll"},
    "daemon/telemetry/exposition/exposition.cpp": {"kJobBytes": "cost"},
    "daemon/telemetry/exposition/gpu_exposition.cpp": {"kGpuSampleBytes": "cost"},
    "daemon/telemetry/exposition/metric_text.hpp": {"kPieceBytes": "buffer"},
    "daemon/telemetry/exposition/rank_exposition.cpp": {"kRankSampleBytes": "cost", "kSeenPatience": "age"},
    "daemon/telemetry/history/history_chunk.cpp": {"kMostRows": "format"},
    "daemon/telemetry/remote_write/remote_message.cpp": {"kBytes": "format", "kSamples": "format"},
    "daemon/telemetry/remote_write/remote_queue.cpp": {"kFirstPause": "retry", "kLongestPause": "retry"},
    "daemon/telemetry/remote_write/remote_writer.cpp": {"kIdle": "poll", "kShown": "text"},
    "daemon/telemetry/series/gpu_history.cpp": {"kGpuLookSeconds": "poll"},
    "daemon/telemetry/series/heatmap.cpp": {"kMost": "type"},
    "daemon/telemetry/series/history_scan.cpp": {"kMostSteps": "type"},
    "daemon/telemetry/series/series.cpp": {"kMostSeconds": "type"},
    "job/agent/agent.cpp": {"kStepDaemonLook": "poll"},
    "job/agent/diagnostics/evidence_taker.cpp": {"kDumpPoll": "poll", "kDumpRead": "turn", "kToolSearch": "turn",
                                                 "kDiagnosticsTime": "turn", "kWriteTime": "turn"},
    "job/agent/diagnostics/flight_dump.cpp": {"kTick": "cost"},
    "job/agent/diagnostics/nccl_conf.cpp": {"kNcclConfBytes": "read"},
    "job/agent/diagnostics/nccl_ras.cpp": {"kRasLineBytes": "read"},
    "job/agent/diagnostics/python_stacks.cpp": {"kStackBytes": "read", "kStackPoll": "poll"},
    "job/agent/diagnostics/rank_profiles.cpp": {"kProfileLook": "poll"},
    "job/agent/gpu/gpu_health.cpp": {"kAgain": "poll"},
    "job/agent/gpu/gpu_watch.cpp": {"kStopWait": "turn"},
    "job/agent/gpu/nvml_abi.hpp": {"kNvlinkXmitBytes": "format", "kNvlinkRcvBytes": "format", "kGpmMetricMax": "format"},
    "job/agent/gpu/rank_processes.cpp": {"kStatBytes": "read"},
    "job/agent/keeper.cpp": {"kEndLook": "poll", "kProcessStatBytes": "read"},
    "job/agent/kv/kv_proxy.cpp": {"kOthersReturn": "turn"},
    "job/agent/nccl/desync_watch.cpp": {"kRowsEvery": "poll"},
    "job/agent/nccl/ras_status.cpp": {"kNameBytes": "read"},
    "job/agent/nccl/desync_lags.cpp": {"kCommunicatorsShown": "text", "kRanksShown": "text"},
    "job/agent/nccl/ras_watch.cpp": {"kYoung": "poll", "kProcPatience": "turn"},
    "job/agent/node/checkpoint_signal.cpp": {"kDeafRankPause": "poll"},
    "job/agent/node/clock_offset.hpp": {"kKept": "age"},
    "job/agent/node/node_children.cpp": {"kSearchEvery": "poll", "kSearchLater": "poll", "kStartUp": "poll"},
    "job/agent/node/node_children_output.cpp": {"kChildReadBytes": "buffer"},
    "job/agent/preflight/gpu_tester.cpp": {"kGiveUp": "turn"},
    "job/agent/preflight/nccl_tester.cpp": {"kGiveUpNccl": "turn"},
    "job/agent/preflight/peer_probe.cpp": {"kProbeLineBytes": "format"},
    "job/agent/preflight/preflight_facts.cpp": {"kFactBytes": "read"},
    "job/agent/preflight/preflight_nics.cpp": {"kBytes": "read"},
    "job/agent/preflight/preflight_versions.cpp": {"kVersionBytes": "read"},
    "job/agent/preflight/run_path.cpp": {"kRunPathBytes": "read"},
    "job/agent/ranks/flush_pace.hpp": {"kGather": "poll", "kApart": "poll"},
    "job/agent/ranks/binding.cpp": {"kSysFileBytes": "read"},
    "job/agent/ranks/log_marker.hpp": {"kApart": "poll", "kRows": "poll"},
    "job/agent/ranks/log_writer.cpp": {"kLogFlushWait": "turn"},
    "job/agent/own_log.hpp": {"kQueueBytes": "buffer", "kFlushWait": "turn"},
    "job/agent/ranks/log_writer.hpp": {"kQueueBytes": "buffer", "kPatience": "turn"},
    "job/collective/running_time.hpp": {"kAtOnce": "turn"},
    "job/agent/ranks/process_look.cpp": {"kDiskRead": "poll"},
    "job/agent/ranks/rank_group.cpp": {"kOutputBytes": "turn"},
    "job/agent/ranks/rank_identity.cpp": {"kEnvironmentFileBytes": "read", "kProcFileBytes": "read"},
    "job/agent/ranks/rank_message.cpp": {"kInt64Max": "type", "kMost": "type"},
    "job/agent/ranks/rank_state.cpp": {"kBytes": "read"},
    "job/agent/ranks/signal_targets.cpp": {"kProcessStatusBytes": "read"},
    "job/agent/ranks/standbys.cpp": {"kEnding": "turn"},
    "job/agent/ranks/task_wire.cpp": {"kTaskReadBytes": "buffer"},
    "job/agent/torch_store/tcp_store.cpp": {"kStoreReadBytes": "buffer"},
    "job/agent/torch_store/tcp_store_reply.hpp": {"kEntryBytes": "cost", "kWaitBytes": "cost"},
    "job/async/name_lookup.cpp": {"kLookupStopWait": "turn"},
    "job/async/net_stream.hpp": {"kRecordBytes": "format"},
    "job/async/one_request_server.cpp": {"kReceiveBytes": "buffer", "kAcceptPause": "retry"},
    "job/async/rest_http.cpp": {"kUnixPathBytes": "format"},
    "job/async/side_thread.cpp": {"kSideStopWait": "turn"},
    "job/async/slices.hpp": {"kSlice": "turn"},
    "job/async/unix_socket.cpp": {"kTryAgain": "retry"},
    "job/async/ws_client.cpp": {"kDetailBytes": "text"},
    "job/base/files.cpp": {"kMountsBytes": "read"},
    "job/base/machine.cpp": {"kFileBytes": "read"},
    "job/cli/acting.cpp": {"kAskPause": "retry"},
    "job/cli/daemon_start.cpp": {"kStartTurn": "poll"},
    "job/cli/disk.cpp": {"kBetween": "retry"},
    "job/cli/document.cpp": {"kMost": "text"},
    "job/cli/evidence.cpp": {"kEvidenceTurn": "poll"},
    "job/cli/follow.cpp": {"kFollowTurn": "poll", "kPlainEvery": "poll", "kWaitingEvery": "poll", "kHistoryEvery": "poll"},
    "job/cli/help.cpp": {"kMost": "text"},
    "job/cli/interrupt.cpp": {"kTurnPatience": "turn"},
    "job/cli/live.cpp": {"kPaceSeconds": "span"},
    "job/cli/logs.cpp": {"kLogsTurn": "poll"},
    "job/cli/nodes_check.cpp": {"kPause": "poll"},
    "job/cli/profile.cpp": {"kProfileTurn": "poll"},
    "job/cli/run.cpp": {"kSoon": "poll", "kBeginning": "poll"},
    "job/cli/samples.cpp": {"kBetweenSampleTries": "retry"},
    "job/cli/screen.cpp": {"kSequence": "cost"},
    "job/cli/submit.cpp": {"kFirstPause": "retry"},
    "job/collective/gloo_exchange.cpp": {"kPairBytes": "cost", "kGroupBytes": "cost", "kPieceBytes": "buffer"},
    "job/collective/gloo_watch.cpp": {"kForever": "format"},
    "job/collective/nccl_operations.cpp": {"kEnqueueSpin": "poll", "kEnqueuePoll": "poll", "kBarrierPoll": "poll", "kVerdictPoll": "poll"},
    "job/collective/nccl_ranks.cpp": {"kInitPoll": "poll", "kWatchTick": "poll", "kScratchBytes": "buffer"},
    "job/collective/peer_keys.cpp": {"kConnectAgain": "retry"},
    "job/collective/shared_sum.cpp": {"kSlotBytes": "buffer", "kWholeBytes": "cost", "kLook": "poll"},
    "job/model/log_marks.hpp": {"kLogMarkBytes": "format"},
    "job/model/notices.cpp": {"kMailLineBytes": "format"},
    "job/model/preflight/nccl_test.cpp": {"kMostRanks": "read", "kMostBytes": "read"},
    "job/model/preflight/preflight_wire.cpp": {"kMost": "read"},
    "job/model/python_stack.cpp": {"kCallBytes": "text"},
    "job/model/spec/notify.cpp": {"kLocalPartBytes": "format", "kMailHostBytes": "format"},
    "job/model/spec/signed_statement.hpp": {"kNonceBytes": "format", "kCredentialBytes": "format"},
    "job/model/spec/spec.hpp": {"kGrowAfterSeconds": "default"},
    "job/model/wire/batch.cpp": {"kMostSteps": "type"},
    "job/model/wire/flat_json.cpp": {"kMost": "type"},
    "job/model/wire/flat_json.hpp": {"kMost": "read"},
    "job/nccl_test/gpu_rank.cpp": {"kLargeBytes": "test", "kProbeBytes": "test", "kSliceBytes": "buffer", "kLargeSeconds": "test",
                                   "kSmallSeconds": "test"},
    "job/rank/c/lockstep_c.cpp": {"kLongestSeconds": "type"},
    "job/rank/client.cpp": {"kAnswerBytes": "read"},
    "job/trainer/checkpoint.cpp": {"kPartPollFirst": "poll", "kPartPoll": "poll", "kChecksumBytes": "format"},
    "job/trainer/checkpoint_bytes.cpp": {"kHashBytes": "format"},
    "job/trainer/cuda_device.cpp": {"kGiveUpPoll": "poll"},
    "job/trainer/data/table.cpp": {"kShown": "text"},
    "job/trainer/kernels.cpp": {"kLanesMax": "buffer"},
    "job/trainer/loader.hpp": {"kBytes": "buffer"},
    "job/trainer/loss_scale.hpp": {"kScaleMax": "type"},
    "job/trainer/main.cpp": {"kKept": "buffer"},
    "job/trainer/pair_measurement.cpp": {"kExchangeBytes": "test"},
    "job/trainer/reducer.cpp": {"kBucketMax": "buffer", "kGiveUpPoll": "poll"},
    "job/trainer/safetensors.cpp": {"kLengthBytes": "format"},
    "job/trainer/strategies/device_parallel.cpp": {"kEagerSteps": "cost"},
    "job/trainer/strategies/device_sums.hpp": {"kBucketBytes": "buffer"},
    "job/trainer/text_kernels.cpp": {"kMost": "type"},
    "scheduler-integration/exec/order.hpp": {"kPayloadBytes": "format"},
    "scheduler-integration/local/local_scheduler.cpp": {"kGpuFileBytes": "read"},
    "scheduler-integration/slurm/hostlist.cpp": {"kNameBytes": "format", "kItemBytes": "read"},
    "scheduler-integration/slurm/scheduler/attempt_files.cpp": {"kDoubtBytes": "read", "kSlurmJobBytes": "read", "kTailBytes": "text",
                                                                "kLineBytes": "text"},
    "scheduler-integration/slurm/scheduler/pace.cpp": {"kFirstAudit": "poll", "kAtLeast": "poll"},
    "scheduler-integration/slurm/scheduler/site.cpp": {"kFactsAge": "age", "kNodesAge": "age", "kNodesWanted": "age"},
    "scheduler-integration/slurm/slurm_exec.cpp": {"kTicketBytes": "format"},
    "scheduler-integration/slurm/slurm_logs.cpp": {"kLineBytes": "text", "kLogTailBytes": "read"},
    "scheduler-integration/slurm/slurm_reason.cpp": {"kMostBytes": "text"},
    "scheduler-integration/slurm/slurm_signers.cpp": {"kOpenAgain": "retry"},
    "scheduler-integration/slurm/slurm_users.cpp": {"kBeginAgain": "retry"},
    "scheduler-integration/slurm/text_rows.cpp": {"kBytes": "text"},
}


def limits_file(name):
    return max((folder, limits) for folder, limits in {"": COMMON, **LIMITS}.items() if name.startswith(folder))[1]


def is_checked(name):
    if name == COMMON or name in LIMITS.values():
        return False
    return name.startswith(WHOLE)


def is_cap(found):
    value = found["value"]
    if value.startswith(("= rank_families", "= limits::")) or not re.search(r"\d", value):
        return False
    if re.search(r"array|vector|string_view|char", found["type"]):
        return False
    return bool(CAP.search(found["name"]) or DURATION.search(found["type"] + value))


def main():
    root = tree.root_argument(__doc__)
    problems, checked, used, homes = [], 0, set(), {}
    for name in map(str, tree.cpp_files(root)):
        if name == COMMON or name in LIMITS.values():  # a source may include several
            code = tree.code_only((root / name).read_text(encoding="utf-8"))
            problems += [f"{name}:{tree.line_of(code, found.start('name'))}: {found['name']} is in {homes[found['name']]} already"
                         for found in CONSTANT.finditer(code) if homes.setdefault(found["name"], name) != name]
        if not is_checked(name):
            continue
        checked += 1
        code = tree.code_only((root / name).read_text(encoding="utf-8"))
        for found in CONSTANT.finditer(code):
            if not is_cap(found):
                continue
            if found["name"] in LOCAL.get(name, ()):
                used.add((name, found["name"]))
                continue
            problems.append(f"{name}:{tree.line_of(code, found.start('name'))}: {found['name']} belongs in {limits_file(name)}")
    for name, known in LOCAL.items():
        problems += [f"{name}:1: has no {one} any more" for one in sorted(known)
                     if (root / name).is_file() and (name, one) not in used]
    tree.verdict("caps", problems, checked)


if __name__ == "__main__":
    main()
