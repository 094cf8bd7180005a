#include "daemon/http/base/query_reader.hpp"

#include "job/base/json.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <utility>

namespace lockstep {

const std::string* QueryReader::value(std::string_view name) {
    known_.insert(name);
    const std::string* found = nullptr;
    for (const auto& [key, text] : query_) {
        if (key == name) {
            if (found != nullptr) {
                error(name, "is given more than once");
                return nullptr;
            }
            found = &text;
        }
    }
    return found;
}

bool QueryReader::has(std::string_view name) const {
    for (const auto& [key, text] : query_) {
        if (key == name) {
            return true;
        }
    }
    return false;
}

void QueryReader::integer(std::string_view name, std::int64_t& target, std::int64_t min,
                          std::int64_t max) {
    const std::string* text = value(name);
    if (text == nullptr) {
        return;
    }
    const auto number = to_int(*text);
    if (!number || *number < min || *number > max) {
        error(name, "must be an integer " + std::to_string(min) + ".." + std::to_string(max));
        return;
    }
    target = *number;
}

void QueryReader::number(std::string_view name, std::optional<double>& target) {
    const std::string* text = value(name);
    if (text == nullptr) {
        return;
    }
    const auto number = to_double(*text);
    if (!number || !(*number > -1e300 && *number < 1e300)) {
        error(name, "must be a number");
        return;
    }
    target = *number;
}

void QueryReader::text(std::string_view name, std::string& target, std::size_t max_bytes) {
    const std::string* found = value(name);
    if (found == nullptr) {
        return;
    }
    if (found->size() > max_bytes) {
        error(name, "is longer than " + std::to_string(max_bytes) + " bytes");
        return;
    }
    target = *found;
}

void QueryReader::texts(std::string_view name, std::vector<std::string>& target,
                        std::size_t max_items, std::size_t max_bytes) {
    known_.insert(name);
    for (const auto& [key, text] : query_) {
        if (key != name) {
            continue;
        }
        if (target.size() == max_items) {
            error(name, "is given more than " + std::to_string(max_items) + " times");
            return;
        }
        if (text.size() > max_bytes) {
            error(name, "is longer than " + std::to_string(max_bytes) + " bytes");
            return;
        }
        target.push_back(text);
    }
}

void QueryReader::boolean(std::string_view name, bool& target) {
    const std::string* text = value(name);
    if (text == nullptr) {
        return;
    }
    if (*text == "true" || *text == "1" || text->empty()) {
        target = true;
    } else if (*text == "false" || *text == "0") {
        target = false;
    } else {
        error(name, "must be true or false");
    }
}

void QueryReader::error(std::string_view name, std::string message) {
    errors_.push_back({"?" + std::string{name}, std::move(message)});
}

std::optional<Error> QueryReader::finish() {
    for (const auto& [key, text] : query_) {
        if (!known_.contains(key)) {
            const std::string shown = printable(key).substr(0, limits::kTextBytes);
            errors_.push_back({"?" + shown, "unknown parameter"});
        }
    }
    if (errors_.empty()) {
        return std::nullopt;
    }
    return field_errors(std::move(errors_));
}

}  // namespace lockstep
