#include "job/cli/times.hpp"

#include "job/base/text.hpp"
#include "job/cli/fields.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <utility>

namespace lockstep::cli {
namespace {

std::string local_text(UnixMillis time, const char* format) {
    const auto seconds = static_cast<std::time_t>(time / 1000);
    std::tm parts{};
    ::localtime_r(&seconds, &parts);
    std::array<char, 64> buffer{};
    return {buffer.data(), std::strftime(buffer.data(), buffer.size(), format, &parts)};
}

}  // namespace

std::string local_time(UnixMillis time) {
    return local_text(time, "%Y-%m-%d %H:%M:%S %Z");
}

std::string shown_time(const Terminal& terminal, const Json& object, std::string_view key) {
    const auto time = time_at(object, key);
    return terminal.interactive && time ? local_time(*time) : text_at(object, key);
}

std::string local_clock(UnixMillis time) {
    return local_text(time, "%H:%M:%S");
}

std::string local_clock_millis(UnixMillis time) {
    const std::string millis = std::to_string(1000 + time % 1000);
    return local_clock(time) + "." + millis.substr(1);
}

Result<UnixMillis> parse_moment(const std::string& text, UnixMillis now) {
    static constexpr std::array<std::pair<char, double>, 4> kUnits{
        {{'s', 1e3}, {'m', 60e3}, {'h', 3600e3}, {'d', 86'400e3}}};
    for (const auto& [unit, millis] : kUnits) {
        const auto number = text.size() > 1 && text.back() == unit
                                ? to_double(std::string_view(text).substr(0, text.size() - 1))
                                : std::nullopt;
        if (number && std::isfinite(*number) && *number >= 0 && *number * millis < 1e15) {
            return now - static_cast<UnixMillis>(*number * millis);
        }
    }
    const bool utc = text.size() == 19 || (text.size() > 19 && text.back() == 'Z');
    if (const auto time = time_of(text); time && utc) {
        return *time;
    }
    return fail(Errc::invalid,
                "give a time in UTC as in 2026-11-22T08:30:00Z, or how long ago as "
                "in 90s, 30m, 2h, 1d; not " +
                    one_line(text));
}

std::string age_text(UnixMillis from, UnixMillis now) {
    const std::int64_t seconds = std::max<std::int64_t>(0, (now - from) / 1000);
    const std::int64_t minutes = seconds / 60;
    const std::int64_t hours = minutes / 60;
    const std::int64_t days = hours / 24;
    const auto with = [](std::int64_t large, char unit, std::int64_t small, char rest) {
        return std::to_string(large) + unit + (small > 0 ? std::to_string(small) + rest : "");
    };
    if (minutes == 0) {
        return std::to_string(seconds) + "s";
    }
    if (hours == 0) {
        return std::to_string(minutes) + "m";
    }
    return days == 0 ? with(hours, 'h', minutes % 60, 'm') : with(days, 'd', hours % 24, 'h');
}

}  // namespace lockstep::cli
