#include "job/model/spec/progress_bar.hpp"

#include "job/base/text.hpp"

#include <re2/re2.h>

namespace lockstep {
namespace {

// "| 5/25 [": done, total.
std::optional<ProgressBar> counts_of(std::string_view line) {
    static const re2::RE2 kCounts{R"(^[^|]*\|[^|]*\|\s*(\d+)/(\d+)\s*\[)", re2::RE2::Latin1};
    re2::StringPiece done;
    re2::StringPiece total;
    if (!re2::RE2::PartialMatch(re2::StringPiece{line.data(), line.size()}, kCounts, &done,
                                &total)) {
        return std::nullopt;
    }
    const auto first = to_int({done.data(), done.size()});
    const auto second = to_int({total.data(), total.size()});
    return first && second ? std::optional{ProgressBar{*first, *second}} : std::nullopt;
}

}  // namespace

std::optional<ProgressBar> parse_progress_bar(std::string_view line) {
    // Asked of every line: what cannot be one costs next to nothing.
    const auto begin = line.find_first_not_of(' ');
    const auto percent =
        begin == std::string_view::npos ? begin : line.find_first_not_of("0123456789", begin);
    if (percent == std::string_view::npos || percent == begin || percent - begin > 3 ||
        line.substr(percent, 2) != "%|") {
        return std::nullopt;
    }
    return counts_of(line);
}

bool is_lightnings_own_bar(std::string_view line) {
    return line.find("v_num=") != std::string_view::npos && counts_of(line);
}

}  // namespace lockstep
