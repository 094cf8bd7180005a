// A specification on its way to the daemon. Blocks; the main thread.
#pragma once

#include "job/cli/context.hpp"
#include "job/cli/document.hpp"

#include <tl/expected.hpp>

#include <string>

namespace lockstep::cli {

struct NotSubmitted {
    Exit end = Exit::ok;   // how the program ends
    bool refused = false;  // there is no job for certain; else that is not known
};

// Submits it, prints warnings and the id; otherwise what was wrong has been printed. `again`: the
// command that tries again, without the key; "" = there is none to name. An answer that was lost is
// asked for again with the same key.
tl::expected<std::string, NotSubmitted> send_job(Context& context, const Document& document,
                                                 const std::string& again);

// Stays with the jobs of the sweep whose first job it is, one after the other, and shows at the end
// what each has reached. Ends as the first one did that did not succeed.
Exit follow_sweep(Context& context, const std::string& first);

}  // namespace lockstep::cli
