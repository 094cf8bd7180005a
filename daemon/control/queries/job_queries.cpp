#include "daemon/control/queries/job_queries.hpp"

#include "daemon/control/actor/job_actor.hpp"
#include "daemon/control/base/attempt_files.hpp"
#include "daemon/control/base/json_members.hpp"
#include "daemon/control/base/json_page.hpp"
#include "daemon/control/base/query_error.hpp"
#include "daemon/store/event_records.hpp"
#include "daemon/store/history_records.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/find_attempt.hpp"
#include "job/model/spec/notify.hpp"
#include "job/model/spec/spec_environment.hpp"
#include "job/model/spec/sweep.hpp"

#include <algorithm>
#include <iterator>

namespace lockstep {
namespace {

// The attempt with this number, 0: the newest, or nullptr. Only one whose nodes have met: one that
// waits for them has no logs yet.
const Attempt* with_logs(const Job& job, std::int32_t number) {
    const auto found =
        std::find_if(job.attempts.rbegin(), job.attempts.rend(), [number](const Attempt& attempt) {
            return !attempt.generations.empty() && (number == 0 || attempt.number == number);
        });
    return found == job.attempts.rend() ? nullptr : &*found;
}

bool is_over(const Job& job, const Attempt& attempt) {
    return is_final(job.state) || &attempt != job.attempt() || attempt.finished_at != 0;
}

}  // namespace

// Of a list or a search: the rows, one more than are wanted if there are more, or from where on.
struct JobQueries::Found {
    std::vector<JobRow> rows{};
    std::string searched_to{};  // the search has not come to its end: the last id looked at
};
Task<Result<JobQueries::Found>> JobQueries::find(RowQuery query, std::vector<std::string> words) {
    Found out;
    if (words.empty()) {
        const std::function<Result<std::vector<JobRow>>(Database&)> read = [query](Database& db) {
            return JobRecords{db}.list(query);
        };
        auto rows = co_await context_.store.read<std::vector<JobRow>>(read);
        LOCKSTEP_CO_TRY(rows);
        out.rows = std::move(*rows);
        co_return out;
    }
    const std::size_t wanted = query.limit;
    for (std::size_t looked_at = 0;;) {
        query.limit = wanted - out.rows.size();
        const std::function<Result<JobSearchTurn>(Database&)> read = [query, words](Database& db) {
            return JobRecords{db}.search(query, words, limits::kSearchTurn);
        };
        auto turn = co_await context_.store.read<JobSearchTurn>(read);
        LOCKSTEP_CO_TRY(turn);
        out.rows.insert(out.rows.end(), std::make_move_iterator(turn->found.begin()),
                        std::make_move_iterator(turn->found.end()));
        looked_at += turn->looked_at;
        if (!turn->more || out.rows.size() == wanted) {
            co_return out;
        }
        query.before = turn->last;
        if (looked_at >= limits::kSearchedJobs) {
            out.searched_to = turn->last;
            co_return out;
        }
    }
}

Task<Result<std::string>> JobQueries::list(Caller caller, JobQuery query) {
    RowQuery rows;
    rows.states = query.states;
    rows.user = query.user;
    if (!caller.admin && !caller.reads_all) {
        if (!query.user.empty() && query.user != caller.user) {
            co_return json_page({}, "");
        }
        rows.user = caller.user;
    }
    rows.name = query.name;
    rows.label_name = query.sweep.empty() ? query.label_name : kSweepLabel;
    rows.label_value = query.sweep.empty() ? query.label_value : query.sweep;
    if (!query.cursor.empty()) {
        const auto before = base64_decode(query.cursor);
        if (!before || !is_job_id(*before)) {
            co_return fail(query_error("cursor", "not one that this service has given out"));
        }
        rows.before = *before;
    }
    rows.limit = query.limit + 1;
    auto found = co_await find(std::move(rows), query.words);
    LOCKSTEP_CO_TRY(found);
    const std::size_t count = std::min(found->rows.size(), query.limit);
    std::vector<std::shared_ptr<const std::string>> alive;  // newer than what the store holds
    std::vector<std::string_view> items;
    for (std::size_t i = 0; i < count; ++i) {
        JobRow& row = found->rows[i];
        const JobRegistry::ActorPtr actor = registry_.find(row.id.value);
        if (actor) {
            alive.push_back(actor->view());
            items.push_back(*alive.back());
        } else {
            row.view = masked_view(std::move(row.view));
            items.push_back(row.view);
        }
    }
    std::vector<std::string> parts;
    if (!query.fields.empty()) {
        parts.reserve(items.size());
        for (std::string_view& item : items) {
            parts.push_back(json_members(item, query.fields));
            item = parts.back();
        }
    }
    const std::string& last =
        found->rows.size() > query.limit ? found->rows[count - 1].id.value : found->searched_to;
    co_return json_page(items, last.empty() ? "" : base64_encode(last));
}

Task<Result<std::string>> JobQueries::script(Caller caller, std::string id) {
    const auto loaded = co_await registry_.load(caller, id);
    LOCKSTEP_CO_TRY(loaded);
    const std::string_view file = context_.scheduler.batch_file();
    if (file.empty()) {
        co_return fail(Errc::not_found,
                       std::string{context_.scheduler.title()} + " uses no batch script");
    }
    const Attempt* attempt = (*loaded)->attempt();
    const std::function<Result<std::string>()> read = [file, directory = attempt == nullptr
                                                                             ? std::string{}
                                                                             : attempt->directory] {
        return directory.empty()
                   ? Result<std::string>{fail(Errc::not_found, "no attempt")}
                   : read_plain_file(std::filesystem::path{directory} / file, limits::kScriptBytes);
    };
    const auto until = std::chrono::steady_clock::now() + limits::kSignerPatience;
    const auto answer = co_await context_.attempt_files.run<Result<std::string>>(read, until);
    const auto text = answer ? *answer
                             : Result<std::string>{fail(
                                   Errc::timed_out, "the folder of the attempt does not answer")};
    if (text || text.error().code != Errc::not_found) {
        co_return text;
    }
    const bool over = is_final((*loaded)->state);
    co_return fail(over ? Errc::not_found : Errc::unavailable,
                   over ? "the job has no batch script" : "the batch script is not written yet");
}

Task<Result<std::string>> JobQueries::spec(Caller caller, std::string id) {
    // Of a job that is over only what was submitted: it may have a hundred thousand events.
    const auto job = co_await registry_.load(caller, id, 1);
    LOCKSTEP_CO_TRY(job);
    Json spec = to_json((*job)->spec);
    if (caller.user == (*job)->user) {
        // As it would be sent: $$ is a dollar sign.
        for (auto& [name, value] : spec["environment"].items()) {
            value = dollars_doubled(value.get_ref<const std::string&>());
        }
    } else {
        mask_environment(spec);
        mask_notify(spec);
    }
    co_return dump_json(spec);
}

Task<Result<std::string>> JobQueries::events(Caller caller, std::string id, EventsQuery query) {
    const auto seen = co_await registry_.show(caller, id);
    LOCKSTEP_CO_TRY(seen);
    const JobId key{id};
    const std::function<Result<std::vector<Event>>(Database&)> read = [key, query](Database& db) {
        return query.newest_first
                   ? EventRecords{db}.of_job_before(key, query.before, query.limit + 1)
                   : EventRecords{db}.of_job(key, query.after, query.limit + 1);
    };
    const auto found = co_await context_.store.read<std::vector<Event>>(read);
    LOCKSTEP_CO_TRY(found);
    const std::size_t count = std::min(found->size(), query.limit);
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < count; ++i) {
        texts.push_back(public_text((*found)[i]));
    }
    const std::string next = found->size() > count ? std::to_string((*found)[count - 1].seq) : "";
    co_return json_page({texts.begin(), texts.end()}, next);
}

Task<Result<LogPlace>> JobQueries::log_place(Caller caller, std::string id, std::int32_t rank,
                                             std::int32_t number) {
    const auto loaded = co_await registry_.load(caller, id);
    LOCKSTEP_CO_TRY(loaded);
    const Job& job = **loaded;
    if (rank < 0 || rank >= job.spec.world_size()) {
        co_return fail(Errc::not_found, "no rank " + std::to_string(rank) + ": the job has 0-" +
                                            std::to_string(job.spec.world_size() - 1));
    }
    const Attempt* attempt = with_logs(job, number);
    if (attempt == nullptr) {
        const Attempt* known = find_attempt(job, number);
        if (number != 0 && (known == nullptr || is_over(job, *known))) {
            co_return fail(Errc::not_found, "attempt " + std::to_string(number) +
                                                (known == nullptr ? " is not one of the job's"
                                                                  : " started no ranks"));
        }
        co_return fail(is_final(job.state) ? Errc::not_found : Errc::unavailable,
                       "rank " + std::to_string(rank) + " was not started" +
                           (is_final(job.state) ? "" : " yet"));
    }
    LogPlace out;
    out.attempt = attempt->number;
    const std::filesystem::path folder{attempt->directory};
    out.path = (folder / wire::rank_log_name(rank)).string();
    if (job.spec.launch == Launch::node) {
        // The launcher's, until the rank hands over an output of its own.
        out.instead_rank = rank - rank % job.spec.ranks_per_node();
        out.instead = (folder / wire::rank_log_name(out.instead_rank)).string();
    }
    out.ranks = job.spec.world_size();
    // A rank that has ended, or that the newest generation does not have, may be started again by
    // the next generation or attempt.
    out.may_grow = number == 0 ? !is_final(job.state) : !is_over(job, *attempt);
    co_return out;
}

Task<Result<DiskPlace>> JobQueries::disk(Caller caller, std::string id) {
    const auto shown = co_await registry_.show(caller, id);
    LOCKSTEP_CO_TRY(shown);
    // The first attempt is among the first events; one whose events do not read back has its folder
    // in the runs directory of now, as far as anybody knows.
    const auto loaded = co_await registry_.load(caller, id, kFirstEvents);
    const std::function<Result<std::int64_t>(Database&)> read = [job = JobId{id}](Database& db) {
        return HistoryRecords{db}.bytes_of(job);
    };
    const auto history = co_await context_.store.read<std::int64_t>(read);
    LOCKSTEP_CO_TRY(history);
    DiskPlace out;
    out.directory = (context_.settings.runs_dir / id).string();
    if (loaded) {
        out.first_directory = first_folder(**loaded, context_.settings.copied).string();
    }
    if (out.first_directory == out.directory) {
        out.first_directory.clear();
    }
    out.history_bytes = *history;
    co_return out;
}

}  // namespace lockstep
