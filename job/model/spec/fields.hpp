// One list of fields per message or event serves both directions: a function template
// `fields(visit, m)` names each member once; FieldWriter makes JSON of it, FieldTaker reads it
// back. Internal to job/model. Any thread.
#pragma once

#include "job/base/json.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace lockstep {

// One list of fields per message serves both directions: FieldWriter puts them, FieldTaker takes
// them.
class FieldWriter {
  public:
    Json json = Json::object();
    template <class T>
    void operator()(const char* key, const T& value) {
        json[key] = value;
    }
    // Left out when it is empty.
    void optional(const char* key, const std::string& value) {
        if (!value.empty()) {
            json[key] = value;
        }
    }
    // Left out when it is empty.
    template <class T>
    void optional(const char* key, const std::vector<T>& value) {
        if (!value.empty()) {
            json[key] = value;
        }
    }
    // Left out when it is null.
    void optional(const char* key, const Json& value) {
        if (!value.is_null()) {
            json[key] = value;
        }
    }
    // Left out when it is 0.
    void optional(const char* key, bool value) {
        if (value) {
            (*this)(key, value);
        }
    }
    void optional(const char* key, std::int64_t value) {
        if (value != 0) {
            json[key] = value;
        }
    }
    // Left out when it is below 0: there is none.
    template <class T>
    void number_or_none(const char* key, T value) {
        if (value >= 0) {
            json[key] = value;
        }
    }
};

class FieldTaker {
  public:
    FieldTaker(const Json& json, std::vector<FieldError>& errors) : in_(json, "", errors) {}
    void operator()(const char* key, bool& value) {
        require(key);
        in_.boolean(key, value);
    }
    void operator()(const char* key, std::int32_t& value) {
        require(key);
        in_.integer(key, value, INT32_MIN, INT32_MAX);
    }
    void operator()(const char* key, std::int64_t& value) {
        require(key);
        in_.integer(key, value, INT64_MIN, INT64_MAX);
    }
    void operator()(const char* key, std::uint64_t& value) {
        require(key);
        std::int64_t number = 0;
        in_.integer(key, number, 0, INT64_MAX);
        value = static_cast<std::uint64_t>(number);
    }
    void operator()(const char* key, std::string& value) {
        require(key);
        in_.string(key, value, limits::kAgentFrameBytes);
    }
    // By its word: parse_word() beside the enum.
    template <class E>
        requires std::is_enum_v<E>
    void operator()(const char* key, E& value) {
        std::string word;
        (*this)(key, word);
        parse_word(word, value);
    }
    // Newer than the first version of what is read: may be absent, stays empty then.
    void optional(const char* key, std::string& value) {
        in_.string(key, value, limits::kAgentFrameBytes);
    }
    void optional(const char* key, std::vector<std::string>& value) {
        in_.strings(key, value, limits::kRanks, limits::kAgentFrameBytes);
    }
    // Ports, or nodes of an allocation.
    void optional(const char* key, std::vector<std::int32_t>& value) {
        const Json* list = in_.raw(key);
        if (list == nullptr) {
            return;
        }
        const auto is_small = [](const Json& item) {
            return item.is_number_integer() && item.get<std::int64_t>() >= 0 &&
                   item.get<std::int64_t>() <= 65'535;
        };
        if (!list->is_array() || list->size() > static_cast<std::size_t>(limits::kRanks) ||
            !std::all_of(list->begin(), list->end(), is_small)) {
            in_.error(key, "must be an array of numbers from 0 to 65535");
            return;
        }
        value = list->get<std::vector<std::int32_t>>();
    }
    // Absent: as it is, below 0.
    template <class T>
    void number_or_none(const char* key, T& value) {
        std::int64_t number = value;
        in_.integer(key, number, 0, std::numeric_limits<T>::max());
        value = static_cast<T>(number);
    }
    void optional(const char* key, Json& value) {
        if (const Json* raw = in_.raw(key)) {
            value = *raw;
        }
    }
    void optional(const char* key, bool& value) { in_.boolean(key, value); }
    void optional(const char* key, std::int64_t& value) {
        in_.integer(key, value, INT64_MIN, INT64_MAX);
    }
    void operator()(const char* key, std::vector<std::string>& value) {
        require(key);
        in_.strings(key, value, limits::kRanks, limits::kAgentFrameBytes);
    }
    void operator()(const char* key, Json& value) {
        require(key);
        if (const Json* raw = in_.raw(key)) {
            value = *raw;
        }
    }

  private:
    void require(const char* key) {
        if (!in_.has(key)) {
            in_.error(key, "missing");
        }
    }
    ObjectReader in_;
};

}  // namespace lockstep
