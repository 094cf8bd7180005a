// Cuts a large JSON document into parts that parse_json's limits are made for: the frame, and the
// elements of one array of it. A scan by brackets and strings, not a parser: what it returns is
// still to be parsed, and together that is as strict as parsing the whole. Pure; any thread.
#pragma once

#include "job/base/result.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::json_parts {

struct Parts {
    std::string frame;                  // the document with the array emptied
    std::vector<std::string> elements;  // each without its members in `unread`
    bool found = false;                 // the array is there
};

// `array` is a member of the root object; one that is not an array stays in the frame. The values
// of `unread` members are only matched by their brackets. invalid: no object, brackets that do not
// match, text after the end, the member twice.
Result<Parts> take_apart(std::string_view text, std::string_view array,
                         std::span<const std::string_view> unread);

}  // namespace lockstep::json_parts
