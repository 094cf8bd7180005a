// size: one short handler for each route of jobs and sweeps
#include "daemon/control/base/fair_turns.hpp"
#include "daemon/http/base/content_coding.hpp"
#include "daemon/http/base/problem.hpp"
#include "daemon/http/base/query_reader.hpp"
#include "daemon/http/routes/job_query.hpp"
#include "daemon/http/routes/routes.hpp"
#include "job/async/slices.hpp"
#include "job/base/digest.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/spec/spec_environment.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

Result<Json> document_of(const HttpRequest& request) {
    auto json = parse_json(request.body);
    LOCKSTEP_TRY(json);
    std::vector<FieldError> values;
    read_dollars(*json, values);
    refuse_masked(*json, values);
    refuse_own_recorded(*json, values);
    if (!values.empty()) {
        return fail(field_errors(std::move(values)));
    }
    return json;
}

using SweepTurns = std::shared_ptr<FairTurns>;

// Spec and sweep of a submission; the rest is empty. `turn` is had while a sweep is taken up.
Task<Result<SubmitRequest>> asked_of(const HttpRequest& request, FairTurns& turns,
                                     std::optional<FairTurns::Turn>& turn) {
    const auto json = document_of(request);
    LOCKSTEP_CO_TRY(json);
    SubmitRequest out;
    if (!has_sweep(*json)) {
        auto spec = parse_spec(*json);
        LOCKSTEP_CO_TRY(spec);
        out.spec = std::move(*spec);
        co_return out;
    }
    std::string user = request.principal.user;
    auto granted = co_await turns.wait(std::move(user));
    if (!granted) {
        co_return fail(Errc::unavailable,
                       "your sweeps are still being loaded after a restart: try again");
    }
    turn.emplace(std::move(*granted));
    Slices slices;
    auto maker = SweepMaker::begin(*json);
    LOCKSTEP_CO_TRY(maker);
    while (!maker->whole()) {
        const Status made = maker->next();
        LOCKSTEP_CO_TRY(made);
        if (slices.over()) {
            co_await slices.rest();
        }
    }
    out.sweep = maker->take();
    out.spec = out.sweep->points.front().spec;
    co_return out;
}

// "<hash>" with its quotes, as an ETag; "" when the header is absent.
Result<std::string> render_hash_of(const HttpRequest& request) {
    const auto value = request.header("if-match");
    if (value.empty()) {
        return std::string{};
    }
    const bool quoted = value.size() > 2 && value.front() == '"' && value.back() == '"';
    const auto hash = quoted ? value.substr(1, value.size() - 2) : std::string_view{};
    if (hash.empty() || hash.size() > limits::kIdempotencyKeyBytes ||
        hash.find('"') != std::string_view::npos) {
        return fail(Errc::invalid, "If-Match: must be \"<render_hash>\" with its quotes");
    }
    return std::string{hash};
}

Result<std::string> idempotency_key_of(const HttpRequest& request) {
    const auto key = request.header("idempotency-key");
    const bool visible =
        std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < '\x7F'; });
    if (!visible || key.size() > limits::kIdempotencyKeyBytes ||
        (key.empty() && request.head.has("idempotency-key"))) {
        return fail(Errc::invalid, "Idempotency-Key: must be 1..255 visible ASCII characters");
    }
    return std::string{key};
}

int submit_status(const SubmitError& error) {
    switch (error.why) {
        case SubmitFailure::key_reused:
        case SubmitFailure::job_removed:  // no 409, at which clients ask again
            return 422;
        case SubmitFailure::render_changed:
            return 412;
        case SubmitFailure::user_quota:
            return 429;
        case SubmitFailure::too_many_jobs:
            return 503;
        case SubmitFailure::key_in_flight:
            return 409;
        case SubmitFailure::other:
            break;
    }
    return storing_status_of(error.code);
}

Task<HttpResponse> submit(Control& control, SweepTurns turns, HttpRequest request) {
    auto key = idempotency_key_of(request);
    auto hash = render_hash_of(request);
    if (!key || !hash) {
        co_return problem(!key ? key.error() : hash.error());
    }
    std::optional<FairTurns::Turn> turn;
    auto asked = co_await asked_of(request, *turns, turn);
    if (!asked) {
        co_return problem(asked.error());
    }
    SubmitRequest submission = std::move(*asked);
    if (const auto header = request.header("lockstep-signature"); !header.empty()) {
        auto signature = read_signature(header);
        if (!signature) {
            co_return problem(signature.error());
        }
        submission.signature = std::move(*signature);
        submission.document = request.body;
    }
    if (submission.sweep && !hash->empty()) {
        co_return problem(
            Error{Errc::invalid,
                  "If-Match: not for a sweep, which runs more than the one job that was rendered"});
    }
    submission.idempotency_key = std::move(*key);
    submission.if_match = std::move(*hash);
    if (!submission.idempotency_key.empty()) {
        submission.body_sha256 = sha256_hex(request.body);
    }
    auto done = co_await control.submit(caller_of(request), std::move(submission));
    if (!done) {
        co_return problem(done.error(), submit_status(done.error()));
    }
    HttpResponse response = json_response(std::move(done->job_json), 201);
    response.headers.emplace_back("Location", "/v1/jobs/" + done->id);
    if (done->repeated) {
        response.headers.emplace_back("Idempotency-Replayed", "true");
    }
    co_return response;
}

Task<HttpResponse> render(Control& control, SweepTurns turns, HttpRequest request) {
    bool estimate = false;
    QueryReader in{request.query};
    in.boolean("estimate", estimate);
    if (const auto error = in.finish()) {
        co_return problem(*error);
    }
    std::optional<FairTurns::Turn> turn;
    const auto asked = co_await asked_of(request, *turns, turn);
    if (!asked) {
        co_return problem(asked.error());
    }
    auto rendered = control.render(caller_of(request), asked->spec);
    if (!rendered) {
        co_return problem(rendered.error());
    }
    if (estimate) {
        Json start = co_await control.start_estimate(asked->spec);
        if (!start.is_null()) {
            (*rendered)["start_estimate"] = std::move(start);
        }
    }
    if (asked->sweep) {
        Json sweep = Json::object();
        sweep["size"] = asked->sweep->points.size();
        sweep["parameters"] = asked->sweep->points.front().parameters;
        (*rendered)["sweep"] = std::move(sweep);  // this is the first of them
        rendered->erase("render_hash");
    }
    HttpResponse response = json_response(dump_json(*rendered));
    if (const auto hash = rendered->find("render_hash"); hash != rendered->end()) {
        response.headers.emplace_back("ETag", "\"" + hash->get<std::string>() + "\"");
    }
    co_return response;
}

Task<HttpResponse> list_jobs(Control& control, HttpRequest request) {
    auto query = job_query(request);
    if (!query) {
        co_return problem(query.error());
    }
    auto page = co_await control.list(caller_of(request), std::move(*query));
    if (!page) {
        co_return problem(page.error());
    }
    // Weak: the same page may go out as gzip.
    const std::string tag = entity_tag(*page);
    HttpResponse response = json_response(std::move(*page));
    response.cache_control = "private, no-cache";
    if (tag_matches(request.header("if-none-match"), tag)) {
        response.status = 304;
        response.body.clear();
    }
    response.headers.emplace_back("ETag", "W/" + tag);
    response.headers.emplace_back("Vary", "Authorization, Cookie");
    co_return response;
}

std::optional<HttpResponse> show_now(Control& control, const HttpRequest& request) {
    if (!request.query.empty()) {
        QueryReader in{request.query};
        return problem(*in.finish());
    }
    auto job = control.show_now(caller_of(request), request.param());
    if (!job) {
        return problem(job.error());
    }
    if (!*job) {
        return std::nullopt;
    }
    return json_response(std::move(*job));
}

Task<HttpResponse> show(Control& control, HttpRequest request) {
    std::string id{request.param()};
    auto job = co_await control.show(caller_of(request), std::move(id));
    if (!job) {
        co_return problem(job.error());
    }
    co_return json_response(std::move(*job));
}

Task<HttpResponse> cancel(Control& control, HttpRequest request) {
    std::string id{request.param()};
    auto job = co_await control.commands().cancel(caller_of(request), std::move(id));
    co_return json_or_storing_problem(std::move(job));
}

HttpResponse command_response(SubmitResult<CommandDone> done) {
    if (!done) {
        return problem(done.error(), submit_status(done.error()));
    }
    std::string& text = done->job_json;
    if (done->already && text.ends_with('}')) {
        text.insert(text.size() - 1, R"(,"already_done":true)");
    }
    HttpResponse response = json_response(std::move(text));
    if (done->already) {
        response.headers.emplace_back("Idempotency-Replayed", "true");
    }
    return response;
}

Task<HttpResponse> restart(Control& control, HttpRequest request) {
    auto key = idempotency_key_of(request);
    if (!key) {
        co_return problem(key.error());
    }
    std::string id{request.param()};
    auto done =
        co_await control.commands().restart(caller_of(request), std::move(id), std::move(*key));
    co_return command_response(std::move(done));
}

Task<HttpResponse> checkpoint(Control& control, HttpRequest request) {
    auto key = idempotency_key_of(request);
    if (!key) {
        co_return problem(key.error());
    }
    std::string id{request.param()};
    auto done =
        co_await control.commands().checkpoint(caller_of(request), std::move(id), std::move(*key));
    co_return command_response(std::move(done));
}

Task<HttpResponse> cancel_sweep(Control& control, HttpRequest request) {
    std::string id{request.param()};
    auto count = co_await control.commands().cancel_sweep(caller_of(request), std::move(id));
    co_return json_or_storing_problem(std::move(count));
}

Task<HttpResponse> spec(Control& control, HttpRequest request) {
    std::string id{request.param()};
    auto text = co_await control.spec(caller_of(request), std::move(id));
    co_return json_or_problem(std::move(text));
}

Task<HttpResponse> script(Control& control, HttpRequest request) {
    const Caller caller = caller_of(request);
    std::string id{request.param()};
    auto text = co_await control.script(caller, std::move(id));
    co_return text ? text_response(std::move(*text)) : problem(text.error());
}

// A coroutine that outlives its lambda keeps only its parameters: the lambdas here are no
// coroutines, they call one.
using JobCall = Task<HttpResponse> (*)(Control&, HttpRequest);
SlowHandler waiting_for_job(Control& control, JobCall call) {
    return [&control, call](HttpRequest request) { return call(control, std::move(request)); };
}

ParameterDoc replayed_header() {
    return {"Idempotency-Replayed",
            "string",
            "It had been done before, under this Idempotency-Key; otherwise absent.",
            {"true"}};
}

ParameterDoc command_key_header() {
    return {"Idempotency-Key", "string",
            "1..255 visible ASCII characters. Under the same key it is done once: a repetition "
            "changes nothing and has already_done in its answer and the header "
            "Idempotency-Replayed, also when the job is over. A key that was used for the other "
            "command of the job: 422. The newest 32 keys of a job are kept; 409 when more than 8 "
            "join one that is on its way."};
}

}  // namespace

Caller caller_of(const HttpRequest& request) {
    Caller caller;
    caller.user = request.principal.user;
    caller.admin = rules(request.principal);
    caller.may_write = request.principal.role != Role::viewer;
    caller.reads_all = request.principal.role != Role::user;
    return caller;
}

HttpResponse json_or_problem(Result<std::string> text) {
    return text ? json_response(std::move(*text)) : problem(text.error());
}

HttpResponse json_or_storing_problem(Result<std::string> text) {
    return text ? json_response(std::move(*text))
                : problem(text.error(), storing_status_of(text.error().code));
}

RouteParts submit_job_route(const RouteContext& context) {
    Control& control = context.control;
    RouteParts route;
    route.handler = SlowHandler{[&control, turns = context.sweeps](HttpRequest request) {
        return submit(control, turns, std::move(request));
    }};
    route.summary =
        "Submit a job; it is on disk before the answer. 429: the user has, submits or stores as "
        "much as one user may; detail names the bound.";
    route.headers = {
        {"Idempotency-Key", "string",
         "1..255 visible ASCII characters. The same key with the same body gives the first answer "
         "again, of a sweep that of its oldest job that is there; with another body 422, and so "
         "for 90 days once the job was removed; while the first is in flight 409."},
        {"If-Match", "string", "\"<render_hash>\": submit exactly what was rendered, or 412."},
        {"Lockstep-Signature", "string",
         "Where whoami says identity lockstep-exec: 32 hexadecimal characters, a space and a munge "
         "credential by which the user signs this body and the options given to Slurm. "
         "Without it 403."}};
    route.answer_headers = {{"Location", "string", "Path of the job, or of the first of a sweep."},
                            replayed_header()};
    return route;
}

RouteParts render_job_route(const RouteContext& context) {
    Control& control = context.control;
    RouteParts route;
    route.handler = SlowHandler{[&control, turns = context.sweeps](HttpRequest request) {
        return render(control, turns, std::move(request));
    }};
    route.summary = "Show what a job would run, without submitting it.";
    route.query = {{"estimate", "boolean",
                    "Also asks the scheduler when it would start: start_estimate. false if not "
                    "given, because each question costs the scheduler a plan."}};
    route.answer_headers = {
        {"ETag", "string", "\"<render_hash>\", for If-Match of the submission; not of a sweep."}};
    return route;
}

RouteParts list_jobs_route(const RouteContext& context) {
    Control& control = context.control;
    RouteParts route;
    route.handler = waiting_for_job(control, list_jobs);
    route.summary = "List jobs, newest first.";
    route.query = {
        {"state", "string", "Only jobs in this state, or in one of these: running,queued."},
        {"q", "string",
         "Only jobs in whose id, name, user, framework, labels, as name:value, or cause each of "
         "these words occurs, in upper or lower case. An answer ends after 20,000 jobs "
         "that were looked at, also with fewer items than `limit`: go on while there is "
         "a next_cursor."},
        {"user", "string", "Only this user's."},
        {"name", "string", "Only jobs of this name."},
        {"label", "string", "Only jobs with this label, as name:value."},
        {"sweep", "string", "Only the jobs of this sweep: the id of its first job."},
        {"limit", "integer", "Items in one answer, 1..1000; 50 if not given."},
        {"cursor", "string", "next_cursor of the answer before."},
        {"fields", "string",
         "Of each job only these members, as id,name,state; all if not given."}};
    route.headers = {
        {"If-None-Match", "string", "ETag of an answer before: 304 if nothing has changed."}};
    route.answer_headers = {{"ETag", "string", "Of this answer, for If-None-Match."}};
    return route;
}

RouteParts get_job_route(const RouteContext& context) {
    Control& control = context.control;
    RouteParts route;
    route.handler =
        TryHandler{[&control](const HttpRequest& request) { return show_now(control, request); },
                   waiting_for_job(control, show)};
    route.summary = "Show one job.";
    return route;
}

RouteParts get_job_spec_route(const RouteContext& context) {
    Control& control = context.control;
    RouteParts route;
    route.handler = waiting_for_job(control, spec);
    route.summary =
        "The job's specification as stored; absent fields have their defaults. Values of its "
        "environment are masked for anyone but the owner.";
    return route;
}

RouteParts get_job_script_route(const RouteContext& context) {
    Control& control = context.control;
    RouteParts route;
    route.handler = waiting_for_job(control, script);
    route.summary =
        "The batch script of the newest attempt as it was submitted; 404 with the local scheduler, "
        "which uses none; 503 while it is not written.";
    return route;
}

RouteParts cancel_job_route(const RouteContext& context) {
    RouteParts route;
    route.handler = waiting_for_job(context.control, cancel);
    route.summary = "Cancel a job; repeating the request is not an error.";
    return route;
}

RouteParts restart_job_route(const RouteContext& context) {
    RouteParts route;
    route.handler = waiting_for_job(context.control, restart);
    route.summary =
        "Stop a job's ranks and start them again from the newest checkpoint, in the same "
        "allocation. 409: nothing is running, or its ranks have failed and the job is ending.";
    route.headers = {command_key_header()};
    route.answer_headers = {replayed_header()};
    return route;
}

RouteParts checkpoint_job_route(const RouteContext& context) {
    RouteParts route;
    route.handler = waiting_for_job(context.control, checkpoint);
    route.summary =
        "Send the ranks the signal at which they write a checkpoint. 409: nothing is running, or "
        "some rank, which is named, has no handler for the signal and would be killed by it; the "
        "signal is then sent to no rank.";
    route.headers = {command_key_header()};
    route.answer_headers = {replayed_header()};
    return route;
}

RouteParts cancel_sweep_route(const RouteContext& context) {
    RouteParts route;
    route.handler = waiting_for_job(context.control, cancel_sweep);
    route.summary = "Cancel every unfinished job of a sweep; id may be that of any of its jobs.";
    return route;
}

}  // namespace lockstep
