// Reads answers of the API without trusting their shape: a field that is missing or of another type
// reads as absent. Pure; any thread.
#pragma once

#include "job/base/json.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::cli {

// The member, or a null value.
const Json& at(const Json& object, std::string_view key);
// "" when absent or no string; foreign text, made fit for one line.
std::string text_at(const Json& object, std::string_view key);
// A number, or one of the strings "nan", "inf", "-inf".
std::optional<double> number_at(const Json& object, std::string_view key);
std::optional<std::int64_t> integer_at(const Json& object, std::string_view key);
// The array's items; an empty array when absent.
const Json& items_at(const Json& object, std::string_view key);
// The integer as text, "-" when absent.
std::string integer_text(const Json& object, std::string_view key);
// RFC 3339 in UTC to milliseconds since the epoch.
std::optional<std::int64_t> time_at(const Json& object, std::string_view key);
// Of such a text itself.
std::optional<std::int64_t> time_of(const std::string& text);

}  // namespace lockstep::cli
