#include "scheduler-integration/slurm/rest_text.hpp"

#include "job/base/text.hpp"
#include "scheduler-integration/slurm/json_parts.hpp"
#include "scheduler-integration/slurm/slurm_json.hpp"

#include <algorithm>
#include <array>
#include <ctime>

namespace lockstep::rest {
namespace {

using json_fields::at;
using json_fields::member;
using json_fields::number_of;
using json_fields::text_of;

// Members that grow with the job and that are not used; a row's `environment` may hold secrets.
constexpr std::array<std::string_view, 6> kUnreadOfRest{
    "job_resources", "gres_detail", "environment", "script", "steps", "tres"};

std::string its_token(std::string_view user) {
    return "the Slurm token of " + printable(user);
}

std::string utc(std::int64_t seconds) {
    const std::time_t time = seconds;
    std::tm parts{};
    std::array<char, 32> text{};
    if (::gmtime_r(&time, &parts) == nullptr ||
        std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) {
        return std::to_string(seconds);
    }
    return text.data();
}

Result<std::string> base64url(std::string_view text) {
    std::string plain{text};
    std::replace(plain.begin(), plain.end(), '-', '+');
    std::replace(plain.begin(), plain.end(), '_', '/');
    plain.append((4 - plain.size() % 4) % 4, '=');
    return base64_decode(plain);
}

bool is_token_text(std::string_view token) {
    return !token.empty() && token.size() <= 16'384 &&
           std::all_of(token.begin(), token.end(), [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                      c == '-' || c == '_' || c == '.' || c == '=';
           });
}

// The document without its one long array.
struct Complaints {
    std::vector<std::string> texts;
    std::vector<SlurmError> errors;

    bool empty() const { return texts.empty(); }
    bool have(SlurmError error) const {
        return std::find(errors.begin(), errors.end(), error) != errors.end();
    }
};
Result<Complaints> complaints_of(const json_parts::Parts& parts) {
    const auto frame = parse_json(parts.frame);
    LOCKSTEP_TRY(frame);
    const Json* const errors = member(*frame, "errors");
    return Complaints{json_fields::messages(errors), json_fields::errors_of(errors)};
}

Complaints complaints_in(const std::string& body) {
    const auto parts = json_parts::take_apart(body, "jobs", kUnreadOfRest);
    return parts ? complaints_of(*parts).value_or(Complaints{}) : Complaints{};
}

std::string joined(const std::vector<std::string>& texts) {
    std::string out;
    for (const std::string& text : texts) {
        out += (out.empty() ? "" : "; ") + text;
    }
    return out;
}

// Text that is no JSON: the first line of it.
std::string plain_text(const ClientResponse& response) {
    const std::string_view body = response.body;
    std::string line = printable(trim(body.substr(0, std::min<std::size_t>(body.find('\n'), 200))));
    return "HTTP " + std::to_string(response.status) +
           (line.empty() || line.front() == '{' || line.front() == '<' ? "" : ": " + line);
}

}  // namespace

Result<TokenClaims> read_token(std::string_view token) {
    const auto parts = split(token, '.');
    if (!is_token_text(token) || parts.size() != 3 || parts[0].empty() || parts[1].empty()) {
        return fail(Errc::invalid, "not a JSON Web Token");
    }
    const auto text = base64url(parts[1]);
    if (!text) {
        return fail(Errc::invalid, "not a JSON Web Token: its claims are not base64url");
    }
    const auto claims = parse_json(*text);
    if (!claims || !claims->is_object()) {
        return fail(Errc::invalid, "not a JSON Web Token: its claims are not JSON");
    }
    const auto time = [&](const char* key) -> std::optional<std::int64_t> {
        const Json* value = member(*claims, key);
        if (value == nullptr || !value->is_number()) {
            return std::nullopt;
        }
        const double seconds = value->get<double>();  // NumericDate may have a fraction
        return seconds >= 0 && seconds < 1e12 ? std::optional{static_cast<std::int64_t>(seconds)}
                                              : std::nullopt;
    };
    TokenClaims out;
    out.expires = time("exp");
    out.issued = time("iat");
    out.user = printable(text_of(member(*claims, "sun")));
    return out;
}

std::optional<Error> token_problem(std::string_view token, std::string_view user,
                                   std::int64_t now) {
    if (token.empty()) {
        return Error{Errc::denied, "there is no Slurm token of " + printable(user) +
                                       ": the user has to hand one in (scontrol token)"};
    }
    const auto claims = read_token(token);
    if (!claims) {
        return Error{Errc::denied, its_token(user) + " is " + claims.error().message};
    }
    if (!claims->user.empty() && claims->user != user) {
        return Error{Errc::denied, its_token(user) + " is made out to " + claims->user};
    }
    if (claims->expires && *claims->expires <= now) {
        return Error{Errc::denied, its_token(user) + " has expired (" + utc(*claims->expires) +
                                       "): the user has to provide a new one (scontrol token)"};
    }
    return std::nullopt;
}

Error query_failure(std::string_view what, const ClientResponse& response, std::string_view user) {
    if (response.status == 401 || response.status == 403) {
        return Error{Errc::denied, "slurmrestd does not take " + its_token(user) + " (" +
                                       plain_text(response) + ")"};
    }
    const Complaints said = complaints_in(response.body);
    if (said.empty()) {
        return Error{Errc::unavailable, "slurmrestd: " + plain_text(response)}.in(what);
    }
    Errc code = Errc::unavailable;
    if (said.have(SlurmError::no_such_job)) {
        code = Errc::not_found;
    } else if (said.have(SlurmError::denied) || said.have(SlurmError::unauthenticated)) {
        code = Errc::denied;
    } else if (said.have(SlurmError::already_over)) {
        code = Errc::conflict;
    }
    // All that 22.05 says when slurmctld does not take the token (seen live).
    const bool unsaid = said.have(SlurmError::unspecified);
    return Error{code, "Slurm: " + joined(said.texts) +
                           (unsaid ? " (maybe it does not take " + its_token(user) + ")" : "")}
        .in(what);
}

Result<std::vector<Json>> elements_of(const char* name, const ClientResponse& response,
                                      std::string_view user) {
    if (response.status != 200) {
        return fail(query_failure(name, response, user));
    }
    auto parts = json_parts::take_apart(response.body, name, kUnreadOfRest);
    if (!parts) {
        return fail(std::move(parts).error().in(name));
    }
    const auto said = complaints_of(*parts);
    if (!said) {
        return fail(Error{said.error()}.in(name));
    }
    const bool nothing = said->have(SlurmError::nothing_found);
    if (!said->empty() && !nothing) {
        return fail(query_failure(name, response, user));
    }
    if (!parts->found && !nothing) {
        return fail(Errc::invalid, std::string{"slurmrestd's answer has no "} + name);
    }
    std::vector<Json> out;
    for (const std::string& element : parts->elements) {
        auto parsed = parse_json(element);
        if (!parsed) {
            return fail(std::move(parsed).error().in(name));
        }
        out.push_back(std::move(*parsed));
    }
    return out;
}

Result<Json> document_of(std::string_view what, const ClientResponse& response,
                         std::string_view user) {
    if (response.status != 200) {
        return fail(query_failure(what, response, user));
    }
    auto document = parse_json(response.body);
    if (!document) {
        return fail(std::move(document).error().in("slurmrestd's answer").in(what));
    }
    if (!json_fields::messages(member(*document, "errors")).empty()) {
        return fail(query_failure(what, response, user));
    }
    return document;
}

SubmitReply submit_reply(const ClientResponse& response, std::string_view user) {
    using Kind = SubmitReply::Kind;
    const int status = response.status;
    const auto document = parse_json(response.body);
    SubmitReply reply;
    if (document) {
        const auto outer = number_of(member(*document, "job_id"));
        const auto inner = number_of(at(*document, {"result", "job_id"}));
        const std::int64_t id = std::max(outer.value_or(0), inner.value_or(0));
        const bool agree = outer.value_or(0) == 0 || inner.value_or(0) == 0 || *outer == *inner;
        if (id > 0 && id <= 0xffff'ffff && agree) {
            // Errors beside it say why the job waits ("Required node not available"): sbatch has
            // the same answer from slurmctld and takes it for success.
            reply.kind = Kind::accepted;
            reply.id = id;
            return reply;
        }
        if (id != 0) {
            reply.message = "slurmrestd's answer has no number of a job that can be one";
            return reply;  // ambiguous
        }
    }
    const auto errors =
        document ? json_fields::messages(member(*document, "errors")) : std::vector<std::string>{};
    reply.message = errors.empty() ? "slurmrestd: " + plain_text(response) : joined(errors);
    if (status == 401 || status == 403) {
        reply.kind = Kind::not_submitted;
        reply.message =
            "slurmrestd does not take " + its_token(user) + " (" + plain_text(response) + ")";
    } else if (status >= 400 && status < 500) {
        // slurmrestd itself could not read the request: slurmctld never saw it. 404: this version
        // of the interface is gone; 408, 429: a proxy's patience.
        reply.kind =
            status == 404 || status == 408 || status == 429 ? Kind::not_submitted : Kind::rejected;
    } else if (!errors.empty()) {
        reply.kind = classify_submit_error(reply.message);
    } else if (status == 200) {
        reply.message = document ? "slurmrestd's answer has no number of a job"
                                 : "slurmrestd's answer is not JSON: " + document.error().message;
    }
    return reply;  // ambiguous, unless said otherwise
}

Result<PingAnswer> parse_ping_answer(const ClientResponse& response, std::string_view user) {
    const auto document = document_of("ping", response, user);
    LOCKSTEP_TRY(document);
    PingAnswer out;
    out.meta = json_fields::meta_of(*document);
    const Json* pings = member(*document, "pings");
    if (pings == nullptr || !pings->is_array()) {
        return fail(Errc::invalid, "slurmrestd's answer has no pings");
    }
    for (const Json& one : *pings) {
        // `ping` to v0.0.38, `pinged` from v0.0.39, `responding` from v0.0.42 on.
        const Json* responding = member(one, "responding");
        const bool up =
            text_of(member(one, "ping")) == "UP" || text_of(member(one, "pinged")) == "UP" ||
            (responding != nullptr && responding->is_boolean() && responding->get<bool>());
        if (out.controllers.size() < 16) {
            out.controllers.push_back({printable(text_of(member(one, "hostname"))), up});
        }
    }
    return out;
}

Result<JobDetail> parse_job_detail(const ClientResponse& response, std::string_view user) {
    const auto records = elements_of("jobs", response, user);
    LOCKSTEP_TRY(records);
    if (records->empty()) {
        return fail(Errc::not_found, "Slurm knows no such job");
    }
    JobDetail out;
    auto job = slurm_job_from_json(records->back());
    if (!job) {
        return fail(std::move(job).error().in("slurmrestd's job"));
    }
    out.job = std::move(*job);
    out.preempted = number_of(member(records->back(), "preempt_time")).value_or(0) > 0;
    return out;
}

}  // namespace lockstep::rest
