#include "daemon/control/base/json_members.hpp"

#include <algorithm>
#include <cstddef>

namespace lockstep {
namespace {

// Behind the string that begins at `at` with its quote.
std::size_t behind_string(std::string_view text, std::size_t at) {
    for (++at; at < text.size() && text[at] != '"'; ++at) {
        at += text[at] == '\\' ? 1 : 0;
    }
    return at + 1;
}

// The comma or bracket behind the value that begins at `at`.
std::size_t behind_value(std::string_view text, std::size_t at) {
    std::size_t depth = 0;
    while (at < text.size()) {
        const char c = text[at];
        if (c == '"') {
            at = behind_string(text, at);
            continue;
        }
        if (c == '{' || c == '[') {
            ++depth;
        } else if (depth == 0 && (c == ',' || c == '}' || c == ']')) {
            break;
        } else if (c == '}' || c == ']') {
            --depth;
        }
        ++at;
    }
    return at;
}

}  // namespace

std::string json_members(std::string_view object, const std::vector<std::string>& names) {
    std::string out = "{";
    std::size_t at = 1;
    while (at < object.size() && object[at] == '"') {
        const std::size_t colon = behind_string(object, at);
        const std::string_view name = object.substr(at + 1, colon - at - 2);
        const std::size_t end = std::min(behind_value(object, colon + 1), object.size());
        if (std::find(names.begin(), names.end(), name) != names.end()) {
            out += out.size() > 1 ? "," : "";
            out += object.substr(at, end - at);
        }
        at = end + 1;
    }
    return out + "}";
}

}  // namespace lockstep
