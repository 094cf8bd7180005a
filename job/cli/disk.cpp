#include "job/cli/disk.hpp"

#include "job/base/sort.hpp"
#include "job/cli/cli_limits.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/job_names.hpp"
#include "job/cli/times.hpp"
#include "job/cli/views.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <utility>
#include <vector>

namespace lockstep::cli {
namespace {

constexpr std::chrono::milliseconds kBetween{500};
constexpr int kTries = limits::kRemovalPatience / kBetween;

struct Kept {
    Json job;
    Json disk;  // null: not told
    std::int64_t bytes() const { return integer_at(disk, "total_bytes").value_or(0); }
};

Kept with_disk(Context& context, Json job) {
    auto disk = context.client.get_json("/v1/jobs/" + text_at(job, "id") + "/disk");
    return Kept{std::move(job), disk ? std::move(*disk) : Json()};
}

// Jobs of one question, all pages or the first `most`.
Result<std::vector<Json>> listed(Context& context, const std::string& query, std::int64_t most) {
    std::vector<Json> found;
    std::string cursor;
    do {
        const std::int64_t left = std::min<std::int64_t>(500, most - std::ssize(found));
        const auto page =
            context.client.get_json("/v1/jobs?limit=" + std::to_string(left) + query +
                                    (cursor.empty() ? "" : "&cursor=" + query_encode(cursor)));
        LOCKSTEP_TRY(page);
        const Json& items = items_at(*page, "items");
        found.insert(found.end(), items.begin(), items.end());
        cursor = text_at(*page, "next_cursor");
    } while (!cursor.empty() && std::ssize(found) < most);
    return found;
}

// One that `rm` or `du` names. A name that several jobs have is none: the newest one may not be
// meant.
Result<Json> named(Context& context, const std::string& text) {
    const auto found = find_job(context.client, text, false);
    LOCKSTEP_TRY(found);
    if (!found->note.empty()) {
        return fail(Errc::conflict, found->note + "; say its id, or @N");
    }
    return context.client.get_json("/v1/jobs/" + found->id);
}

Result<std::vector<Json>> chosen(Context& context) {
    const Options& options = context.options;
    std::vector<Json> jobs;
    for (const std::string& text : options.ids) {
        auto job = named(context, text);
        LOCKSTEP_TRY(job);
        const std::string sweep = text_at(at(*job, "sweep"), "id");
        if (options.whole_sweep && !sweep.empty()) {
            const auto all = listed(context, "&sweep=" + sweep, INT32_MAX);
            LOCKSTEP_TRY(all);
            jobs.insert(jobs.end(), all->begin(), all->end());
        } else {
            jobs.push_back(std::move(*job));
        }
    }
    if (!options.older_than.empty()) {
        const auto before = parse_moment(options.older_than, context.clock.wall());
        if (!before) {
            return fail(Error{before.error()}.in("--older-than"));
        }
        const auto who = context.client.get_json("/v1/whoami");
        LOCKSTEP_TRY(who);
        std::string query = "&user=" + query_encode(text_at(*who, "user"));
        query += options.state.empty() ? "" : "&state=" + query_encode(options.state);
        query += options.name.empty() ? "" : "&name=" + query_encode(options.name);
        const auto all = listed(context, query, INT32_MAX);
        LOCKSTEP_TRY(all);
        for (const Json& job : *all) {
            const auto ended = time_at(job, "finished_at");
            if (is_final_state(text_at(job, "state")) && ended && *ended < *before &&
                at(job, "labels").find("keep") == at(job, "labels").end()) {
                jobs.push_back(job);
            }
        }
    }
    // Each once: a job may be named and be old.
    sort_stably(jobs,
                [](const Json& a, const Json& b) { return text_at(a, "id") > text_at(b, "id"); });
    jobs.erase(std::unique(jobs.begin(), jobs.end(),
                           [](const Json& a, const Json& b) {
                               return text_at(a, "id") == text_at(b, "id");
                           }),
               jobs.end());
    return jobs;
}

std::vector<std::string> disk_table(const Terminal& terminal, const std::vector<Kept>& jobs,
                                    UnixMillis now) {
    Table table({{"ID"},
                 {"NAME", false, true},
                 {"STATE"},
                 {"ENDED", true},
                 {"TOTAL", true},
                 {"CHECKPOINTS", true},
                 {"LOGS", true},
                 {"TELEMETRY", true},
                 {"OTHER", true}});
    for (const Kept& one : jobs) {
        const auto part = [&](const char* name) {
            const auto bytes = integer_at(one.disk, name);
            return bytes ? bytes_text(*bytes) : std::string{"-"};
        };
        const auto ended = time_at(one.job, "finished_at");
        const std::int64_t other = integer_at(one.disk, "other_bytes").value_or(0) +
                                   integer_at(one.disk, "evidence_bytes").value_or(0);
        table.row({text_at(one.job, "id"), one_line(text_at(one.job, "name")),
                   text_at(one.job, "state"), ended ? age_text(*ended, now) + " ago" : "-",
                   part("total_bytes"), part("checkpoints_bytes"), part("logs_bytes"),
                   part("history_bytes"), one.disk.is_null() ? "-" : bytes_text(other)});
    }
    return table.lines(terminal);
}

Json disk_json(const std::vector<Kept>& jobs) {
    Json answer = Json::object();
    answer["items"] = Json::array();
    for (const Kept& one : jobs) {
        Json item = Json::object();
        item["id"] = text_at(one.job, "id");
        item["disk"] = one.disk;
        answer["items"].push_back(std::move(item));
    }
    return answer;
}

// Without --all and names as many as there is time for, in their order.
std::vector<Kept> measured(Context& context, std::vector<Json> jobs) {
    const Options& options = context.options;
    const bool whole = options.all || !options.ids.empty();
    const auto until = context.clock.steady() + limits::kDiskUsePatience;
    std::vector<Kept> kept;
    for (Json& job : jobs) {
        if (!whole && context.clock.steady() >= until) {
            break;
        }
        kept.push_back(with_disk(context, std::move(job)));
    }
    sort_stably(kept, [](const Kept& a, const Kept& b) { return a.bytes() > b.bytes(); });
    return kept;
}

std::int64_t total_of(const std::vector<Kept>& jobs) {
    std::int64_t bytes = 0;
    for (const Kept& one : jobs) {
        bytes += one.bytes();
    }
    return bytes;
}

std::string total_line(const std::vector<Kept>& jobs) {
    return std::to_string(jobs.size()) + (jobs.size() == 1 ? " job, " : " jobs, ") +
           bytes_text(total_of(jobs));
}

Exit nothing_removed(Context& context, const std::string& why) {
    context.err << why << "\n";
    if (context.options.json) {
        print_json(context, disk_json({}));
    }
    return Exit::ok;
}

// The table belongs to the question: what a program or a file gets has none.
bool said_yes(Context& context, const std::vector<Kept>& kept) {
    const bool apart = context.options.json || !context.terminal.interactive;
    std::ostream& shown = apart ? context.err : context.out;
    for (const std::string& line : disk_table(context.terminal, kept, context.clock.wall())) {
        shown << line << "\n";
    }
    shown << std::flush;
    context.err << "remove " << total_line(kept)
                << (context.options.keep_checkpoints ? ", but for the checkpoints?" : "?")
                << " [y/N] " << std::flush;
    std::string answer;
    std::getline(std::cin, answer);
    return answer == "y" || answer == "Y" || answer == "yes";
}

Exit show_what_would_go(Context& context, const std::vector<Kept>& kept) {
    if (context.options.json) {
        print_json(context, disk_json(kept));
        return Exit::ok;
    }
    print(context, disk_table(context.terminal, kept, context.clock.wall()));
    context.err << total_line(kept) << "; nothing was removed\n";
    return Exit::ok;
}

Result<Json> remove_one(Context& context, const std::string& id) {
    ClientRequest asked;
    asked.method = "DELETE";
    asked.target = "/v1/jobs/" + id + (context.options.keep_checkpoints ? "?checkpoints=keep" : "");
    for (int tries = 1;; ++tries) {
        auto done = context.client.ask_json(asked);
        if (done || done.error().code != Errc::unavailable || tries == kTries) {
            return done;
        }
        context.sleep(kBetween);
    }
}

}  // namespace

std::string bytes_text(std::int64_t bytes) {
    constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    constexpr double kStep = 1024;
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= kStep && unit + 1 < kUnits.size()) {
        value /= kStep;
        ++unit;
    }
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
    return text.data();
}

std::string disk_text(const Json& disk) {
    const auto total = integer_at(disk, "total_bytes");
    if (!total) {
        return "";
    }
    std::string parts;
    for (const auto& [field, name] : {std::pair{"checkpoints_bytes", "checkpoints"},
                                      {"logs_bytes", "logs"},
                                      {"evidence_bytes", "evidence"},
                                      {"history_bytes", "telemetry"}}) {
        if (const auto bytes = integer_at(disk, field); bytes && *bytes > 0) {
            parts += (parts.empty() ? ": " : ", ") + std::string{name} + " " + bytes_text(*bytes);
        }
    }
    return bytes_text(*total) + parts;
}

Exit disk_use(Context& context) {
    const Options& options = context.options;
    std::vector<Json> jobs;
    if (options.ids.empty()) {
        std::string query = options.user.empty() ? "" : "&user=" + query_encode(options.user);
        auto all = listed(context, query, INT32_MAX);
        if (!all) {
            return report(context, all.error());
        }
        jobs = std::move(*all);
    }
    for (const std::string& text : options.ids) {
        auto job = named(context, text);
        if (!job) {
            return report(context, job.error());
        }
        jobs.push_back(std::move(*job));
    }
    const std::size_t found = jobs.size();
    std::vector<Kept> kept = measured(context, std::move(jobs));
    const std::size_t left = found - kept.size();
    const std::string total = total_line(kept);
    const std::int64_t bytes = total_of(kept);
    const std::size_t counted = kept.size();
    const bool whole = options.all || !options.ids.empty();
    const std::size_t shown =
        whole ? counted : std::min(counted, static_cast<std::size_t>(options.limit));
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(shown), kept.end());
    if (options.json) {
        Json answer = disk_json(kept);
        answer["jobs"] = counted;
        answer["total_bytes"] = bytes;
        answer["not_measured"] = left;
        print_json(context, answer);
    } else if (kept.empty()) {
        context.err << "no jobs\n";
    } else {
        print(context, disk_table(context.terminal, kept, context.clock.wall()));
        context.err << total << (shown < counted ? "; the largest are shown, --all shows all" : "")
                    << "\n";
        if (left > 0) {
            context.err << left << (left == 1 ? " older job was" : " older jobs were")
                        << " not measured within " << limits::kDiskUsePatience.count()
                        << " s; --all measures all\n";
        }
    }
    return Exit::ok;
}

Exit remove_jobs(Context& context) {
    const Options& options = context.options;
    if (options.ids.empty() && options.older_than.empty()) {
        context.err << "error: which ones? lockstep rm ID ..., or --older-than 30d\n";
        return Exit::usage;
    }
    const auto jobs = chosen(context);
    if (!jobs) {
        return report(context, jobs.error());
    }
    if (jobs->empty()) {
        return nothing_removed(context, "no jobs like that");
    }
    const bool asks = context.terminal.asks && !options.yes;
    const bool by_rule = !options.older_than.empty() || options.whole_sweep;
    if (asks || options.dry_run) {
        std::vector<Kept> kept;
        kept.reserve(jobs->size());
        for (const Json& job : *jobs) {
            kept.push_back(with_disk(context, job));
        }
        if (options.dry_run) {
            return show_what_would_go(context, kept);
        }
        if (!said_yes(context, kept)) {
            return nothing_removed(context, "nothing was removed");
        }
    } else if (by_rule && !options.yes) {
        const bool one = jobs->size() == 1;
        const std::string which = one ? "it" : "them";
        context.err << "error: " << jobs->size() << (one ? " job" : " jobs")
                    << " would go: --dry-run shows " << which << ", --yes removes " << which
                    << "\n";
        return Exit::usage;
    }
    Exit worst = Exit::ok;
    Json removed = Json::array();
    for (const Json& job : *jobs) {
        const std::string id = text_at(job, "id");
        const auto done = remove_one(context, id);
        if (!done) {
            worst = report(context, Error{done.error()}.in(id));
        } else if (options.json) {
            removed.push_back(*done);
        } else {
            context.out << id << "  is removed\n" << std::flush;
        }
    }
    if (options.json) {
        Json answer = Json::object();
        answer["items"] = std::move(removed);
        print_json(context, answer);
    }
    return worst;
}

}  // namespace lockstep::cli
