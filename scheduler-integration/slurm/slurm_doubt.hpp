// Since when nothing of a try can be on its way any more, for the next daemon: it waits for what is
// left of the credential's lifetime, and not for all of it again after each restart.
//
// The time is the steady clock's, which all processes of one start of a kernel share. The wall time
// of the attempt's events would not do: set ahead by a few minutes between two daemons, as NTP does
// where it had been behind, it makes a request count as expired that slurmctld may still read, and
// its job would be handed in twice. What was written on another machine, before it was started
// anew, or by a process whose clocks were shifted (time_namespaces(7)) counts for nothing, and
// neither does a time ahead of this clock: the wait is then the whole one.
// Pure but for steady_clock_name(); any thread.
#pragma once

#include "job/base/clock.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// Same text, same steady clock. "": not known, and no time of it is to be kept.
std::string steady_clock_name();

struct SlurmDoubt {
    std::string clock;         // steady_clock_name()
    UnixMillis intent_at = 0;  // of the try: a later one has a doubt of its own
    std::chrono::steady_clock::time_point last_try_end;
};

std::string to_text(const SlurmDoubt& doubt);
// What to_text() wrote; nothing of any other text.
std::optional<SlurmDoubt> parse_doubt(std::string_view text);

}  // namespace lockstep
