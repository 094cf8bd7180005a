// The error of a query whose parameter is wrong: 400, with the parameter as the pointer "?name" and
// the detail "name: message". Any thread.
#pragma once

#include "job/base/result.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

inline Error query_error(std::string_view parameter, std::string message) {
    std::vector<FieldError> fields;
    fields.push_back({"?" + std::string{parameter}, message});
    return Error{Errc::invalid, std::string{parameter} + ": " + message, std::move(fields)};
}

}  // namespace lockstep
