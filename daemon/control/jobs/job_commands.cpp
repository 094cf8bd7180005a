#include "daemon/control/jobs/job_commands.hpp"

#include "daemon/control/actor/job_actor.hpp"
#include "daemon/control/machine/command_once.hpp"
#include "daemon/store/event_records.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

// Hands a command to its job and waits until it is durable; the job's JSON.
template <class Input>
Task<Result<std::string>> carry_out(net::io_context& io, std::shared_ptr<JobActor> actor,
                                    Input input) {
    const auto wait = [&io, actor, &input](auto handler) {
        auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        input.done = [&io, shared](Status status) {
            net::post(io, [shared, status = std::move(status)] { (*shared)(std::move(status)); });
        };
        actor->post(std::move(input));
    };
    auto token = net::use_awaitable;
    const Status done =
        co_await net::async_initiate<decltype(token), void(Status)>(std::move(wait), token);
    LOCKSTEP_CO_TRY(done);
    co_return *actor->view();
}

// By the number that the cluster's own records have it under, where it has one already.
void log_cancel(const std::string& user, const Job& job, const Scheduler& scheduler) {
    const Attempt* attempt = job.attempt();
    const auto cluster_job = attempt == nullptr ? std::optional<ClusterLabel>{}
                                                : scheduler.cluster_label(attempt->scheduler_id);
    if (cluster_job) {
        log::info("cancel requested",
                  {{"job", job.id.value}, {"user", user}, {cluster_job->name, cluster_job->value}});
    } else {
        log::info("cancel requested", {{"job", job.id.value}, {"user", user}});
    }
}

// What is known of the key: the command was done under it, or another one was; nothing: it is new.
// `show` makes the job's JSON.
template <class Show>
std::optional<SubmitResult<CommandDone>> before_under(const CommandKeys& keys,
                                                      const std::string& user,
                                                      const std::string& key, Command command,
                                                      const Show& show) {
    const Command* before = keys.find(user, key);
    if (before == nullptr) {
        return std::nullopt;
    }
    if (*before != command) {
        return refuse({SubmitFailure::key_reused, key_reused(*before)});
    }
    CommandDone out;
    out.job_json = show();
    out.already = true;
    return out;
}

}  // namespace

template <class Input>
Task<Result<std::string>> JobCommands::command(Caller caller, std::string id) {
    const auto actor = co_await registry_.commanded(caller, id);
    LOCKSTEP_CO_TRY(actor);
    if (!*actor) {
        co_return fail(Errc::conflict, "the job is over");
    }
    Input input;
    input.by = caller.user;
    co_return co_await carry_out(context_.io, *actor, std::move(input));
}

Task<Result<std::string>> JobCommands::cancel(Caller caller, std::string id) {
    const auto actor = co_await registry_.commanded(caller, id);
    LOCKSTEP_CO_TRY(actor);
    if (!*actor) {
        // Over already: cancelling twice is not an error.
        const auto shown = co_await registry_.show(caller, id);
        LOCKSTEP_CO_TRY(shown);
        co_return **shown;
    }
    CancelInput input;
    input.by = caller.user;
    auto done = co_await carry_out(context_.io, *actor, std::move(input));
    if (done) {
        log_cancel(caller.user, (*actor)->job(), context_.scheduler);
    }
    co_return done;
}

template <class Input>
Task<SubmitResult<CommandDone>> JobCommands::once(Caller caller, std::string id, std::string key,
                                                  Command command) {
    const auto actor = co_await registry_.commanded(caller, id);
    LOCKSTEP_CO_TRY(actor);
    if (!*actor) {
        co_return co_await of_ended(std::move(caller), std::move(id), std::move(key), command);
    }
    JobActor& job = **actor;
    const auto show = [&job] { return *job.view(); };
    // Also while there is no room for another command, or the job is about to end.
    if (auto known = before_under(job.job().command_keys, caller.user, key, command, show)) {
        co_return std::move(*known);
    }
    const auto repeated = std::make_shared<bool>(false);
    Input input;
    input.by = caller.user;
    input.key = key;
    input.repeated = repeated;
    auto done = co_await carry_out(context_.io, *actor, std::move(input));
    if (!done) {
        // The first may have been done, or the other one, while this one waited for its turn.
        if (auto known = before_under(job.job().command_keys, caller.user, key, command, show)) {
            co_return std::move(*known);
        }
        co_return fail(done.error());
    }
    CommandDone out;
    out.job_json = std::move(*done);
    out.already = *repeated;
    co_return out;
}

// By the index of kinds: the whole history of a job may be hundreds of megabytes, and whoever asks
// again asks often.
Task<Result<CommandKeys>> JobCommands::keys_of(std::string id) {
    const std::function<Result<std::vector<Event>>(Database&)> read =
        [id](Database& db) -> Result<std::vector<Event>> {
        // Those without a key, Lockstep's own and old clients', lie between.
        const std::size_t most = 8 * limits::kCommandKeys;
        const JobId job{id};
        Result<std::vector<Event>> out =
            EventRecords{db}.newest(job, EventKind::restart_requested, most);
        LOCKSTEP_TRY(out);
        auto saves = EventRecords{db}.newest(job, EventKind::checkpoint_requested, most);
        LOCKSTEP_TRY(saves);
        std::move(saves->begin(), saves->end(), std::back_inserter(*out));
        return out;
    };
    auto events = co_await context_.store.read<std::vector<Event>>(read);
    LOCKSTEP_CO_TRY(events);
    std::sort(events->begin(), events->end(),
              [](const Event& a, const Event& b) { return a.seq < b.seq; });
    CommandKeys out;
    for (Event& one : *events) {
        if (auto* restart = std::get_if<event::RestartRequested>(&one.data)) {
            out.note(std::move(restart->by), std::move(restart->key), Command::restart);
        } else if (auto* save = std::get_if<event::CheckpointRequested>(&one.data)) {
            out.note(std::move(save->by), std::move(save->key), Command::checkpoint);
        }
    }
    co_return out;
}

Task<SubmitResult<CommandDone>> JobCommands::of_ended(Caller caller, std::string id,
                                                      std::string key, Command command) {
    if (!key.empty()) {
        const auto keys = co_await keys_of(id);
        LOCKSTEP_CO_TRY(keys);
        const auto shown = co_await registry_.show(caller, id);
        LOCKSTEP_CO_TRY(shown);
        if (auto known =
                before_under(*keys, caller.user, key, command, [&shown] { return **shown; })) {
            co_return std::move(*known);
        }
    }
    co_return fail(Errc::conflict, "the job is over");
}

Task<SubmitResult<CommandDone>> JobCommands::restart(Caller caller, std::string id,
                                                     std::string key) {
    return once<RestartInput>(std::move(caller), std::move(id), std::move(key), Command::restart);
}

Task<SubmitResult<CommandDone>> JobCommands::checkpoint(Caller caller, std::string id,
                                                        std::string key) {
    return once<SaveInput>(std::move(caller), std::move(id), std::move(key), Command::checkpoint);
}

Task<Result<std::string>> JobCommands::take_evidence(Caller caller, std::string id) {
    return command<EvidenceInput>(std::move(caller), std::move(id));
}

Task<Result<std::string>> JobCommands::take_profile(Caller caller, std::string id,
                                                    ProfileQuery query) {
    const auto actor = co_await registry_.commanded(caller, id);
    LOCKSTEP_CO_TRY(actor);
    if (!*actor) {
        co_return fail(Errc::conflict, "the job is over");
    }
    const auto asked = std::make_shared<ProfileAsked>();
    ProfileInput input;
    input.by = caller.user;
    input.ranks = std::move(query.ranks);
    input.seconds = query.seconds;
    input.asked = asked;
    const auto done = co_await carry_out(context_.io, *actor, std::move(input));
    LOCKSTEP_CO_TRY(done);
    Json out = Json::object();
    out["attempt"] = asked->attempt;
    out["generation"] = asked->generation;
    out["profile"] = asked->number;
    out["ranks"] = asked->ranks;
    out["seconds"] = query.seconds;
    out["patience_seconds"] = asked->patience.count();
    co_return dump_json(out);
}

Task<Result<std::string>> JobCommands::cancel_sweep(Caller caller, std::string id) {
    const auto job = co_await registry_.load(caller, id);
    LOCKSTEP_CO_TRY(job);
    if (!(*job)->sweep) {
        co_return fail(Errc::invalid, "sweep: " + id + " is not of one");
    }
    std::vector<std::string> members;
    for (const auto& [other, actor] : registry_.unfinished()) {
        if (actor->job().sweep && actor->job().sweep->id == (*job)->sweep->id) {
            members.push_back(other);
        }
    }
    std::sort(members.rbegin(), members.rend());  // the last ones first: none of them starts yet
    std::int64_t count = 0;
    for (const std::string& member : members) {
        const auto done = co_await cancel(caller, member);
        LOCKSTEP_CO_TRY(done);
        ++count;
    }
    Json out = Json::object();
    out["cancelled"] = count;
    co_return dump_json(out);
}

}  // namespace lockstep
