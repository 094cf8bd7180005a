// What others see of a job beside its events: its row and its JSON, its metrics, the nodes it
// vouches for, and what an agent is told when it calls in.
#include "daemon/control/actor/job_actor.hpp"
#include "daemon/control/actor/node_notes.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace lockstep {
namespace {

constexpr auto kViewAge = std::chrono::milliseconds{250};

}  // namespace

void JobActor::set_pending_reason(std::string reason, UnixMillis expected_start) {
    machine_.set_pending_reason(std::move(reason), expected_start);
}

JobRow JobActor::row(const Job& job) const {
    LiveView at_end = live();
    if (is_final(job.state)) {
        at_end.pending_reason.clear();
        at_end.expected_start = 0;
    }
    return row_of(job, dump_json(job_json(job, at_end)));
}

// What the events say of nodes that are the job's, by the scheduler's word. `later`: of those that
// it has not told of yet.
NodeNotes JobActor::vouched_notes(const Draft& draft, NodeNotes& later) const {
    const std::string machine = one_machine(context_.scheduler);
    NodeNotes notes = notes_of(draft.job(), draft.events, machine);
    if (!machine.empty()) {
        return notes;  // they all have lockstepd's own name for it
    }
    NodeWitness::Sorted sorted = witness_.sort(std::move(notes));
    later = std::move(sorted.later);
    if (sorted.foreign > 0) {
        log::info("not kept of nodes that are not the job's",
                  {{"job", job().id.value}, {"notes", sorted.foreign}});
    }
    return std::move(sorted.now);
}

LiveView JobActor::live() const {
    LiveView out;
    out.pending_reason = machine_.pending_reason();
    out.expected_start = machine_.expected_start();
    if (const auto& stats = machine_.run().generation.stats) {
        out.step = stats->step;
        out.total_steps = stats->total_steps;
    }
    // Before that the view is not made anew as time passes, and it would tell of an old queue.
    out.now = job().started_at != 0 ? context_.clock.wall() : 0;
    if (const auto* series = context_.series.find(job().id.value)) {
        out.reports = series->generations();
    }
    return out;
}

std::shared_ptr<const std::string> JobActor::view() {
    const auto now = context_.clock.steady();
    const bool moving = job().started_at != 0;
    const bool waits_otherwise =
        view_reason_ != machine_.pending_reason() || view_start_ != machine_.expected_start();
    if (!view_ || waits_otherwise || (moving && now - view_at_ > kViewAge)) {
        stats();
        view_ = std::make_shared<const std::string>(dump_json(job_json(job(), live())));
        view_at_ = now;
        view_reason_ = machine_.pending_reason();
        view_start_ = machine_.expected_start();
    }
    return view_;
}

std::string JobActor::welcome(const Agent& link) {
    wire::Welcome out;
    out.daemon = context_.settings.daemon_id;
    out.time = context_.clock.wall();
    out.job_id = job().id.value;
    out.job_name = job().spec.name;
    out.attempt = link.attempt();
    out.generation = job().generation() != nullptr ? job().generation()->number : 0;
    if (const auto* series = context_.series.find(job().id.value)) {
        out.acked_batch = series->last_batch(link.attempt(), link.node_rank);
    }
    out.checkpoint_directory =
        job().spec.checkpoint.directory.empty()
            ? (std::filesystem::path{job().attempt()->directory}.parent_path() / "checkpoints")
                  .string()
            : job().spec.checkpoint.directory;
    out.preflight = AttemptRun::wants_preflight(job());
    if (spec_text_.empty()) {
        Json spec = to_json(job().spec);
        spec.erase("notify");  // with its secrets no matter of the nodes
        spec_text_ = dump_json(spec);
    }
    Signatures* const signatures = context_.scheduler.signatures();
    if (!job().signature.empty() && signatures != nullptr) {
        if (document_.empty()) {
            document_ = signatures->document(job().user, job().signature).value_or("");
        }
        out.document = document_;  // without it the agent says what is wrong
    }
    const bool late =
        finished_ || job().attempt() == nullptr || job().attempt()->number != link.attempt();
    for (const auto& [name, value] : late ? SecretStore::Values{} : secrets_now()) {
        out.secret_names.push_back(name);
        out.secret_values.push_back(value);
    }
    return wire::encode_welcome(out, spec_text_);
}

// Those of the moment when its first agent called in: all nodes of an attempt have the same.
const SecretStore::Values& JobActor::secrets_now() {
    const std::int32_t attempt = job().attempt()->number;
    if (!job().spec.secrets.empty() && attempt != secrets_attempt_ && context_.secrets != nullptr) {
        secrets_attempt_ = attempt;
        secrets_ = context_.secrets->values(job().user, job().spec.secrets);
    }
    return secrets_;
}

void JobActor::describe(telemetry::JobMetricsView& view) const {
    view.straggler_ranks = machine_.anomalies().straggler_ranks();
    view.loss_zscore = machine_.anomalies().loss_z();
    view.grad_norm_zscore = machine_.anomalies().grad_norm_z();
    const Attempt* attempt = job().attempt();
    if (attempt == nullptr || attempt->placed_at == 0 || attempt->finished_at != 0) {
        return;
    }
    const Generation* newest = job().generation();
    view.generation = newest == nullptr ? 0 : newest->number;
    std::int64_t nodes = 0;
    for (std::int32_t slot = 0; slot < job().spec.resources.allocated_nodes(); ++slot) {
        nodes += machine_.run().rendezvous.phase(slot) >= Rendezvous::Phase::joined ? 1 : 0;
    }
    const bool met = newest != nullptr && newest->open() && newest->running_at != 0;
    view.ranks_joined =
        met ? job().world_size()
            : std::min<std::int64_t>(nodes * job().spec.ranks_per_node(), job().world_size());
    if (!met) {
        const UnixMillis since = newest == nullptr ? attempt->placed_at
                                 : newest->open()  ? newest->started_at
                                                   : newest->finished_at;
        view.rendezvous_age =
            static_cast<double>(std::max<UnixMillis>(context_.clock.wall() - since, 0)) / 1000.0;
    }
}

}  // namespace lockstep
