#include "daemon/control/machine/rank_exit.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/failure.hpp"

#include <algorithm>
#include <cstddef>

namespace lockstep {
namespace {

std::string last_bytes(const std::string& text, std::size_t most) {
    return printable(text.substr(text.size() - std::min(text.size(), most)));
}

}  // namespace

event::RankExited rank_exited(const wire::Exited& exited) {
    event::RankExited out;
    out.generation = exited.generation;
    out.rank = exited.rank;
    out.exit_code = exited.exit_code;
    out.signal = exited.signal;
    out.stopped = exited.stopped;
    out.oom = exited.oom;
    out.launcher = exited.launcher;
    out.at = std::max<UnixMillis>(exited.time, 0);
    out.step = std::max<std::int64_t>(exited.step, -1);
    const auto kind = parse_failure_kind(exited.failure).value_or(FailureKind::own);
    out.failure = kind == FailureKind::own ? "" : std::string{to_string(kind)};
    out.failed_at = std::max<UnixMillis>(exited.failed_at, 0);
    // Of the echoes, which may be all other ranks of a large job, nobody reads so much.
    const std::size_t share = kind == FailureKind::own ? 1 : 4;
    out.log_tail = last_bytes(exited.log_tail, limits::kLogTailBytes / share);
    out.error_type = printable(exited.error_type.substr(0, limits::kTextBytes));
    out.error = printable(exited.error.substr(0, limits::kErrorBytes / share));
    out.traceback = last_bytes(exited.traceback, limits::kTracebackBytes / share);
    return out;
}

}  // namespace lockstep
