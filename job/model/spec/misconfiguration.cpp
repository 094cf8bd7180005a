#include "job/model/spec/misconfiguration.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace lockstep {
namespace {

// Paddle writes the first where nothing has started it in parallel, the second where a model is
// wrapped all the same.
constexpr std::array<std::string_view, 3> kAloneTexts{
    "not a parallel execution environment",
    "not a parallel environment",
    "return to single-card operation",
};

bool has_text(std::string_view line, std::string_view text) {
    return line.find(text) != std::string_view::npos;
}

}  // namespace

std::optional<std::string> trains_alone(std::string_view line) {
    const auto found = std::find_if(kAloneTexts.begin(), kAloneTexts.end(),
                                    [&](std::string_view text) { return has_text(line, text); });
    if (found != kAloneTexts.end()) {
        return "ranks train by themselves, not together: one has printed \"" + std::string{*found} +
               "\"";
    }
    // "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/1": the first of one.
    const auto member = line.find("MEMBER: 1/1");
    if (member != std::string_view::npos && has_text(line, "GLOBAL_RANK: ") &&
        (member + 11 == line.size() || line[member + 11] < '0' || line[member + 11] > '9')) {
        return std::string{
            "ranks train by themselves, not together: one has printed "
            "\"MEMBER: 1/1\""};
    }
    return std::nullopt;
}

std::optional<std::int32_t> printed_world(std::string_view line) {
    constexpr std::string_view kBefore = "start data reader (trainers_num: ";
    const auto at = line.find(kBefore);
    std::int32_t out = 0;
    if (at == std::string_view::npos ||
        std::from_chars(line.data() + at + kBefore.size(), line.data() + line.size(), out).ec !=
            std::errc{}) {
        return std::nullopt;
    }
    return out;
}

std::optional<std::string> wrong_world(std::int32_t said, std::int32_t expected) {
    if (said < 1 || said == expected) {
        return std::nullopt;
    }
    if (expected == 1) {
        const std::string ranks = std::to_string(said) + " ranks";
        return "the script starts " + ranks + " itself, of which the job knows one: ask for " +
               ranks + " (lockstep run -n " + std::to_string(said) +
               " --launch node) to see each of them";
    }
    const std::string of = " of an expected " + std::to_string(expected);
    return said == 1 ? "ranks train by themselves, not together: one has a world size 1" + of
                     : "a rank has a world size " + std::to_string(said) + of;
}

}  // namespace lockstep
