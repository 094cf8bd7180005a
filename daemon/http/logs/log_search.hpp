// Looks for a text in the output of all ranks, the newest part of each first, within a bound of
// bytes and time. Lines that differ only in numbers and addresses are one finding. Blocking on a
// job's folder; one thread.
#pragma once

#include "job/base/clock.hpp"
#include "job/base/json.hpp"
#include "job/base/result.hpp"
#include "job/model/spec/text_pattern.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct LogSearch {
    std::string text;
    std::optional<TextPattern> pattern;  // instead of the text
    std::vector<std::int32_t> ranks;     // ascending
    std::string folder;                  // of the attempt: rank-00000.log
    std::size_t limit = 50;              // findings
    std::size_t bytes = 64U << 20U;      // read at most, of all ranks together
    std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max();
};

// The line without what tells two of the same kind apart: numbers and addresses become #.
std::string folded_line(std::string_view line);

// {items: [{text, count, ranks: "0-3,7", first: {rank, offset, time?}}], ranks, searched_ranks,
// searched_bytes, truncated}: by rank, then by place. `truncated`: something was not looked at, or
// there were more findings.
Json search_logs(const LogSearch& search);

}  // namespace lockstep
