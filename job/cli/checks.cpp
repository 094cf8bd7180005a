#include "job/cli/checks.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/cli/suggest.hpp"
#include "job/cli/terminal.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

namespace lockstep::cli {
namespace {

constexpr std::size_t kShownValue = 64;

std::string short_number(double value) {
    std::array<char, 32> text{};
    const int length = std::snprintf(text.data(), text.size(), "%g", value);
    return {text.data(), static_cast<std::size_t>(std::max(length, 0))};
}

std::string not_this(const std::string& value) {
    return ", not " + (value.empty() ? "\"\"" : one_line(value.substr(0, kShownValue)));
}

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
    return {[least, most](const std::string& value) -> std::string {
                const auto number = to_int(value);
                return number && *number >= least && *number <= most
                           ? ""
                           : "must be a whole number from " + std::to_string(least) + " to " +
                                 std::to_string(most) + not_this(value);
            },
            ""};
}

CLI::Validator decimal_number(double least, double most) {
    return {[least, most](const std::string& value) -> std::string {
                const auto number = to_double(value);
                return number && *number >= least && *number <= most  // nan is neither
                           ? ""
                           : "must be a number from " + short_number(least) + " to " +
                                 short_number(most) + not_this(value);
            },
            ""};
}

CLI::Validator one_of(std::vector<std::string> words) {
    return {[words = std::move(words)](const std::string& value) -> std::string {
                if (std::find(words.begin(), words.end(), value) != words.end()) {
                    return "";
                }
                std::string all;
                for (const std::string& word : words) {
                    all += (all.empty() ? "" : ", ") + word;
                }
                const std::string near = nearest(value, words);
                return (value.empty() ? "\"\"" : one_line(value.substr(0, kShownValue))) +
                       " is none of " + all + (near.empty() ? "" : "; did you mean " + near + "?");
            },
            ""};
}

CLI::Validator not_empty() {
    return {[](const std::string& value) -> std::string {
                return value.empty() ? "must not be empty" : "";
            },
            ""};
}

CLI::Validator visible_key() {
    return {[](const std::string& value) -> std::string {
                const bool visible = std::all_of(value.begin(), value.end(),
                                                 [](char c) { return c > ' ' && c <= '~'; });
                return visible && value.size() <= limits::kIdempotencyKeyBytes
                           ? ""
                           : "must be 1.." + std::to_string(limits::kIdempotencyKeyBytes) +
                                 " visible ASCII characters";
            },
            ""};
}

}  // namespace lockstep::cli
