#include "scheduler-integration/slurm/slurm_rest.hpp"

#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/rest_job.hpp"
#include "scheduler-integration/slurm/slurm_json.hpp"

#include <algorithm>

namespace lockstep {
namespace {

// A job that does not exist: queried to see whether accounting answers.
constexpr std::string_view kNobodysJob = "lockstep-asks-whether-accounting-answers";

SubmitReply not_submitted(std::string message) {
    SubmitReply reply;
    reply.kind = SubmitReply::Kind::not_submitted;
    reply.message = std::move(message);
    return reply;
}

// This version of the interface, or its part for accounting, is not there. A job that is not there
// is told in JSON.
bool is_no_route(const ClientResponse& response) {
    return response.status == 404 && !trim(response.body).starts_with('{');
}

bool is_unreserved(char c) {  // RFC 3986 §2.3
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

std::string percent(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (is_unreserved(c)) {
            out += c;
        } else {
            const auto byte = static_cast<unsigned char>(c);
            constexpr std::string_view kHex = "0123456789ABCDEF";
            out += {'%', kHex[byte >> 4U], kHex[byte & 15U]};
        }
    }
    return out;
}

}  // namespace

SlurmRest::SlurmRest(net::io_context& io, const Clock& clock, Options options, Called called)
    : clock_(clock),
      options_(std::move(options)),
      called_(std::move(called)),
      http_(io, options_.address, options_.answer_bytes) {}

// One request with the user's token. A token that cannot be good is never sent: denied.
Task<RestAnswer> SlurmRest::ask(Query query, int parser) {
    RestAnswer answer;
    const std::string token = options_.token ? options_.token() : std::string{};
    if (auto problem = rest::token_problem(token, options_.user, now())) {
        answer.response = fail(std::move(*problem));
        co_return answer;
    }
    ClientRequest request;
    request.method = std::move(query.method);
    request.target =
        "/" + query.family + "/" + rest::version_text(parser) + "/" + std::move(query.route);
    request.deadline = query.timeout;
    request.body = std::move(query.body);
    request.headers = {{"X-SLURM-USER-NAME", options_.user},
                       {"X-SLURM-USER-TOKEN", token},
                       {"Accept", "application/json"}};
    if (!request.body.empty()) {
        request.headers.emplace_back("Content-Type", "application/json");
    }
    const auto begun = clock_.steady();
    const bool reads = request.method != "POST";
    answer = co_await http_.request(std::move(request));
    const bool good = answer.response && answer.response->status == 200;
    if (called_) {
        called_(query.label, good, std::chrono::duration<double>(clock_.steady() - begun).count());
    }
    // slurmrestd only says "Unspecified error" of a token that ran out on the way.
    if (!good && answer.sent && reads) {
        if (auto problem = rest::token_problem(token, options_.user, now())) {
            answer.response = fail(std::move(*problem));
        }
    }
    co_return answer;
}

Task<Result<ClientResponse>> SlurmRest::get(std::string route, std::string_view label,
                                            std::chrono::milliseconds timeout) {
    const auto parser = co_await find_parser();
    LOCKSTEP_CO_TRY(parser);
    Query query;
    query.route = std::move(route);
    query.label = label;
    query.timeout = timeout;
    auto answer = co_await ask(std::move(query), *parser);
    if (answer.response && is_no_route(*answer.response)) {
        parser_ = 0;  // another slurmrestd, maybe: looked for anew with the next request
    }
    co_return std::move(answer.response);
}

// The newest version that the server has: it answers 404 for those that it has not.
Task<Result<int>> SlurmRest::find_parser(bool anew) {
    if (parser_ != 0 && !anew) {
        co_return parser_;
    }
    for (int parser = rest::kNewestParser; parser >= rest::kOldestParser; --parser) {
        Query query;
        query.route = "ping";
        query.label = "ping";
        query.timeout = options_.probe_timeout;
        const auto answer = co_await ask(std::move(query), parser);
        if (!answer.response) {
            co_return fail(answer.response.error());
        }
        if (answer.response->status == 401 || answer.response->status == 403) {
            co_return fail(rest::query_failure("ping", *answer.response, options_.user));
        }
        if (!is_no_route(*answer.response)) {
            parser_ = parser;
            co_return parser;
        }
    }
    co_return fail(Errc::invalid, "slurmrestd at " + http_.address().text() +
                                      " has none of the versions " +
                                      rest::version_text(rest::kOldestParser) + " to " +
                                      rest::version_text(rest::kNewestParser));
}

std::int64_t SlurmRest::token_lifetime() const {
    const auto claims = rest::read_token(options_.token ? options_.token() : std::string{});
    if (!claims || !claims->expires) {
        return 0;
    }
    return std::max<std::int64_t>(1, *claims->expires - claims->issued.value_or(now()));
}

// Whether there is accounting to ask: only a clear no counts as one, because what accounting does
// not know is taken for lost.
Task<std::string> SlurmRest::accounting(int parser) {
    Query query;
    query.family = "slurmdb";
    query.route = "jobs?skip_steps=true&job_name=" + std::string{kNobodysJob};
    query.label = "slurmdb/jobs";
    query.timeout = options_.probe_timeout;
    const auto answer = co_await ask(std::move(query), parser);
    co_return answer.response&& is_no_route(*answer.response) ? "accounting_storage/none"
                                                              : "accounting_storage/slurmdbd";
}

Task<Result<SlurmFacts>> SlurmRest::probe() {
    const auto parser = co_await find_parser(true);
    LOCKSTEP_CO_TRY(parser);
    std::string route = "ping";
    const auto answer = co_await get(std::move(route), "ping", options_.probe_timeout);
    LOCKSTEP_CO_TRY(answer);
    const auto ping = rest::parse_ping_answer(*answer, options_.user);
    LOCKSTEP_CO_TRY(ping);
    SlurmFacts facts;
    const auto version = parse_slurm_version(ping->meta.slurm_release);
    if (!version) {
        co_return fail(Error{version.error()}.in("slurmrestd's ping"));
    }
    facts.version = *version;
    facts.config.version = *version;
    facts.config.cluster = ping->meta.cluster;
    for (const ControllerPing& controller : ping->controllers) {
        facts.config.controllers.push_back(controller.host);
    }
    facts.config.auth_type = "auth/jwt";
    const std::int64_t lifetime = std::max(token_lifetime(), longest_lifetime_);
    if (lifetime > 0) {
        facts.config.credential_ttl = lifetime;
    }
    route = "partitions";
    const auto listed = co_await get(std::move(route), "partitions", options_.probe_timeout);
    LOCKSTEP_CO_TRY(listed);
    auto partitions = rest::parse_partitions(*listed, options_.user);
    LOCKSTEP_CO_TRY(partitions);
    facts.partitions = std::move(*partitions);
    if (!rest::tells_default_partition(*parser)) {
        facts.default_untold = facts.partitions.size() > 1;
        for (SlurmPartition& one : facts.partitions) {
            one.is_default = !facts.default_untold;
        }
    }
    const auto& told = ping->meta.accounting_storage;
    if (told && !told->empty()) {
        facts.config.accounting_storage = *told;
    } else {
        facts.config.accounting_storage = co_await accounting(*parser);
    }
    co_return facts;
}

Task<SubmitReply> SlurmRest::submit(std::string path) {
    // The folder may be the job's user's: a link must not lead to a file of ours.
    const auto script = read_plain_file(path, limits::kScriptBytes);
    if (!script) {
        co_return not_submitted(script.error().message);
    }
    const auto parser = co_await find_parser();
    if (!parser) {
        co_return not_submitted(parser.error().message);
    }
    rest::JobSite site;
    site.parser = *parser;
    site.user = options_.user;
    site.home = options_.home;
    site.now = now();
    site.limits = options_.limits;
    auto body = rest::submission(*script, site);
    if (!body) {
        SubmitReply reply = not_submitted(body.error().message);
        reply.kind = SubmitReply::Kind::rejected;  // the same script says the same next time
        co_return reply;
    }
    longest_lifetime_ = std::max(longest_lifetime_, token_lifetime());
    Query query;
    query.method = "POST";
    query.route = "job/submit";
    query.label = "job/submit";
    query.body = std::move(*body);
    query.timeout = options_.submit_timeout;
    const auto answer = co_await ask(std::move(query), *parser);
    if (!answer.response) {
        SubmitReply reply = not_submitted(answer.response.error().message);
        reply.kind = answer.sent ? SubmitReply::Kind::ambiguous : reply.kind;
        co_return reply;
    }
    if (is_no_route(*answer.response)) {
        parser_ = 0;
    }
    SubmitReply reply = rest::submit_reply(*answer.response, options_.user);
    // "Unspecified error" is a site's refusal, and what slurmrestd says of a token that slurmctld
    // does not take: whether it takes this one another question tells.
    if (reply.kind == SubmitReply::Kind::denied) {
        std::string route = "partitions";
        const auto taken = co_await get(std::move(route), "partitions", options_.probe_timeout);
        if (!taken || taken->status != 200) {
            reply.kind = SubmitReply::Kind::ambiguous;
        }
    }
    co_return reply;
}

Task<Result<JobTable>> SlurmRest::jobs() {
    std::string route = "jobs";
    const auto answer = co_await get(std::move(route), "jobs", options_.query_timeout);
    LOCKSTEP_CO_TRY(answer);
    if (answer->status != 200) {
        co_return fail(rest::query_failure("jobs", *answer, options_.user));
    }
    auto parsed = parse_slurm_jobs_json(answer->body);
    LOCKSTEP_CO_TRY(parsed);
    JobTable table;
    table.malformed = parsed->malformed;
    for (SlurmJob& job : parsed->jobs) {
        if (job.user == options_.user) {
            table.jobs.push_back(std::move(job));
        }
    }
    co_return table;
}

Task<Result<JobTable>> SlurmRest::history(std::string job_name, std::int64_t since) {
    const auto parser = co_await find_parser();
    LOCKSTEP_CO_TRY(parser);
    Query query;
    query.family = "slurmdb";
    query.route = "jobs?skip_steps=true&job_name=" + percent(job_name);
    if (*parser >= 40) {  // those before want local time as text, in a zone that nobody tells
        query.route += "&users=" + percent(options_.user) +
                       "&start_time=" + std::to_string(std::max<std::int64_t>(0, since));
    }
    query.label = "slurmdb/jobs";
    query.timeout = options_.query_timeout;
    const auto answer = co_await ask(std::move(query), *parser);
    if (!answer.response) {
        co_return fail(answer.response.error());
    }
    co_return rest::parse_history(*answer.response, options_.user, since);
}

Task<Status> SlurmRest::cancel(std::int64_t id, std::string name) {
    const auto parser = co_await find_parser();
    LOCKSTEP_CO_TRY(parser);
    const std::string route = "job/" + std::to_string(id);
    std::string target = route;
    const auto answer = co_await get(std::move(target), "job", options_.query_timeout);
    LOCKSTEP_CO_TRY(answer);
    const auto detail = rest::parse_job_detail(*answer, options_.user);
    if (!detail) {
        const bool gone = detail.error().code == Errc::not_found;
        co_return gone ? Status{} : fail(detail.error());
    }
    if (detail->job.name != name || detail->job.user != options_.user ||
        detail->job.verdict().terminal) {
        co_return Status{};
    }
    Query query;
    query.method = "DELETE";
    query.route = route;
    query.label = "job";
    query.timeout = options_.query_timeout;
    const auto ended = co_await ask(std::move(query), *parser);
    if (!ended.response) {
        co_return fail(ended.response.error());
    }
    const auto document = rest::document_of("cancel", *ended.response, options_.user);
    const bool over = !document && (document.error().code == Errc::not_found ||
                                    document.error().code == Errc::conflict);
    co_return document || over ? Status{} : fail(document.error());
}

Task<Result<SlurmJobDetail>> SlurmRest::detail(std::int64_t id, std::string name) {
    std::string route = "job/" + std::to_string(id);
    const auto answer = co_await get(std::move(route), "job", options_.query_timeout);
    LOCKSTEP_CO_TRY(answer);
    const auto detail = rest::parse_job_detail(*answer, options_.user);
    LOCKSTEP_CO_TRY(detail);
    if (detail->job.name != name) {
        co_return fail(Errc::not_found, "the number is another job's");
    }
    co_return SlurmJobDetail{detail->preempted, detail->job.restarts, detail->job.exit_code,
                             detail->job.signal};
}

Task<Status> SlurmRest::ping() {
    std::string route = "ping";
    const auto answer = co_await get(std::move(route), "ping", options_.query_timeout);
    LOCKSTEP_CO_TRY(answer);
    const auto ping = rest::parse_ping_answer(*answer, options_.user);
    LOCKSTEP_CO_TRY(ping);
    const bool up = std::any_of(ping->controllers.begin(), ping->controllers.end(),
                                [](const ControllerPing& one) { return one.up; });
    if (!up) {
        co_return fail(Errc::unavailable, "slurmctld does not answer");
    }
    co_return Status{};
}

Task<Result<NodeTable>> SlurmRest::nodes() {
    std::string route = "nodes";
    const auto answer = co_await get(std::move(route), "nodes", options_.query_timeout);
    LOCKSTEP_CO_TRY(answer);
    co_return rest::parse_nodes(*answer, options_.user);
}

}  // namespace lockstep
