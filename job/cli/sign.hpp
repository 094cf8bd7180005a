// A user's signature of a job, where the daemon asks for it: a credential of munge's, made by
// munge's own program as whoever runs this one (job/model/spec/signed_statement.hpp). Blocks; the
// main thread.
#pragma once

#include "job/cli/context.hpp"

#include <string>

namespace lockstep::cli {

// The headers of a submission of `body`: with the signature, if whoami says that the daemon wants
// one and the body is one that it would take. unavailable: no munge, or it does not work.
Result<Headers> signature_headers(Context& context, const std::string& body);

}  // namespace lockstep::cli
