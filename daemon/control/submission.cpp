// size: one path, from a request to jobs in line
// The writing half of ControlService: what is asked for is checked, stored as one transaction and
// put in line.
#include "daemon/control/attempt_files.hpp"
#include "daemon/control/control_service.hpp"
#include "daemon/control/job_actor.hpp"
#include "daemon/control/job_folder.hpp"
#include "daemon/control/render.hpp"
#include "job/async/slices.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "job/model/spec_secrets.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace lockstep {
namespace {

JobRow first_row(const Job& job, const std::string& view, const ControlSettings& settings) {
    JobRow row = row_of(job, view);
    row.labels.assign(job.spec.labels.begin(), job.spec.labels.end());
    if (job.sweep) {
        row.labels.emplace_back(kSweepLabel, job.sweep->id);
    }
    if (std::string snapshot = folder_below(job.spec.working_directory, settings.snapshots_dir);
        !snapshot.empty()) {
        row.labels.emplace_back(kSnapshotLabel, std::move(snapshot));
    }
    std::set<std::string> others;
    for (const std::string* path : {&job.spec.working_directory, &job.spec.checkpoint.directory}) {
        others.insert(folder_below(*path, settings.runs_dir));
    }
    for (const std::string& other : others) {
        if (!other.empty() && other != job.id.value) {
            row.labels.emplace_back(kFolderLabel, other);
        }
    }
    return row;
}

// What is wrong with a new job, though one that is stored may have it.
Result<Admission> admit(Scheduler& scheduler, const JobSpec& spec) {
    if (spec.preflight.mode == PreflightMode::only && spec.resources.spares > 0) {
        // Neither would the failure of a node that has a spare end it, nor is a spare waited for.
        return fail(field_errors({{"/preflight/mode",
                                   "only looks at the nodes and starts no ranks: ask for more "
                                   "nodes, not for resources.spares"}}));
    }
    if (spec.framework == Framework::native && spec.resources.gpus_per_node > 0 &&
        spec.preflight.mode != PreflightMode::only) {
        return fail(field_errors({{"/resources/gpus_per_node",
                                   "the native trainer computes on CPUs only, its GPUs would idle: "
                                   "ask for 0, or run a script with another framework"}}));
    }
    if (spec.submission == Submission::manual && scheduler.signatures() != nullptr) {
        return fail(field_errors({{"/submission",
                                   "manual is not possible where jobs are signed: its script is "
                                   "made when it is handed over"}}));
    }
    auto admission = scheduler.admit(spec);
    if (admission && spec.resources.ranks_per_gpu > 1) {
        admission->warnings.push_back(
            std::to_string(spec.resources.ranks_per_gpu) +
            " ranks share each GPU (resources.ranks_per_gpu), and its memory: to try out a script, "
            "not to train fast");
    }
    if (admission && spec.preflight.old_name) {
        admission->warnings.emplace_back(
            "preflight.gpu_test is called cpu_test: it trains on each node's CPUs and touches no "
            "GPU");
    }
    return admission;
}

Status check_secrets(const JobSpec& spec, const std::string& user, const SecretStore* secrets) {
    const auto missing = secrets != nullptr ? secrets->missing(user, spec.secrets) : spec.secrets;
    return missing.empty() ? Status{} : Status{fail(missing_secrets(missing, spec))};
}

// What the user may be told of, and has.
Status check_for_user(const JobSpec& spec, const std::string& user, const ControlContext& context) {
    if (const Status good = check_notify(spec, user, context.settings.notify); !good) {
        return good;
    }
    return check_secrets(spec, user, context.secrets);
}

Status check_all_for_user(const SubmitRequest& request, const std::string& user,
                          const ControlContext& context) {
    if (!request.sweep) {
        return check_for_user(request.spec, user, context);
    }
    for (const SweepPoint& point : request.sweep->points) {
        if (const Status good = check_for_user(point.spec, user, context); !good) {
            return good;
        }
    }
    return {};
}

// What the scheduler says of each job; the warnings of all, each once.
Task<Result<std::vector<std::string>>> admit_all(Scheduler& scheduler, const SubmitRequest& request,
                                                 Slices& slices) {
    if (!request.sweep) {
        auto one = admit(scheduler, request.spec);
        if (!one) {
            co_return fail(std::move(one.error()));
        }
        co_return std::move(one->warnings);
    }
    std::vector<std::string> warnings;
    for (const SweepPoint& point : request.sweep->points) {
        auto one = admit(scheduler, point.spec);
        if (!one) {
            Error error = std::move(one.error());
            for (FieldError& field : error.fields) {
                field.message += " (with " + dump_json(point.parameters) + ")";
            }
            co_return fail(std::move(error));
        }
        for (std::string& warning : one->warnings) {
            if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end()) {
                warnings.push_back(std::move(warning));
            }
        }
        if (slices.over()) {
            co_await slices.rest();
        }
    }
    co_return warnings;
}

// Lets go of a submission's key, however it ends.
class KeyInFlight {
  public:
    using Keys = std::set<std::pair<std::string, std::string>>;
    KeyInFlight(Keys& keys, std::string user, std::string key)
        : keys_(keys), key_(std::move(user), std::move(key)) {}
    ~KeyInFlight() {
        if (taken_) {
            keys_.erase(key_);
        }
    }
    KeyInFlight(const KeyInFlight&) = delete;
    KeyInFlight& operator=(const KeyInFlight&) = delete;
    // False: another has it.
    bool take() {
        taken_ = key_.second.empty() || keys_.insert(key_).second;
        return taken_;
    }

  private:
    Keys& keys_;
    std::pair<std::string, std::string> key_;
    bool taken_ = false;
};

}  // namespace

WaitingLine::Entry ControlService::entry(const Job& job, std::set<std::string> after) {
    WaitingLine::Entry out;
    out.id = job.id.value;
    out.user = job.user;
    out.after = std::move(after);
    if (job.sweep) {
        out.sweep = job.sweep->id;
        out.max_parallel = job.sweep->max_parallel;
    }
    return out;
}

// Jobs may end while the store is read; what is returned has been looked at after the last wait.
Task<Result<ControlService::After>> ControlService::look_at_after(std::vector<std::string> ids) {
    std::map<std::string, JobState> over;
    for (;;) {
        After out;
        std::string unknown;
        for (const std::string& id : ids) {
            if (registry_.find(id)) {
                out.waiting.insert(id);
                continue;
            }
            const auto known = over.find(id);
            if (known == over.end()) {
                unknown = id;
                break;
            }
            if (known->second != JobState::succeeded) {
                out.failed = id;
            }
        }
        if (unknown.empty()) {
            co_return out;
        }
        const std::function<Result<std::optional<JobRow>>(Database&)> read =
            [unknown](Database& db) { return db.job(JobId{unknown}); };
        const auto row = co_await context_.store.read<std::optional<JobRow>>(read);
        if (!row) {
            co_return fail(row.error());
        }
        if (!*row) {
            over[unknown] = JobState::cancelled;  // removed since somebody looked: nobody can say
        } else if (is_final((*row)->state)) {
            over[unknown] = (*row)->state;
        }
    }
}

// Every one exists, the caller may see it, and none has failed already.
Task<Status> ControlService::check_after(Caller caller, std::vector<std::string> ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::string pointer = "/after/" + std::to_string(i);
        const auto job = co_await registry_.show(caller, ids[i]);
        if (!job) {
            if (job.error().code != Errc::not_found) {
                co_return fail(job.error());
            }
            co_return fail(field_errors({{pointer, "there is no job " + ids[i]}}));
        }
        const std::vector<std::string> one{ids[i]};
        const auto stands = co_await look_at_after(one);
        if (!stands) {
            co_return fail(stands.error());
        }
        if (!stands->failed.empty()) {
            co_return fail(field_errors({{pointer, ids[i] + " has ended and did not succeed"}}));
        }
    }
    co_return Status{};
}

event::Submitted ControlService::submitted_event(const Caller& caller, const SubmitRequest& request,
                                                 const std::string& signature, std::size_t index) {
    event::Submitted data;
    data.user = caller.user;
    data.signature = signature;
    if (!request.sweep) {
        data.spec = to_json(request.spec);
        return data;
    }
    const SweepPoint& point = request.sweep->points[index];
    data.spec = to_json(point.spec);
    data.sweep_index = static_cast<std::int64_t>(index);
    data.sweep_size = static_cast<std::int64_t>(request.sweep->points.size());
    data.sweep_parallel = request.sweep->max_parallel;
    data.sweep_parameters = point.parameters;
    return data;
}

// What the caller's signature of this is called; "" where nothing is signed.
Task<Result<std::string>> ControlService::take_signature(std::string user,
                                                         const SubmitRequest& request) {
    Signatures* const signatures = context_.scheduler.signatures();
    if (signatures == nullptr) {
        co_return std::string{};
    }
    if (!request.signature) {
        co_return fail(Errc::denied,
                       "jobs run here as whoever has signed them: lockstep submit and lockstep run "
                       "do that, on a machine of the cluster; " +
                           std::string{kSignatureHeader} + " is the header");
    }
    std::vector<JobSpec> jobs{request.spec};
    if (request.sweep) {
        jobs.clear();
        for (const SweepPoint& point : request.sweep->points) {
            jobs.push_back(point.spec);
        }
    }
    auto statement =
        make_statement(signatures->signing(), request.signature->nonce, request.document, jobs);
    if (!statement) {
        co_return fail(statement.error());
    }
    auto taking = signatures->take(std::move(user), *request.signature, std::move(*statement),
                                   request.document);
    co_return co_await std::move(taking);
}

// One `submitted` event a job, in the order of the sweep, and what is stored of it. A thousand jobs
// take seconds: others have their turn between them, so that events get their numbers at the end,
// with no turn of anybody's before they are handed to the store.
Task<Result<ControlService::NewJobs>> ControlService::make_jobs(const Caller& caller,
                                                                const SubmitRequest& request) {
    if (const Status may = context_.scheduler.admit_user(caller.user); !may) {
        co_return fail(may.error());
    }
    if (!context_.settings.account.may_submit(caller.user)) {
        co_return fail(Errc::denied, context_.settings.account.why_not());
    }
    if (const Status good = check_all_for_user(request, caller.user, context_); !good) {
        co_return fail(good.error());
    }
    Slices slices;
    auto warnings = co_await admit_all(context_.scheduler, request, slices);
    if (!warnings) {
        co_return fail(std::move(warnings.error()));
    }
    if (const Status same = check_rendered(caller.user, request, *warnings); !same) {
        co_return fail(same.error());
    }
    // Last, so that nobody signs in vain what is refused anyway.
    const auto signature = co_await take_signature(caller.user, request);
    if (!signature) {
        co_return fail(signature.error());
    }
    const std::size_t count = request.sweep ? request.sweep->points.size() : 1;
    NewJobs out;
    out.signature = *signature;
    out.write.idempotency_key = request.idempotency_key;
    out.write.body_sha256 = request.body_sha256;
    const UnixMillis now = context_.clock.wall();
    // Who comes while others have their turn reads the store: messages are of all jobs, or of none.
    const bool streamed = request.sweep && context_.bus.has_subscribers();
    for (std::size_t i = 0; i < count; ++i) {
        Event event;
        event.time = now;
        event.job = make_job_id(now);
        event::Submitted data = submitted_event(caller, request, *signature, i);
        data.warnings = *warnings;
        if (request.sweep) {
            data.sweep = i == 0 ? event.job.value : out.jobs.front().id.value;
        }
        event.data = std::move(data);
        auto job = start_job(event);
        if (!job) {
            co_return fail(Errc::internal,
                           "the canonical spec does not parse: " + job.error().message);
        }
        auto text = std::make_shared<const std::string>(dump_json(job_json(*job, LiveView{})));
        Append append;
        append.row = first_row(*job, *text, context_.settings);
        if (streamed) {
            out.messages.push_back(stream_message(event, caller.user));
        }
        append.events.push_back(event);
        out.events.push_back(std::move(event));
        if (i == 0) {
            out.write.append = std::move(append);
            out.view = std::move(text);
        } else {
            out.write.more.push_back(std::move(append));
        }
        out.jobs.push_back(std::move(*job));
        if (slices.over()) {
            co_await slices.rest();
        }
    }
    if (registry_.unfinished().size() + count > limits::kActiveJobs) {
        co_return fail(Errc::exhausted, "limit: " + std::to_string(limits::kActiveJobs) +
                                            " jobs are unfinished; try again later");
    }
    co_return out;
}

void ControlService::number(NewJobs& made) {
    for (std::size_t i = 0; i < made.jobs.size(); ++i) {
        const Seq seq = context_.store.next_seq();
        Append& append = i == 0 ? made.write.append : made.write.more[i - 1];
        append.events.front().seq = seq;
        append.row.last_seq = seq;
        made.events[i].seq = seq;
        made.jobs[i].last_seq = seq;
        if (i < made.messages.size()) {
            renumber(made.messages[i], seq);
        }
    }
}

// The jobs are stored; each takes its place, or ends at once if what it was to run after has
// failed meanwhile. All of them have the same `after`.
Task<Status> ControlService::stand_in_line(std::vector<ActorPtr> actors) {
    After after;
    const std::vector<std::string> ids = actors.front()->job().spec.after;
    if (!ids.empty()) {
        auto stands = co_await look_at_after(ids);
        if (!stands) {
            co_return fail(stands.error());
        }
        after = std::move(*stands);
    }
    for (const ActorPtr& actor : actors) {
        if (actor->over() || actor->started()) {
            continue;  // cancelled while we looked
        }
        if (!after.failed.empty()) {
            actor->post(DependencyInput{after.failed});
            continue;
        }
        const std::size_t ahead = window_.taken() + line_.ahead_of(actor->job().user);
        std::string why = line_.add(entry(actor->job(), after.waiting));
        if (why.empty() && ahead >= context_.settings.window) {
            why =
                "waiting for its turn: " + std::to_string(ahead) + " jobs were ahead when it came";
        }
        actor->set_pending_reason(std::move(why));
    }
    admit_next();
    co_return Status{};
}

// A submission with the same key was stored: its answer, if it was the same one.
Task<Result<Submitted>> ControlService::answer_again(Caller caller, SubmitDone before) {
    if (before.other_body) {
        co_return fail(
            Errc::conflict,
            "reused: this Idempotency-Key belongs to another submission, " + before.id.value);
    }
    auto earlier = co_await registry_.show(caller, before.id.value);
    if (!earlier) {
        co_return fail(earlier.error());
    }
    Submitted out;
    out.id = before.id.value;
    out.repeated = true;
    out.job_json = *earlier;
    co_return out;
}

// Nothing: there is no submission with this key.
Task<Result<std::optional<Submitted>>> ControlService::stored_before(const Caller& caller,
                                                                     const SubmitRequest& request) {
    if (request.idempotency_key.empty()) {
        co_return std::nullopt;
    }
    const std::function<Result<std::optional<SubmitDone>>(Database&)> look =
        [user = caller.user, key = request.idempotency_key,
         body = request.body_sha256](Database& db) { return db.submitted_before(user, key, body); };
    const auto before = co_await context_.store.read<std::optional<SubmitDone>>(look);
    if (!before) {
        co_return fail(before.error());
    }
    if (!*before) {
        co_return std::nullopt;
    }
    auto answer = co_await answer_again(caller, **before);
    if (!answer) {
        co_return fail(answer.error());
    }
    co_return std::move(*answer);
}

Task<Result<Submitted>> ControlService::submit(Caller caller, SubmitRequest request) {
    if (!request.spec.after.empty()) {
        if (const Status good = co_await check_after(caller, request.spec.after); !good) {
            co_return fail(good.error());
        }
    }
    const std::size_t count = request.sweep ? request.sweep->points.size() : 1;
    KeyInFlight key{in_flight_, caller.user, request.idempotency_key};
    if (!key.take()) {
        co_return fail(Errc::conflict,
                       "in flight: a submission with this Idempotency-Key is being stored");
    }
    auto hold =
        quotas_.take(caller.user, count, context_.settings.of_user, context_.clock.steady());
    if (!hold) {
        // What is stored already is answered again, whatever there is room for now.
        auto stored = co_await stored_before(caller, request);
        if (!stored || *stored) {
            co_return stored ? Result<Submitted>{std::move(**stored)} : fail(stored.error());
        }
        co_return fail(std::move(hold.error()));
    }
    auto made = co_await make_jobs(caller, request);
    if (!made) {
        co_return fail(made.error());
    }
    number(*made);
    const auto done = co_await context_.store.submit(std::move(made->write));
    if (!done) {
        co_return fail(done.error());
    }
    if (done->other_body || done->repeated) {
        forget_signature(caller.user, made->signature);
        co_return co_await answer_again(caller, *done);
    }
    Submitted out;
    out.id = done->id.value;
    hold->keep();
    registry_.count_submitted(made->jobs.size());
    std::vector<ActorPtr> actors;
    for (Job& job : made->jobs) {
        actors.push_back(make_actor(std::move(job)));
    }
    for (std::size_t i = 0; i < made->events.size() && context_.bus.has_subscribers(); ++i) {
        context_.bus.publish(i < made->messages.size()
                                 ? made->messages[i]
                                 : stream_message(made->events[i], caller.user));
    }
    if (!registry_.find(out.id)) {
        context_.metrics.invariant_broken(static_cast<std::size_t>(Invariant::accepted_is_kept));
        log::error("a job was stored and is not among the jobs", {{"job", out.id}});
    }
    out.job_json = std::move(made->view);
    // Accepted, whatever comes: a store that cannot be read now is looked at again at the start.
    const Status placed = co_await stand_in_line(std::move(actors));
    if (!placed) {
        log::error("cannot put a job in line", {{"job", out.id}, {"what", placed.error().message}});
    }
    co_return out;
}

// With If-Match: whether it would run exactly what was rendered.
Status ControlService::check_rendered(const std::string& user, const SubmitRequest& request,
                                      const std::vector<std::string>& warnings) const {
    if (request.if_match.empty()) {
        return {};
    }
    const auto rendered = render_json(request.spec, context_.scheduler, runs_of(user), warnings);
    if (!rendered) {
        return fail(rendered.error());
    }
    if ((*rendered)["render_hash"].get<std::string>() != request.if_match) {
        return fail(Errc::conflict,
                    "render: the submission would run something else than was rendered; render "
                    "it again");
    }
    return {};
}

// What the folders of a user's jobs are in.
std::filesystem::path ControlService::runs_of(const std::string& user) const {
    const Signatures* const signatures = context_.scheduler.signatures();
    return signatures == nullptr ? context_.settings.runs_dir : signatures->runs() / user;
}

void ControlService::forget_signature(const std::string& user, const std::string& name) const {
    Signatures* const signatures = context_.scheduler.signatures();
    if (signatures == nullptr || name.empty()) {
        return;
    }
    if (const Status done = signatures->forget(user, name); !done) {
        log::warn("a signature stays", {{"what", done.error().message}});
    }
}

Result<Json> ControlService::render(const Caller& caller, const JobSpec& spec) {
    if (const Status good = check_for_user(spec, caller.user, context_); !good) {
        return fail(good.error());
    }
    const auto admission = admit(context_.scheduler, spec);
    if (!admission) {
        return fail(admission.error());
    }
    return render_json(spec, context_.scheduler, runs_of(caller.user), admission->warnings);
}

Task<Json> ControlService::start_estimate(JobSpec spec) {
    const JobId job{std::string{kTemplateJob}};
    AttemptRequest request = attempt_request(
        job, 1, spec, attempt_directory(context_.settings.runs_dir, job, 1).string());
    const auto estimate = co_await context_.scheduler.estimate(std::move(request));
    if (estimate && !*estimate) {
        co_return Json();
    }
    Json out = Json::object();
    if (!estimate || (*estimate)->start == 0) {
        out["message"] = printable(estimate ? (*estimate)->refusal : estimate.error().message);
        co_return out;
    }
    out["start"] = to_rfc3339((*estimate)->start);
    out["nodes"] = (*estimate)->nodes;
    if (!(*estimate)->partition.empty()) {
        out["partition"] = (*estimate)->partition;
    }
    co_return out;
}

}  // namespace lockstep
