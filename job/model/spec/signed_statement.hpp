// What a user signs where jobs run in their users' names because they were signed, and not because
// lockstepd says so (scheduler-integration/exec): one text that fixes the specification, byte for
// byte, and everything Slurm is asked for. What a compromised lockstepd is left to choose is which
// nodes an attempt goes without, and a time limit where the user states none.
//
//   lockstep-exec-1
//   audience <cluster>                        whom it is for
//   nonce <32 hexadecimal characters>         no two are the same
//   document <SHA-256 of the request's body>
//   jobs <first>-<last> <ranks per node> <name>      of a sweep as many as differ in what follows
//   sbatch <option>[=<value>]                 job/model/spec/sbatch_options.hpp
//   srun <option>[=<value>]
//
// Pure; any thread.
#pragma once

#include "job/base/result.hpp"
#include "job/model/spec/sweep.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kSignatureHeader = "Lockstep-Signature";
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kCredentialBytes = 4095;

// What a daemon says that wants signatures.
struct Signing {
    std::string audience;
    bool gpus_as_gres = false;
};

// Of the jobs in their order. exhausted: it would be larger than limits::kStatementBytes.
Result<std::string> make_statement(const Signing& signing, std::string_view nonce,
                                   std::string_view document, const std::vector<JobSpec>& jobs);
// The text that munge is given: it says who has signed the statement.
std::string signed_payload(std::string_view statement);

// The header's value: nonce and munge's credential, with a blank between. invalid: it is none.
struct Signature {
    std::string nonce;
    std::string credential;
};
Result<Signature> read_signature(std::string_view header);

// The specification of a job as it was signed. denied: the document is another one than the digest
// says; invalid: it does not parse, or has no such job.
Result<JobSpec> read_signed_document(std::string_view document, std::string_view digest,
                                     std::size_t point);

}  // namespace lockstep
