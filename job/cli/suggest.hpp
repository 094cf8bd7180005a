// What somebody who has mistyped a word has probably meant. Pure; any thread.
#pragma once

#include "job/base/json.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

// The word that is nearest to `typed` by letters left out, added, changed or swapped, in any case;
// "" if none is near: a third of the letters may differ, or one word is the other's beginning.
std::string nearest(std::string_view typed, const std::vector<std::string>& words);

// Whether the pointer names a field that the specification does not have, in an object of which it
// knows the fields.
bool is_unknown_field(const std::string& pointer);
// ", did you mean nodes?" or the list of what there is, for an unknown field or a word that is none
// of the specification's; "" when there is nothing to say. `value`: what the document has there, or
// nullptr.
std::string suggestion(const FieldError& field, const Json* value);

}  // namespace lockstep::cli
