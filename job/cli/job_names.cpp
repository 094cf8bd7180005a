#include "job/cli/job_names.hpp"

#include "job/base/ids.hpp"
#include "job/base/text.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/views.hpp"

#include <algorithm>
#include <cctype>
#include <functional>
#include <set>

namespace lockstep::cli {
namespace {

constexpr std::size_t kLeastIdPart = 4;
constexpr std::size_t kLeastShortId = 6;
constexpr std::size_t kIdPrefix = 3;  // "ls-"
constexpr std::size_t kNamedInAnError = 4;

std::string upper(std::string_view text) {
    std::string out{text};
    std::transform(out.begin(), out.end(), out.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return out;
}

// What is left of an id or its short form: upper case, without ls-, an ellipsis or a tilde.
std::string id_part(std::string_view text) {
    for (const std::string_view mark : {std::string_view{"…"}, std::string_view{"~"}}) {
        if (text.starts_with(mark)) {
            text.remove_prefix(mark.size());
        }
    }
    std::string out = upper(text);
    return out.starts_with("LS-") ? out.substr(kIdPrefix) : out;
}

// Calls `take` with every job, newest first, until it returns false.
Result<void> each_job(const Client& client, const std::string& filter,
                      const std::function<bool(const Json&)>& take) {
    std::string cursor;
    do {
        const auto page =
            client.get_json("/v1/jobs?limit=500" + filter +
                            (cursor.empty() ? "" : "&cursor=" + query_encode(cursor)));
        LOCKSTEP_TRY(page);
        for (const Json& job : items_at(*page, "items")) {
            if (!take(job)) {
                return {};
            }
        }
        cursor = text_at(*page, "next_cursor");
    } while (!cursor.empty());
    return {};
}

Result<FoundJob> nth(const Client& client, std::int64_t number, const std::string& filter) {
    std::int64_t at = 0;
    FoundJob found;
    const auto done = each_job(client, filter, [&](const Json& job) {
        found.id = ++at == number ? text_at(job, "id") : "";
        return at < number;
    });
    LOCKSTEP_TRY(done);
    if (found.id.empty()) {
        return fail(Errc::not_found, at == 0 ? "there are no jobs yet"
                                             : "there are only " + std::to_string(at) + " jobs");
    }
    return found;
}

Result<FoundJob> newest_of_caller(const Client& client) {
    const auto who = client.get_json("/v1/whoami");
    LOCKSTEP_TRY(who);
    const std::string user = text_at(*who, "user");
    return nth(client, 1, user.empty() ? "" : "&user=" + query_encode(user));
}

std::string first_few(const std::vector<std::string>& ids) {
    std::string out;
    for (std::size_t i = 0; i < ids.size() && i < kNamedInAnError; ++i) {
        out += (i == 0 ? "" : ", ") + ids[i];
    }
    return ids.size() > kNamedInAnError ? out + ", …" : out;
}

// Nothing of that name: an empty id.
Result<FoundJob> by_name(const Client& client, const std::string& name, bool acting) {
    std::vector<std::string> all;
    std::vector<std::string> unfinished;
    const auto done = each_job(client, "&name=" + query_encode(name), [&](const Json& job) {
        all.push_back(text_at(job, "id"));
        if (!is_final_state(text_at(job, "state"))) {
            unfinished.push_back(all.back());
        }
        return true;
    });
    LOCKSTEP_TRY(done);
    FoundJob found;
    if (all.empty()) {
        return found;
    }
    if (acting && unfinished.size() > 1) {
        return fail(Errc::conflict, std::to_string(unfinished.size()) + " jobs named " +
                                        one_line(name) +
                                        " have not ended: " + first_few(unfinished));
    }
    found.id = acting && !unfinished.empty() ? unfinished.front() : all.front();
    if (all.size() > 1) {
        found.note = one_line(name) + ": " + found.id +
                     (acting && !unfinished.empty() ? ", the one that has not ended of "
                                                    : ", the newest of ") +
                     std::to_string(all.size()) + " jobs of that name";
    }
    return found;
}

Result<FoundJob> by_id_part(const Client& client, const std::string& text) {
    const std::string part = id_part(text);
    const bool plausible =
        part.size() >= kLeastIdPart &&
        std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
    std::vector<std::string> found;
    if (plausible) {
        const auto done = each_job(client, "", [&](const Json& job) {
            const std::string id = text_at(job, "id");
            if (is_job_id(id) && id.find(part, kIdPrefix) != std::string::npos) {
                found.push_back(id);
            }
            return found.size() <= kNamedInAnError;
        });
        LOCKSTEP_TRY(done);
    }
    if (found.size() > 1) {
        return fail(Errc::conflict,
                    "several jobs have " + one_line(text) + " in their id: " + first_few(found));
    }
    if (found.empty()) {
        return fail(Errc::not_found, "no job is named " + one_line(text) +
                                         (plausible ? " or has it in its id" : "") +
                                         "; lockstep jobs lists them");
    }
    return FoundJob{found.front(), ""};
}

}  // namespace

Result<FoundJob> find_job(const Client& client, const std::string& text, bool acting) {
    if (const std::string whole = "ls-" + id_part(text); is_job_id(whole)) {
        return FoundJob{whole, ""};
    }
    if (text == "last") {
        return newest_of_caller(client);
    }
    if (text.starts_with('@')) {
        const auto number = to_int(std::string_view{text}.substr(1));
        if (!number || *number < 1) {
            return fail(Errc::invalid,
                        one_line(text) + ": @ and a line of lockstep jobs, as in @3");
        }
        return nth(client, *number, "");
    }
    if (text.empty() || text.size() > 128) {
        return fail(Errc::invalid, "a job is named by its id, a part of it, its name, last or @3");
    }
    auto named = by_name(client, text, acting);
    if (!named || !named->id.empty()) {
        return named;
    }
    return by_id_part(client, text);
}

std::size_t short_id_length(const std::vector<Json>& jobs) {
    std::vector<std::string> ids;
    ids.reserve(jobs.size());
    for (const Json& job : jobs) {
        ids.push_back(text_at(job, "id"));
    }
    for (std::size_t length = kLeastShortId;; ++length) {
        std::set<std::string_view> ends;
        bool whole = true;
        for (const std::string& id : ids) {
            whole = whole && id.size() <= length;
            ends.insert(std::string_view{id}.substr(id.size() - std::min(id.size(), length)));
        }
        if (whole || ends.size() == ids.size()) {
            return length;
        }
    }
}

std::string short_id(std::string_view id, std::size_t length, bool unicode) {
    if (id.size() <= length) {
        return std::string{id};
    }
    return (unicode ? "…" : "~") + std::string{id.substr(id.size() - length)};
}

}  // namespace lockstep::cli
