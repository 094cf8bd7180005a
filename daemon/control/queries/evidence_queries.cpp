// Reading the evidence of a job's hangs: from its events, and where the files lie.
#include "daemon/control/queries/job_queries.hpp"
#include "job/base/clock.hpp"
#include "job/model/evidence.hpp"

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

}  // namespace

Task<Result<std::string>> JobQueries::evidence(Caller caller, std::string id, std::size_t limit) {
    const auto seen = co_await registry_.show(caller, id);
    LOCKSTEP_CO_TRY(seen);
    const JobId key{id};
    // One of a generation: a later look has written over the files of the one before.
    const std::function<Result<std::vector<Event>>(Database&)> read = [key, limit](Database& db) {
        return db.newest_of(key, EventKind::evidence_taken, limit);
    };
    const auto events = co_await context_.store.read<std::vector<Event>>(read);
    LOCKSTEP_CO_TRY(events);
    Json out = Json::object();
    out["items"] = Json::array();
    for (const Event& event : *events) {
        if (const auto* taken = std::get_if<event::EvidenceTaken>(&event.data)) {
            out["items"].push_back(item_of(event, *taken));
        }
    }
    co_return dump_json(out);
}

Task<Result<EvidencePlace>> JobQueries::evidence_place(Caller caller, std::string id,
                                                       EvidenceQuery query) {
    const auto loaded = co_await registry_.load(caller, id);
    LOCKSTEP_CO_TRY(loaded);
    const Job& job = **loaded;
    if (!is_evidence_name(query.name)) {
        co_return fail(Errc::not_found, "there is no evidence of that name");
    }
    const Attempt* attempt = nullptr;  // the last that fits is the newest
    for (const Attempt& one : job.attempts) {
        const bool fits =
            query.attempt == 0 ? !one.generations.empty() : one.number == query.attempt;
        attempt = fits ? &one : attempt;
    }
    const Generation* generation = nullptr;
    if (attempt != nullptr) {
        for (const Generation& one : attempt->generations) {
            const bool fits = query.generation == 0 || one.number == query.generation;
            generation = fits ? &one : generation;
        }
    }
    if (generation == nullptr) {
        co_return fail(Errc::not_found, "the job has no such attempt and generation");
    }
    if (query.rank < 0 || query.rank >= job.spec.world_size()) {
        co_return fail(Errc::not_found, "no rank " + std::to_string(query.rank) +
                                            ": the job has 0-" +
                                            std::to_string(job.spec.world_size() - 1));
    }
    EvidencePlace out;
    out.directory = attempt->directory;
    const auto folders = evidence_folders(generation->number, query.rank);
    out.folders.assign(folders.begin(), folders.end());
    co_return out;
}

}  // namespace lockstep
