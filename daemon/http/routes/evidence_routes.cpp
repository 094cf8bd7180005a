// What the ranks of a hang were doing: the list, the files, and having it looked at now; the same
// of profiles, what ranks do for some seconds.
#include "daemon/http/base/problem.hpp"
#include "daemon/http/base/query_reader.hpp"
#include "daemon/http/logs/rank_log_reader.hpp"
#include "daemon/http/routes/folder_reads.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/evidence.hpp"
#include "job/model/profile.hpp"

#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

namespace lockstep {
namespace {

constexpr std::int64_t kAnyEvidence = std::numeric_limits<std::int64_t>::max();

// Evidence or profiles: the same questions, of other files.
using ListCaptures = Task<Result<std::string>> (Control::*)(Caller, std::string, CapturesQuery);
using PlaceOfCapture = Task<Result<EvidencePlace>> (Control::*)(Caller, std::string, EvidenceQuery);

template <ListCaptures list>
Task<HttpResponse> list_captures(RouteContext context, HttpRequest request) {
    QueryReader in{request.query};
    CapturesQuery query;
    std::int64_t limit = limits::kPageDefault;
    in.integer("before", query.before, 1, kAnyEvidence);
    in.integer("limit", limit, 1, limits::kPageDefault);
    if (const auto error = in.finish()) {
        co_return problem(*error);
    }
    query.limit = static_cast<std::size_t>(limit);
    std::string id{request.param()};
    auto text = co_await (context.control.*list)(caller_of(request), std::move(id), query);
    co_return json_or_problem(std::move(text));
}

Task<HttpResponse> take(RouteContext context, HttpRequest request) {
    std::string id{request.param()};
    auto text =
        co_await context.control.commands().take_evidence(caller_of(request), std::move(id));
    co_return json_or_storing_problem(std::move(text));
}

// Blocking: the folder may be of a file system that hangs, as the job does.
HttpResponse slice_of(const EvidencePlace& place, const std::string& name, std::int64_t offset) {
    const auto reader = RankLogReader::open_below(place.directory, place.folders, name);
    if (!reader) {
        return problem(reader.error().code == Errc::not_found
                           ? Error{Errc::not_found, "there is no " + name + " of this rank"}
                           : reader.error());
    }
    auto slice = reader->read(offset, limits::kBodyBytes);
    if (!slice) {
        return problem(slice.error());
    }
    HttpResponse response = text_response(std::move(slice->text));
    if (name == kFlightDumpName || name.ends_with(kProfileTrace)) {
        response.own_type = "application/octet-stream";
    }
    response.headers.emplace_back("Lockstep-Log-Offset", std::to_string(slice->offset));
    response.headers.emplace_back("Lockstep-Log-Next", std::to_string(slice->next));
    return response;
}

template <PlaceOfCapture place_of, bool of_profile>
Task<HttpResponse> captured_file(RouteContext context, HttpRequest request) {
    QueryReader in{request.query};
    std::int64_t attempt = 0;
    std::int64_t generation = 0;
    std::int64_t profile = 0;
    std::int64_t rank = 0;
    std::int64_t offset = 0;
    in.integer("attempt", attempt, 1, limits::kAttempts);
    in.integer("generation", generation, 1, INT32_MAX);
    if (of_profile) {
        in.integer("profile", profile, 1, INT32_MAX);
    }
    in.integer("rank", rank, 0, limits::kRanks - 1);
    in.integer("offset", offset, 0, kAnyEvidence);
    if (const auto error = in.finish()) {
        co_return problem(*error);
    }
    EvidenceQuery query;
    query.attempt = static_cast<std::int32_t>(attempt);
    query.generation = static_cast<std::int32_t>(generation);
    query.profile = static_cast<std::int32_t>(profile);
    query.rank = static_cast<std::int32_t>(rank);
    query.name = std::string{request.param(1)};
    const std::string name = query.name;
    std::string id{request.param()};
    const auto place =
        co_await (context.control.*place_of)(caller_of(request), std::move(id), std::move(query));
    if (!place) {
        co_return problem(place.error());
    }
    std::string folder = place->directory;
    std::function<HttpResponse()> read = [place = *place, name, offset] {
        return slice_of(place, name, offset);
    };
    co_return co_await read_aside(context, std::move(folder), std::move(read));
}

Result<ProfileQuery> wanted_profile(const std::string& body) {
    ProfileQuery out;
    if (body.empty()) {
        return out;
    }
    const auto json = parse_json(body);
    LOCKSTEP_TRY(json);
    if (!json->is_object()) {
        return fail(Errc::invalid, "the body must be an object");
    }
    std::vector<FieldError> errors;
    ObjectReader in{*json, "", errors};
    std::string ranks;
    in.string("ranks", ranks, limits::kTextBytes);
    in.integer("seconds", out.seconds, 1, limits::kProfileSeconds);
    in.finish();
    if (!ranks.empty()) {
        auto set = parse_rank_set(ranks, limits::kProfileRanks);
        if (set) {
            out.ranks = std::move(*set);
        } else {
            errors.push_back({"/ranks", set.error().message});
        }
    }
    if (!errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    return out;
}

Task<HttpResponse> take_profile(RouteContext context, HttpRequest request) {
    auto wanted = wanted_profile(request.body);
    if (!wanted) {
        co_return problem(wanted.error());
    }
    std::string id{request.param()};
    auto text = co_await context.control.commands().take_profile(caller_of(request), std::move(id),
                                                                 std::move(*wanted));
    HttpResponse response = json_or_storing_problem(std::move(text));
    response.status = response.status == 200 ? 202 : response.status;
    co_return response;
}

using EvidenceCall = Task<HttpResponse> (*)(RouteContext, HttpRequest);
SlowHandler waiting_for_evidence(const RouteContext& context, EvidenceCall call) {
    return [context, call](HttpRequest request) { return call(context, std::move(request)); };
}

std::vector<ParameterDoc> slice_headers() {
    return {{"Lockstep-Log-Offset", "integer", "Byte of the file at which the answer begins."},
            {"Lockstep-Log-Next", "integer", "Byte of the file at which the next one begins."}};
}

}  // namespace

RouteParts get_job_evidence_route(const RouteContext& context) {
    RouteParts route;
    route.handler = waiting_for_evidence(context, list_captures<&Control::evidence>);
    route.summary =
        "What the ranks were doing when the job hung or a capture was requested: the newest "
        "capture of each generation, newest first, lagging ranks first.";
    route.query = {{"before", "integer",
                    "Only captures before the event of this seq: the next_cursor of the answer "
                    "before."},
                   {"limit", "integer", "Generations in the answer, 1..50; 50 if not given."}};
    return route;
}

RouteParts take_job_evidence_route(const RouteContext& context) {
    RouteParts route;
    route.handler = waiting_for_evidence(context, take);
    route.summary =
        "Capture the state of the ranks now, without stopping them. The result appears some "
        "seconds later. 409: nothing is running, or the generation has had its 63 captures.";
    return route;
}

RouteParts get_job_evidence_file_route(const RouteContext& context) {
    RouteParts route;
    route.handler = waiting_for_evidence(context, captured_file<&Control::evidence_place, false>);
    route.summary =
        "One file of a rank's evidence, at most 1 MiB an answer: state.txt, kernel.txt, "
        "python.txt, native.txt, ras.txt, nccl.txt, flight-recorder.";
    route.query = {
        {"attempt", "integer", "Of which attempt; the newest if not given."},
        {"generation", "integer", "Of which generation; the newest if not given."},
        {"rank", "integer", "Which rank; 0 if not given."},
        {"offset", "integer", "Begin at this byte; Lockstep-Log-Next of the answer before."}};
    route.answer_headers = slice_headers();
    return route;
}

RouteParts get_job_profiles_route(const RouteContext& context) {
    RouteParts route;
    route.handler = waiting_for_evidence(context, list_captures<&Control::profiles>);
    route.summary = "Profiles of the job's ranks, newest first.";
    route.query = {
        {"before", "integer",
         "Only profiles before the event of this seq: the next_cursor of the answer before."},
        {"limit", "integer", "Number of profiles in the answer, 1..50; 50 if not given."}};
    return route;
}

RouteParts take_job_profile_route(const RouteContext& context) {
    RouteParts route;
    route.handler = waiting_for_evidence(context, take_profile);
    route.summary =
        "Record what ranks do for some seconds while they train: where their Python is, and with "
        "torch or JAX a trace. Nothing is stopped; the body may be empty. GET …/profiles has "
        "the result within patience_seconds. 409: nothing is running, another profile is under "
        "way, "
        "or the generation has had its 64.";
    return route;
}

RouteParts get_job_profile_file_route(const RouteContext& context) {
    RouteParts route;
    route.handler = waiting_for_evidence(context, captured_file<&Control::profile_place, true>);
    route.summary =
        "One file of a rank's profile, at most 1 MiB an answer: stacks.txt, trace.json.gz, "
        "operations.txt; of a rank's second process 2.stacks.txt and so on; collectives.txt.";
    route.query = {
        {"attempt", "integer", "Of which attempt; the newest if not given."},
        {"generation", "integer", "Of which generation; the newest if not given."},
        {"profile", "integer", "Number of the profile; the generation's newest if not given."},
        {"rank", "integer", "Which rank; 0 if not given."},
        {"offset", "integer", "Begin at this byte; Lockstep-Log-Next of the answer before."}};
    route.answer_headers = slice_headers();
    return route;
}

}  // namespace lockstep
