#include "job/cli/fields.hpp"

#include "job/base/text.hpp"
#include "job/cli/terminal.hpp"

#include <ctime>

namespace lockstep::cli {

const Json& at(const Json& object, std::string_view key) {
    static const Json kNothing;
    if (!object.is_object()) {
        return kNothing;
    }
    const auto found = object.find(std::string(key));
    return found == object.end() ? kNothing : *found;
}

std::string text_at(const Json& object, std::string_view key) {
    const Json& value = at(object, key);
    return value.is_string() ? one_line(value.get_ref<const std::string&>()) : std::string{};
}

std::optional<double> number_at(const Json& object, std::string_view key) {
    const Json& value = at(object, key);
    if (value.is_number()) {
        return value.get<double>();
    }
    return value.is_string() ? to_double(value.get_ref<const std::string&>()) : std::nullopt;
}

std::optional<std::int64_t> integer_at(const Json& object, std::string_view key) {
    const Json& value = at(object, key);
    if (!value.is_number_integer()) {
        return std::nullopt;
    }
    return value.get<std::int64_t>();
}

const Json& items_at(const Json& object, std::string_view key) {
    static const Json kEmpty = Json::array();
    const Json& value = at(object, key);
    return value.is_array() ? value : kEmpty;
}

std::string integer_text(const Json& object, std::string_view key) {
    const auto value = integer_at(object, key);
    return value ? std::to_string(*value) : "-";
}

std::optional<std::int64_t> time_at(const Json& object, std::string_view key) {
    return time_of(text_at(object, key));
}

std::optional<std::int64_t> time_of(const std::string& text) {
    std::tm parts{};
    const char* rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
    if (rest == nullptr) {
        return std::nullopt;
    }
    std::int64_t millis = static_cast<std::int64_t>(::timegm(&parts)) * 1000;
    if (*rest == '.') {
        std::int64_t unit = 100;
        for (++rest; *rest >= '0' && *rest <= '9'; ++rest, unit /= 10) {
            millis += (*rest - '0') * unit;
        }
    }
    return millis;
}

}  // namespace lockstep::cli
