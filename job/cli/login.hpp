// lockstep login: shows a person the daemon's certificate once, then keeps address, fingerprint and
// token, or forgets them. Blocks; the main thread.
#pragma once

#include "job/base/result.hpp"
#include "job/cli/access.hpp"
#include "job/cli/options.hpp"

#include <functional>
#include <ostream>
#include <string>

namespace lockstep::cli {

// Who is asked.
struct Dialog {
    // Whether the answer is yes; invalid when there is no terminal to ask on.
    std::function<Result<bool>(const std::string& question)> confirm;
    // A line that is not shown while it is typed.
    std::function<Result<std::string>(const std::string& prompt)> secret;
};
// The terminal of standard input; without one the secret is its first line and nothing is
// confirmed.
Dialog terminal_dialog(std::ostream& err);

// The daemon's certificate is one that --fingerprint names, that the system's authorities vouch
// for, or that the person confirms; the token is one that the daemon takes. Only then both are
// kept: in the configuration file and a token file beside it, each 0600. With --forget it removes
// both if they are of this daemon, and asks nobody.
Exit log_in(const Options& options, const Dialog& dialog, std::ostream& out, std::ostream& err);

}  // namespace lockstep::cli
