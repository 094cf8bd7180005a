#include "job/agent/preflight/helper_end.hpp"

#include "job/base/text.hpp"

#include <algorithm>

namespace lockstep {

std::string helper_end(const ProcessResult& result, const std::string& stage,
                       const HelperLimits& limits) {
    const std::string in = stage.empty() ? "" : ", in: " + stage;
    if (result.abandoned || result.timed_out) {
        return "not over within " + std::to_string(limits.time.count()) + " s" + in +
               (result.abandoned ? ", and its kill did not end it: the driver hangs" : "");
    }
    if (result.overflowed) {
        return "it says too much" + in;
    }
    // The program's own words are the last that it says.
    const std::string said = printable(trim(result.err));
    const std::string tail = said.substr(said.size() - std::min(said.size(), limits.words));
    return (result.signal ? "signal " + std::to_string(*result.signal)
                          : "exit code " + std::to_string(result.exit_status.value_or(-1))) +
           in + (tail.empty() ? "" : ": " + tail);
}

std::string helper_unstarted(const Error& error, const HelperLimits& limits) {
    return error.code == Errc::not_found ? "" : printable(error.message).substr(0, limits.words);
}

}  // namespace lockstep
