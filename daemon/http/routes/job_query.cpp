// What a list of jobs is asked for.
#include "daemon/http/routes/job_query.hpp"

#include "daemon/http/base/query_reader.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep {
namespace {

void read_states(QueryReader& in, JobQuery& query) {
    std::string states;
    in.text("state", states, limits::kTextBytes);
    for (const std::string& name :
         states.empty() ? std::vector<std::string>{} : split(states, ',')) {
        const auto state = parse_job_state(name);
        if (!state) {
            in.error("state", "\"" + printable(name).substr(0, 64) + "\" is no state of a job");
            return;
        }
        // Once each: the number of different queries is that of the states.
        if (std::find(query.states.begin(), query.states.end(), *state) == query.states.end()) {
            query.states.push_back(*state);
        }
    }
}

void read_words(QueryReader& in, JobQuery& query) {
    std::string text;
    in.text("q", text, limits::kTextBytes);
    for (std::string& word : split(text, ' ')) {
        if (!word.empty()) {
            query.words.push_back(std::move(word));
        }
    }
    if (query.words.size() > limits::kSearchWords) {
        in.error("q", "at most " + std::to_string(limits::kSearchWords) + " words");
    }
}

void read_label(QueryReader& in, JobQuery& query) {
    std::string label;
    in.text("label", label, limits::kTextBytes * 2);
    if (label.empty()) {
        return;
    }
    const auto at = label.find_first_of(":=");
    if (at == std::string::npos || at == 0) {
        in.error("label", "must be name:value");
        return;
    }
    query.label_name = label.substr(0, at);
    query.label_value = label.substr(at + 1);
}

// The members of a Job (openapi_schemas.cpp).
constexpr std::array<std::string_view, 28> kJobFields{"id",
                                                      "name",
                                                      "user",
                                                      "framework",
                                                      "state",
                                                      "labels",
                                                      "resources",
                                                      "submitted_at",
                                                      "started_at",
                                                      "finished_at",
                                                      "step",
                                                      "total_steps",
                                                      "ettr",
                                                      "checkpoint_step",
                                                      "checkpoint_path",
                                                      "spans",
                                                      "anomalies",
                                                      "lost_steps",
                                                      "sweep",
                                                      "after",
                                                      "cause",
                                                      "warnings",
                                                      "attempts",
                                                      "pending_reason",
                                                      "expected_start",
                                                      "hang",
                                                      "desync",
                                                      "cancel_requested_at"};

void read_fields(QueryReader& in, JobQuery& query) {
    std::string fields;
    in.text("fields", fields, limits::kTextBytes * 4);
    if (fields.empty()) {
        return;
    }
    query.fields = split(fields, ',');
    for (const std::string& field : query.fields) {
        if (std::find(kJobFields.begin(), kJobFields.end(), field) == kJobFields.end()) {
            in.error("fields", "a job has no member " + printable(field).substr(0, 64));
            return;
        }
    }
}

}  // namespace

Result<JobQuery> job_query(const HttpRequest& request) {
    QueryReader in{request.query};
    JobQuery query;
    std::int64_t limit = limits::kPageDefault;
    in.text("user", query.user, limits::kTextBytes);
    in.text("name", query.name, limits::kTextBytes);
    in.text("sweep", query.sweep, limits::kTextBytes);
    in.integer("limit", limit, 1, limits::kPage);
    in.text("cursor", query.cursor, limits::kCursorBytes);
    read_states(in, query);
    read_words(in, query);
    read_label(in, query);
    read_fields(in, query);
    if (!query.sweep.empty() && !query.label_name.empty()) {
        in.error("sweep", "not together with label");
    }
    query.limit = static_cast<std::size_t>(limit);
    if (auto error = in.finish()) {
        return fail(std::move(*error));
    }
    return query;
}

}  // namespace lockstep
