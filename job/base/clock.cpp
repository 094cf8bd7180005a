#include "job/base/clock.hpp"

#include <array>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <limits>
#include <vector>

namespace lockstep {

UnixMillis SystemClock::wall() const {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

std::int64_t SystemClock::wall_us() const {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

std::chrono::steady_clock::time_point SystemClock::steady() const {
    return std::chrono::steady_clock::now();
}

double wall_seconds() {
    return static_cast<double>(SystemClock{}.wall()) / 1000.0;
}

std::string to_rfc3339(UnixMillis time) {
    const std::time_t seconds = static_cast<std::time_t>(time / 1000);
    std::tm parts{};
    gmtime_r(&seconds, &parts);
    std::array<char, 64> text{};
    const int size =
        std::snprintf(text.data(), text.size(), "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ",
                      parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
                      parts.tm_min, parts.tm_sec, static_cast<int>(time % 1000));
    return std::string(text.data(), static_cast<std::size_t>(size));
}

namespace {
constexpr const char* kNoTimeLimit =
    "not a time limit: use minutes, HH:MM:SS, D-HH:MM:SS or units as in 90s, 5m, 1h30m, 2d";

Result<std::int64_t> number(std::string_view text) {
    std::int64_t value = -1;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || ec != std::errc{} || end != text.data() + text.size() || value < 0 ||
        value > 10'000'000) {
        return fail(Errc::invalid, kNoTimeLimit);
    }
    return value;
}

// "1h30m": each unit once, the larger ones first.
Result<std::int64_t> parse_units(std::string_view text) {
    constexpr std::array<std::pair<char, std::int64_t>, 4> kUnits{
        {{'d', 86'400}, {'h', 3'600}, {'m', 60}, {'s', 1}}};
    std::int64_t seconds = 0;
    for (const auto& [unit, size] : kUnits) {
        const auto at = text.find(unit);
        if (at == std::string_view::npos) {
            continue;
        }
        const auto value = number(text.substr(0, at));
        LOCKSTEP_TRY(value);
        seconds += *value * size;
        text.remove_prefix(at + 1);
    }
    return text.empty() ? Result<std::int64_t>{seconds} : fail(Errc::invalid, kNoTimeLimit);
}

Result<std::int64_t> at_least_a_second(std::int64_t seconds) {
    return seconds < 1 ? fail(Errc::invalid, "a time limit must be at least one second")
                       : Result<std::int64_t>{seconds};
}
}  // namespace

Result<std::int64_t> parse_time_limit(std::string_view text) {
    if (!text.empty() && text.find_last_of("dhms") == text.size() - 1) {
        const auto seconds = parse_units(text);
        LOCKSTEP_TRY(seconds);
        return at_least_a_second(*seconds);
    }
    std::int64_t days = 0;
    bool has_days = false;
    if (const auto dash = text.find('-'); dash != std::string_view::npos) {
        const auto value = number(text.substr(0, dash));
        LOCKSTEP_TRY(value);
        days = *value;
        has_days = true;
        text.remove_prefix(dash + 1);
    }
    std::vector<std::int64_t> parts;
    for (;;) {
        const auto colon = text.find(':');
        const auto value = number(text.substr(0, colon));
        LOCKSTEP_TRY(value);
        parts.push_back(*value);
        if (colon == std::string_view::npos) {
            break;
        }
        text.remove_prefix(colon + 1);
    }
    std::int64_t seconds = days * 86'400;
    if (parts.size() > 3) {
        return fail(Errc::invalid, kNoTimeLimit);
    }
    if (has_days) {  // D-H, D-H:M, D-H:M:S
        seconds += parts[0] * 3600 + (parts.size() > 1 ? parts[1] * 60 : 0) +
                   (parts.size() > 2 ? parts[2] : 0);
    } else if (parts.size() == 1) {
        seconds += parts[0] * 60;
    } else if (parts.size() == 2) {
        seconds += parts[0] * 60 + parts[1];
    } else {
        seconds += parts[0] * 3600 + parts[1] * 60 + parts[2];
    }
    return at_least_a_second(seconds);
}

std::string format_time_limit(std::int64_t seconds) {
    std::array<char, 64> text{};
    const long long days = seconds / 86'400;
    const long long rest = seconds % 86'400;
    int size = 0;
    if (days > 0) {
        size = std::snprintf(text.data(), text.size(), "%lld-%02lld:%02lld:%02lld", days,
                             rest / 3600, rest / 60 % 60, rest % 60);
    } else {
        size = std::snprintf(text.data(), text.size(), "%02lld:%02lld:%02lld", rest / 3600,
                             rest / 60 % 60, rest % 60);
    }
    return std::string(text.data(), static_cast<std::size_t>(size));
}

}  // namespace lockstep
