// Reading the evidence of a job's hangs and its profiles: from its events, and where the files lie.
#include "daemon/control/queries/job_queries.hpp"
#include "daemon/store/event_records.hpp"
#include "job/base/clock.hpp"
#include "job/model/evidence.hpp"
#include "job/model/profile.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace lockstep {
namespace {

Json item_of(const Event& event, const event::EvidenceTaken& taken) {
    Json out = Json::object();
    out["attempt"] = taken.attempt;
    out["generation"] = taken.generation;
    out["time"] = to_rfc3339(event.time);
    out["reason"] = taken.reason;
    out["message"] = taken.message;
    if (taken.step >= 0) {
        out["step"] = taken.step;
    }
    out["ranks"] = taken.ranks;
    return out;
}

Json item_of(const Event& event, const event::ProfileTaken& taken) {
    Json out = Json::object();
    out["attempt"] = taken.attempt;
    out["generation"] = taken.generation;
    out["profile"] = taken.number;
    out["time"] = to_rfc3339(event.time);
    out["by"] = taken.by;
    out["seconds"] = taken.seconds;
    out["message"] = taken.message;
    out["ranks"] = taken.ranks;
    return out;
}

// Of `events`, one more than `limit` if there are more.
template <class Taken>
std::string items_text(const std::vector<Event>& events, std::size_t limit) {
    Json out = Json::object();
    out["items"] = Json::array();
    const std::size_t count = std::min(events.size(), limit);
    for (std::size_t i = 0; i < count; ++i) {
        if (const auto* taken = std::get_if<Taken>(&events[i].data)) {
            out["items"].push_back(item_of(events[i], *taken));
        }
    }
    if (events.size() > count && count > 0) {
        out["next_cursor"] = std::to_string(events[count - 1].seq);
    }
    return dump_json(out);
}

// Of the attempt and generation that are meant; 0 = the newest.
struct Meant {
    const Attempt* attempt = nullptr;
    const Generation* generation = nullptr;
};
Result<Meant> meant(const Job& job, const EvidenceQuery& query) {
    Meant out;  // the last that fits is the newest
    for (const Attempt& one : job.attempts) {
        const bool fits =
            query.attempt == 0 ? !one.generations.empty() : one.number == query.attempt;
        out.attempt = fits ? &one : out.attempt;
    }
    if (out.attempt != nullptr) {
        for (const Generation& one : out.attempt->generations) {
            const bool fits = query.generation == 0 || one.number == query.generation;
            out.generation = fits ? &one : out.generation;
        }
    }
    if (out.generation == nullptr) {
        return fail(Errc::not_found, "the job has no such attempt and generation");
    }
    if (query.rank < 0 || query.rank >= job.spec.world_size()) {
        return fail(Errc::not_found, "no rank " + std::to_string(query.rank) + ": the job has 0-" +
                                         std::to_string(job.spec.world_size() - 1));
    }
    return out;
}

}  // namespace

Task<Result<std::string>> JobQueries::evidence(Caller caller, std::string id, CapturesQuery query) {
    const auto seen = co_await registry_.show(caller, id);
    LOCKSTEP_CO_TRY(seen);
    const JobId key{id};
    // One of a generation: a later look has written over the files of the one before.
    const std::function<Result<std::vector<Event>>(Database&)> read = [key, query](Database& db) {
        return EventRecords{db}.newest_of(key, EventKind::evidence_taken, query.limit + 1,
                                          query.before);
    };
    const auto events = co_await context_.store.read<std::vector<Event>>(read);
    LOCKSTEP_CO_TRY(events);
    co_return items_text<event::EvidenceTaken>(*events, query.limit);
}

Task<Result<EvidencePlace>> JobQueries::evidence_place(Caller caller, std::string id,
                                                       EvidenceQuery query) {
    const auto loaded = co_await registry_.load(caller, id);
    LOCKSTEP_CO_TRY(loaded);
    const Job& job = **loaded;
    if (!is_evidence_name(query.name)) {
        co_return fail(Errc::not_found, "there is no evidence of that name");
    }
    const auto which = meant(job, query);
    LOCKSTEP_CO_TRY(which);
    EvidencePlace out;
    out.directory = which->attempt->directory;
    const auto folders = evidence_folders(which->generation->number, query.rank);
    out.folders.assign(folders.begin(), folders.end());
    co_return out;
}

Task<Result<std::string>> JobQueries::profiles(Caller caller, std::string id, CapturesQuery query) {
    const auto seen = co_await registry_.show(caller, id);
    LOCKSTEP_CO_TRY(seen);
    const JobId key{id};
    const std::function<Result<std::vector<Event>>(Database&)> read = [key, query](Database& db) {
        return EventRecords{db}.newest(key, EventKind::profile_taken, query.limit + 1,
                                       query.before);
    };
    const auto events = co_await context_.store.read<std::vector<Event>>(read);
    LOCKSTEP_CO_TRY(events);
    co_return items_text<event::ProfileTaken>(*events, query.limit);
}

Task<Result<EvidencePlace>> JobQueries::profile_place(Caller caller, std::string id,
                                                      EvidenceQuery query) {
    const auto loaded = co_await registry_.load(caller, id);
    LOCKSTEP_CO_TRY(loaded);
    const Job& job = **loaded;
    if (!is_profile_name(query.name)) {
        co_return fail(Errc::not_found, "there is no file of a profile of that name");
    }
    const auto which = meant(job, query);
    LOCKSTEP_CO_TRY(which);
    const std::int32_t profile = query.profile == 0 ? which->generation->profiles : query.profile;
    if (profile < 1 || profile > which->generation->profiles) {
        co_return fail(Errc::not_found, "the generation has no such profile");
    }
    EvidencePlace out;
    out.directory = which->attempt->directory;
    const auto folders = profile_folders(which->generation->number, profile, query.rank);
    out.folders.assign(folders.begin(), folders.end());
    co_return out;
}

}  // namespace lockstep
