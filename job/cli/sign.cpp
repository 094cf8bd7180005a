#include "job/cli/sign.hpp"

#include "job/base/ids.hpp"
#include "job/base/text.hpp"
#include "job/cli/child.hpp"
#include "job/cli/cli_limits.hpp"
#include "job/cli/fields.hpp"
#include "job/model/spec/signed_statement.hpp"
#include "job/model/spec/spec_environment.hpp"

#include <chrono>
#include <cstdlib>

namespace lockstep::cli {
namespace {

// What is wrong with the document the daemon says, better than this could.
std::vector<JobSpec> jobs_of(const std::string& body) {
    std::vector<JobSpec> out;
    const auto json = sent_document(body);
    if (json && has_sweep(*json)) {
        auto sweep = parse_sweep(*json);
        for (std::size_t i = 0; sweep && i < sweep->points.size(); ++i) {
            out.push_back(std::move(sweep->points[i].spec));
        }
    } else if (json) {
        if (auto spec = parse_spec(*json)) {
            out.push_back(std::move(*spec));
        }
    }
    return out;
}

// Only root can decode it: neither lockstepd nor anybody who finds it.
Result<std::string> credential_for(const std::string& payload) {
    std::vector<std::string> argv{"munge", "--string=" + payload, "--restrict-uid=0"};
    if (const char* socket = std::getenv("LOCKSTEP_MUNGE_SOCKET")) {
        argv.push_back(std::string{"--socket="} + socket);
    }
    auto out = output_of(argv, "/", limits::kMungePatience);
    if (!out) {
        const bool missing = out.error().code == Errc::not_found;
        return fail(Errc::invalid,
                    missing ? "this cluster wants jobs to be signed, and there is no munge here: "
                              "submit from a login node"
                            : "munge: " + out.error().message);
    }
    return std::string{trim(*out)};
}

}  // namespace

Result<Headers> signature_headers(Context& context, const std::string& body) {
    Headers out;
    const auto who = context.client.get_json("/v1/whoami");
    if (!who || text_at(*who, "identity") != "lockstep-exec") {
        return out;  // no answer, or no signature needed: the next request reports it
    }
    const std::vector<JobSpec> jobs = jobs_of(body);
    if (jobs.empty()) {
        return out;
    }
    const Json& wanted = at(*who, "signing");
    Signing signing;
    signing.audience = text_at(wanted, "audience");
    signing.gpus_as_gres = at(wanted, "gres") == Json(true);
    const std::string nonce = random_secret().substr(0, kNonceBytes);
    const auto statement = make_statement(signing, nonce, body, jobs);
    LOCKSTEP_TRY(statement);
    const auto credential = credential_for(signed_payload(*statement));
    LOCKSTEP_TRY(credential);
    out.emplace_back(kSignatureHeader, nonce + " " + *credential);
    return out;
}

}  // namespace lockstep::cli
