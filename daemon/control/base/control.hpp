// The one place where store, scheduler, telemetry and agents meet: commands and queries that the
// HTTP edge may use. Control thread only. Commands are durable before they answer.
#pragma once

#include "daemon/control/base/agent_gate.hpp"
#include "daemon/control/base/caller.hpp"
#include "daemon/control/base/cluster_view.hpp"
#include "daemon/control/base/commands.hpp"
#include "daemon/control/base/job_stream.hpp"
#include "daemon/control/base/metrics_exposition.hpp"
#include "daemon/control/base/rank_order.hpp"
#include "daemon/control/base/submit_result.hpp"
#include "daemon/telemetry/series/bands.hpp"
#include "job/async/asio.hpp"
#include "job/base/json.hpp"
#include "job/base/result.hpp"
#include "job/model/event.hpp"
#include "job/model/spec/signed_statement.hpp"
#include "job/model/spec/spec.hpp"
#include "job/model/spec/sweep.hpp"
#include "job/model/state.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct SubmitRequest {
    JobSpec spec;                 // of the first job, when it is a sweep
    std::optional<Sweep> sweep;   // all of them
    std::string idempotency_key;  // "" = none
    std::string body_sha256;      // of the request's body, to tell a repeat from another request
    // The request's body and its signature, where jobs are signed.
    std::string document{};
    std::optional<Signature> signature{};
    std::string if_match;  // render_hash the submission must have, "" = any
};
struct Submitted {
    std::shared_ptr<const std::string> job_json;  // the (first) job as GET shows it
    std::string id;
    bool repeated = false;  // an earlier submission with this key
};

struct JobQuery {
    std::vector<JobState> states;    // any of these; empty = any
    std::vector<std::string> words;  // each is in its id, name, user, framework, labels or cause
    std::string user, name;          // "" = any
    std::string label_name, label_value;  // label=name:value; "" = any
    std::string sweep;                    // id of a sweep's first job; "" = any
    std::size_t limit = 50;
    std::string cursor;               // opaque; "" = from the newest
    std::vector<std::string> fields;  // of each job only these; empty = all
};

// A place in a rank's log: where the bytes lie and whether more may come.
struct LogPlace {
    std::string path;                // absolute
    std::string instead{};           // launch node: where its output is if there is no such file
    std::int32_t instead_rank = -1;  // and whose log that is
    // More may come: of the newest attempt until the job is over, of a named one until that is.
    bool may_grow = false;
    std::int32_t ranks = 0;    // how many the job has
    std::int32_t attempt = 0;  // number of the attempt whose log it is
};

// One page of a job's events.
struct EventsQuery {
    bool newest_first = false;
    std::int64_t after = 0;   // oldest first: from behind this seq on
    std::int64_t before = 0;  // newest first: from before this seq on; 0: from the newest
    std::size_t limit = 0;
};

// Which of a job's evidence or profiles are listed.
struct CapturesQuery {
    std::size_t limit = 0;
    std::int64_t before = 0;  // next_cursor of the answer before; 0: from the newest
};

// One file of a rank's evidence (job/model/evidence.hpp).
struct EvidenceQuery {
    std::int32_t attempt = 0;     // 0 = the newest
    std::int32_t generation = 0;  // 0 = the newest of it
    std::int32_t rank = 0;
    std::string name;
    std::int32_t profile = 0;  // of a profile: its number; 0 = the generation's newest
};
// Where it lies: in `folders`, each in the one before, below the attempt's directory. Whoever runs
// the job may write there: none of them is to be followed if it is a link.
struct EvidencePlace {
    std::string directory;
    std::vector<std::string> folders;
};

// What a job takes on disk: its folder in the runs directory, which nobody has looked at, and bytes
// of telemetry in the store.
struct DiskPlace {
    std::string directory;
    // Where its first attempt was made, if the runs directory was another one then: the job's
    // folder is that one, if it is still there. "" = the same.
    std::string first_directory{};
    std::int64_t history_bytes = 0;
};

// Which entities a question about history is about: ranks, or the job's GPUs, those with these
// numbers or those that `ranks` of the question use.
struct EntityQuery {
    bool of_gpus = false;
    std::vector<std::int32_t> gpus;  // ascending; empty = by `ranks`, and without those all
};

struct SeriesQuery : EntityQuery {
    std::string metric = "loss";
    std::vector<std::int32_t> ranks;  // empty = all, at most limits::kSeriesRanks
    bool by_time = false;             // x = time (seconds since the epoch) or step
    std::optional<double> from, to;
    std::size_t points = 800;
    std::size_t metrics = 1;  // that one answer has: many lines have fewer points each
    // With one of these two there are no series of single ranks, but what all of `ranks` (any
    // number) are like, and the worst so many of them.
    std::vector<telemetry::BandStat> stats;
    std::size_t worst = 0;
    std::optional<bool> low_is_worse;  // nothing: as the metric is
};

struct HeatmapQuery : EntityQuery {
    std::string metric = "busy_seconds";
    std::vector<std::int32_t> ranks;  // the lowest to the highest of them; empty = all
    bool by_time = false;             // columns of time instead of steps
    std::optional<double> from, to;   // steps or seconds since the epoch
    std::size_t columns = 400;
    std::size_t rows = 0;  // 0 = one per rank where that fits
};

struct SamplesQuery : EntityQuery {
    std::string metric = "loss";
    std::vector<std::int32_t> ranks;       // empty = all; at most limits::kSeriesRanks
    std::optional<std::int64_t> from, to;  // steps
    std::optional<std::int32_t> attempt, generation;
    std::size_t limit = 10'000;
    std::string cursor;  // opaque; "" = from the beginning
};

class Control {
  public:
    virtual ~Control() = default;

    // invalid: /errors; any SubmitFailure. Nothing was accepted then.
    virtual Task<SubmitResult<Submitted>> submit(Caller caller, SubmitRequest request) = 0;
    // {command, environment, warnings, script, render_hash, …}; nothing is stored.
    virtual Result<Json> render(const Caller& caller, const JobSpec& spec) = 0;
    // When the scheduler would start it, as it says now: {start, nodes, partition}, or {message}
    // where it would refuse it or does not answer. null: it cannot tell.
    virtual Task<Json> start_estimate(JobSpec spec) {
        static_cast<void>(spec);
        co_return Json();
    }

    // The job's JSON if it is in memory: the fast path of GET /v1/jobs/{id}. nullptr: ask show().
    // not_found also for a job the caller may not see.
    virtual Result<std::shared_ptr<const std::string>> show_now(const Caller& caller,
                                                                std::string_view id) = 0;
    virtual Task<Result<std::shared_ptr<const std::string>>> show(Caller caller,
                                                                  std::string id) = 0;
    // {items, next_cursor} as text.
    virtual Task<Result<std::string>> list(Caller caller, JobQuery query) = 0;
    // A job that is over is none any more: {"removed": id, …}. Its files follow. conflict: it is
    // not over, or somebody still needs it; unavailable: its agents are about to leave.
    virtual Task<Result<std::string>> remove(Caller caller, std::string id,
                                             bool keep_checkpoints) = 0;
    // Where its files lie, and what it takes elsewhere.
    virtual Task<Result<DiskPlace>> disk(Caller caller, std::string id) = 0;
    virtual Task<Result<std::string>> spec(Caller caller, std::string id) = 0;
    // The batch script of the newest attempt as it was submitted. not_found: its scheduler uses
    // none; unavailable: not written yet.
    virtual Task<Result<std::string>> script(Caller caller, std::string id) = 0;
    virtual Task<Result<std::string>> events(Caller caller, std::string id,
                                             EventsQuery query) = 0;  // {items, next_cursor}
    // {items, total, ranks_reporting, samples_per_second}; total: all ranks, however many are asked
    // for.
    virtual Task<Result<std::string>> ranks(Caller caller, std::string id, RanksQuery query) = 0;
    // {items}: the job's nodes by node rank, each with its ranks together.
    virtual Task<Result<std::string>> job_nodes(Caller caller, std::string id) = 0;
    virtual Task<Result<std::string>> series(Caller caller, std::string id, SeriesQuery query) = 0;
    // Bytes as daemon/telemetry/series/heatmap.hpp says.
    virtual Task<Result<std::string>> heatmap(Caller caller, std::string id,
                                              HeatmapQuery query) = 0;
    // Every stored sample, page by page (daemon/telemetry/series/sample_scan.hpp).
    virtual Task<Result<std::string>> samples(Caller caller, std::string id,
                                              SamplesQuery query) = 0;
    // {ranks, items}: how many ranks the job has, the names of the metrics that any has reported.
    virtual Task<Result<std::string>> metric_names(Caller caller, std::string id) = 0;
    // {total, metrics, items}: the GPUs the job has had, by number.
    virtual Task<Result<std::string>> gpus(Caller caller, std::string id, std::size_t offset,
                                           std::size_t limit) = 0;
    // Of this attempt; 0: of the newest with a generation. not_found: no such job, rank or attempt;
    // unavailable: the rank has not started, there is no log yet.
    virtual Task<Result<LogPlace>> log_place(Caller caller, std::string id, std::int32_t rank,
                                             std::int32_t attempt) = 0;
    // {items, next_cursor}, the newest look of each generation that was looked at, newest first;
    // within it the lagging ranks first.
    virtual Task<Result<std::string>> evidence(Caller caller, std::string id,
                                               CapturesQuery query) = 0;
    // not_found: no such job, generation, rank or name. Whether the file is there, nobody has
    // looked.
    virtual Task<Result<EvidencePlace>> evidence_place(Caller caller, std::string id,
                                                       EvidenceQuery query) = 0;
    // {items, next_cursor}, newest first.
    virtual Task<Result<std::string>> profiles(Caller caller, std::string id,
                                               CapturesQuery query) = 0;
    // As evidence_place().
    virtual Task<Result<EvidencePlace>> profile_place(Caller caller, std::string id,
                                                      EvidenceQuery query) = 0;

    // The scheduler's machines as last heard of (cluster_view.hpp). Waits for nothing.
    virtual Json cluster() = 0;
    // {items, seen_at, next_cursor}, with what is remembered of each.
    virtual Task<Result<std::string>> nodes(Caller caller, NodeQuery query) = 0;
    // One of them, with what it was blamed for lately. not_found; unavailable: its nodes are not
    // known yet.
    virtual Task<Result<std::string>> node(Caller caller, std::string name) = 0;

    virtual Task<Status> ready() = 0;  // store writable, scheduler reachable

    // What is done to jobs that are not over, what follows them, and what Prometheus reads.
    virtual Commands& commands() = 0;
    virtual JobStream& stream() = 0;
    virtual MetricsExposition& exposition() = 0;
    virtual AgentGate& agents() = 0;
};

}  // namespace lockstep
