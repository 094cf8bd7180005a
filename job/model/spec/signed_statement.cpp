#include "job/model/spec/signed_statement.hpp"

#include "job/base/digest.hpp"
#include "job/model/limits/model_limits.hpp"
#include "job/model/spec/sbatch_options.hpp"
#include "job/model/spec/spec_environment.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::string_view kKind = "lockstep-exec-1";

void add_options(std::string& out, const char* program, const OptionList& options) {
    for (const auto& [name, value] : options) {
        out += std::string{program} + " " + name + (value.empty() ? "" : "=" + value) + "\n";
    }
}

// Everything of a job's part but which jobs it is of.
std::string part_of(const JobSpec& spec, bool gpus_as_gres) {
    const AttemptRequest request = attempt_request(JobId{std::string{kTemplateJob}}, 1, spec, "");
    const SbatchOptions options = sbatch_options(request, gpus_as_gres);
    std::string out = std::to_string(options.ranks_per_node) + " " + spec.name + "\n";
    add_options(out, "sbatch", options.sbatch);
    add_options(out, "srun", options.srun);
    return out;
}

bool is_hexadecimal(std::string_view text) {
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

Result<std::string> make_statement(const Signing& signing, std::string_view nonce,
                                   std::string_view document, const std::vector<JobSpec>& jobs) {
    std::string out = std::string{kKind} + "\naudience " + signing.audience + "\nnonce " +
                      std::string{nonce} + "\ndocument " + sha256_hex(document) + "\n";
    std::size_t first = 0;
    std::string part;
    for (std::size_t i = 0; i <= jobs.size(); ++i) {
        std::string next = i < jobs.size() ? part_of(jobs[i], signing.gpus_as_gres) : "";
        if (i > 0 && next != part) {
            out += "jobs " + std::to_string(first) + "-" + std::to_string(i - 1) + " " + part;
            first = i;
        }
        part = std::move(next);
        if (out.size() > limits::kStatementBytes) {
            return fail(Errc::exhausted,
                        "its jobs differ too much in what Slurm is asked for to be signed at once");
        }
    }
    return out;
}

std::string signed_payload(std::string_view statement) {
    return std::string{kKind} + " " + sha256_hex(statement);
}

Result<Signature> read_signature(std::string_view header) {
    Signature out;
    const auto blank = header.find(' ');
    out.nonce = std::string{header.substr(0, blank)};
    out.credential = blank == std::string_view::npos ? "" : std::string{header.substr(blank + 1)};
    const bool armoured = out.credential.starts_with("MUNGE:") && out.credential.ends_with(":") &&
                          std::all_of(out.credential.begin(), out.credential.end(), [](char c) {
                              return (c >= '0' && c <= ':') || (c >= 'A' && c <= 'Z') ||
                                     (c >= 'a' && c <= 'z') || c == '+' || c == '/' || c == '=';
                          });
    if (out.nonce.size() != kNonceBytes || !is_hexadecimal(out.nonce) || !armoured ||
        out.credential.size() > kCredentialBytes) {
        return fail(Errc::invalid, std::string{kSignatureHeader} +
                                       ": must be 32 hexadecimal characters, a blank and a "
                                       "credential of munge's");
    }
    return out;
}

Result<JobSpec> read_signed_document(std::string_view document, std::string_view digest,
                                     std::size_t point) {
    if (sha256_hex(document) != digest) {
        return fail(Errc::denied, "lockstepd sends another specification than was signed");
    }
    const auto json = sent_document(document);
    LOCKSTEP_TRY(json);
    if (!has_sweep(*json)) {
        return point == 0 ? parse_spec(*json)
                          : Result<JobSpec>{fail(Errc::invalid, "one job was signed")};
    }
    const auto maker = SweepMaker::begin(*json);
    LOCKSTEP_TRY(maker);
    auto made = maker->point(point);
    LOCKSTEP_TRY(made);
    return std::move(made->spec);
}

}  // namespace lockstep
