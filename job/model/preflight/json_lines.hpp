// What a test program of the pre-flight says: a line of JSON for each thing that happened. It may
// have been killed in the middle, so a last line without its end is none. Pure; any thread.
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"

#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// `read(line, errors)` of each whole line; invalid: what is no JSON, or the first line's errors.
template <class Read>
Status each_json_line(std::string_view lines, Read&& read) {
    for (auto end = lines.find('\n'); end != std::string_view::npos; end = lines.find('\n')) {
        const auto line = parse_json(lines.substr(0, end));
        lines.remove_prefix(end + 1);
        if (!line) {
            return fail(Errc::invalid, "no JSON: " + line.error().message);
        }
        std::vector<FieldError> errors;
        read(*line, errors);
        if (!errors.empty()) {
            return fail(field_errors(std::move(errors)));
        }
    }
    return {};
}

}  // namespace lockstep
