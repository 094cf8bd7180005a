#include "daemon/control/jobs/submissions.hpp"

#include "daemon/control/actor/job_folder.hpp"
#include "daemon/control/jobs/signature_use.hpp"
#include "daemon/control/jobs/stored_jobs.hpp"
#include "daemon/control/jobs/submission_checks.hpp"
#include "job/async/slices.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/model/invariants.hpp"
#include "job/model/job_view.hpp"

#include <functional>
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
    std::set<std::pair<const char*, std::string>> others;
    for (const std::string* path : {&job.spec.working_directory, &job.spec.checkpoint.directory}) {
        const std::string ours = folder_below(*path, settings.runs_dir);
        others.emplace(kFolderLabel, ours);
        for (const auto& part : std::filesystem::path{*path}.lexically_normal()) {
            const std::string name = part.string();
            others.emplace(kNamesakeLabel, is_job_id(name) && name != ours ? name : "");
        }
    }
    for (const auto& [label, other] : others) {
        if (!other.empty() && other != job.id.value) {
            row.labels.emplace_back(label, other);
        }
    }
    return row;
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

event::Submitted submitted_event(const Caller& caller, const SubmitRequest& request,
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
    data.sweep_parameters = point.shown;
    return data;
}

}  // namespace

struct Submissions::NewJobs {
    SubmitWrite write;
    std::vector<Event> events;
    std::vector<Job> jobs;
    std::vector<std::int64_t> bytes;          // of each one's specification, where that counts
    std::string signature;                    // "" = none was asked for
    std::vector<StreamMessage> messages;      // of a sweep's events, if somebody listens
    std::shared_ptr<const std::string> view;  // of the first
};

// Every one exists, the caller may see it, and none has failed already.
Task<Status> Submissions::check_after(Caller caller, std::vector<std::string> ids) {
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
        const auto stands = co_await admission_.look_at_after(one);
        LOCKSTEP_CO_TRY(stands);
        if (!stands->failed.empty()) {
            co_return fail(field_errors({{pointer, ids[i] + " has ended and did not succeed"}}));
        }
    }
    co_return Status{};
}

// What the caller's signature of this is called; "" where nothing is signed.
Task<Result<std::string>> Submissions::take_signature(std::string user,
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
    LOCKSTEP_CO_TRY(statement);
    auto taking = signatures->take(std::move(user), *request.signature, std::move(*statement),
                                   request.document);
    co_return co_await std::move(taking);
}

SubmitResult<void> Submissions::check_room(std::size_t count) const {
    if (registry_.unfinished().size() + count > limits::kActiveJobs) {
        return refuse({SubmitFailure::too_many_jobs, Errc::exhausted,
                       "limit: " + std::to_string(limits::kActiveJobs) +
                           " jobs are unfinished; try again later"});
    }
    return {};
}

// One `submitted` event a job, in the order of the sweep, and what is stored of it. A thousand jobs
// take seconds: others have their turn between them, so that events get their numbers at the end,
// with no turn of anybody's before they are handed to the store.
Task<SubmitResult<Submissions::NewJobs>> Submissions::make_jobs(const Caller& caller,
                                                                const SubmitRequest& request) {
    LOCKSTEP_CO_TRY(context_.scheduler.admit_user(caller.user));
    if (!context_.settings.account.may_submit(caller.user)) {
        co_return fail(Errc::denied, context_.settings.account.why_not());
    }
    LOCKSTEP_CO_TRY(check_all_for_user(request, caller.user, context_));
    Slices slices;
    auto warnings = co_await admit_all(context_.scheduler, request, slices);
    LOCKSTEP_CO_TRY(warnings);
    if (const auto same = check_rendered(caller.user, request, *warnings); !same) {
        co_return refuse(same.error());
    }
    const std::size_t count = request.sweep ? request.sweep->points.size() : 1;
    if (const auto room = check_room(count); !room) {
        co_return refuse(room.error());
    }
    // Last, so that nobody signs in vain what is refused anyway.
    const auto signature = co_await take_signature(caller.user, request);
    LOCKSTEP_CO_TRY(signature);
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
        if (context_.settings.user_bytes > 0) {
            out.bytes.push_back(specification_bytes(data));
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
    // Others have had their turn.
    if (const auto room = check_room(count); !room) {
        forget_unused_signature(context_, registry_, caller.user, out.signature);
        co_return refuse(room.error());
    }
    co_return out;
}

void Submissions::number(NewJobs& made) {
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

// A submission with the same key was stored: its answer, if it was the same one.
Task<SubmitResult<Submitted>> Submissions::answer_again(Caller caller, SubmitDone before) {
    if (before.other_body) {
        co_return refuse(
            {SubmitFailure::key_reused, Errc::conflict,
             "reused: this Idempotency-Key belongs to another submission, " + before.id.value});
    }
    auto earlier = co_await registry_.show(caller, before.id.value);
    if (!earlier && earlier.error().code == Errc::not_found) {
        co_return refuse({SubmitFailure::job_removed, Errc::conflict,
                          "removed: the job of this Idempotency-Key, " + before.id.value +
                              ", was removed; to run it again, submit it under another key"});
    }
    LOCKSTEP_CO_TRY(earlier);
    Submitted out;
    out.id = before.id.value;
    out.repeated = true;
    out.job_json = *earlier;
    co_return out;
}

// Nothing: there is no submission with this key.
Task<SubmitResult<std::optional<Submitted>>> Submissions::stored_before(
    const Caller& caller, const SubmitRequest& request) {
    if (request.idempotency_key.empty()) {
        co_return std::nullopt;
    }
    const std::function<Result<std::optional<SubmitDone>>(Database&)> look =
        [user = caller.user, key = request.idempotency_key, body = request.body_sha256](
            Database& db) { return JobRecords{db}.submitted_before(user, key, body); };
    const auto before = co_await context_.store.read<std::optional<SubmitDone>>(look);
    LOCKSTEP_CO_TRY(before);
    if (!*before) {
        co_return std::nullopt;
    }
    auto answer = co_await answer_again(caller, **before);
    if (!answer) {
        co_return refuse(answer.error());
    }
    co_return std::move(*answer);
}

Task<SubmitResult<Submitted>> Submissions::submit(Caller caller, SubmitRequest request) {
    KeyInFlight key{in_flight_, caller.user, request.idempotency_key};
    if (!key.take()) {
        co_return refuse({SubmitFailure::key_in_flight, Errc::conflict,
                          "in flight: a submission with this Idempotency-Key is being stored"});
    }
    // First: what is stored already is answered again, whatever has become of what it depends on,
    // whatever there is room for now, and with the signature that it has.
    auto stored = co_await stored_before(caller, request);
    if (!stored || *stored) {
        co_return stored ? SubmitResult<Submitted>{std::move(**stored)} : refuse(stored.error());
    }
    if (!request.spec.after.empty()) {
        if (const Status good = co_await check_after(caller, request.spec.after); !good) {
            co_return fail(good.error());
        }
    }
    if (Status room = admission_.check_stored(caller); !room) {
        co_return refuse({SubmitFailure::user_quota, std::move(room.error())});
    }
    const std::size_t count = request.sweep ? request.sweep->points.size() : 1;
    auto hold = admission_.take_room(caller.user, count);
    if (!hold) {
        co_return refuse({SubmitFailure::user_quota, std::move(hold.error())});
    }
    auto made = co_await make_jobs(caller, request);
    if (!made) {
        co_return refuse(made.error());
    }
    number(*made);
    const auto done = co_await context_.store.submit(std::move(made->write));
    if (!done && done.error().code == Errc::exhausted) {  // of other failures it is not known
        forget_unused_signature(context_, registry_, caller.user, made->signature);
    }
    LOCKSTEP_CO_TRY(done);
    if (done->other_body || done->repeated) {
        if (done->other_body) {  // that of the same submission is the stored job's own
            forget_unused_signature(context_, registry_, caller.user, made->signature);
        }
        co_return co_await answer_again(caller, *done);
    }
    Submitted out;
    out.id = done->id.value;
    hold->keep();
    registry_.count_submitted(made->jobs.size());
    for (std::size_t i = 0; i < made->bytes.size(); ++i) {
        context_.stored.add(made->jobs[i].id.value, caller.user, made->bytes[i]);
    }
    std::vector<JobRegistry::ActorPtr> actors;
    for (Job& job : made->jobs) {
        log::info("job submitted",
                  {{"job", job.id.value}, {"name", job.spec.name}, {"user", caller.user}});
        actors.push_back(lifecycle_.begin(std::move(job)));
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
    const Status placed = co_await admission_.stand_in_line(std::move(actors));
    if (!placed) {
        log::error("cannot put a job in line", {{"job", out.id}, {"what", placed.error().message}});
    }
    co_return out;
}

}  // namespace lockstep
