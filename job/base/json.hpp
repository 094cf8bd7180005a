// JSON at the edges: parse with limits, read typed fields with the path of what is wrong.
// Inside the program values are structs; raw JSON is never passed inward. Any thread.
#pragma once

#include "job/base/result.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Objects keep the order they were written in.
using Json = nlohmann::ordered_json;

// Parses one document. invalid: not JSON (with the byte), deeper than limits::kJsonDepth, more than
// limits::kJsonNodes values, a repeated key, a number outside int64/double. Never throws and never
// recurses deeper than the limit.
Result<Json> parse_json(std::string_view text);
// The same; what is no JSON also says where, for those who show the place.
struct JsonProblem {
    std::size_t byte = 0;   // from 1, where the parser stopped; 0: JSON, but not within the limits
    bool bad_utf8 = false;  // bytes there are not UTF-8
};
Result<Json> parse_json(std::string_view text, JsonProblem& problem);
// Compact text; invalid UTF-8 is replaced, never thrown about.
std::string dump_json(const Json& value);
std::string dump_json_pretty(const Json& value);

// Reads the fields of one object and collects every mistake instead of stopping at the first:
//   ObjectReader in{json, "/resources", errors};
//   in.integer("nodes", nodes, 1, limits::kNodes);
//   in.finish();                      // every member that was not read is an unknown field
// A field that is absent leaves the target as it is. Pointers are RFC 6901.
class ObjectReader {
  public:
    ObjectReader(const Json& object, std::string pointer, std::vector<FieldError>& errors);

    bool has(std::string_view key);
    const Json* raw(std::string_view key);  // marks it known; nullptr if absent or no object
    void boolean(std::string_view key, bool& target);
    void integer(std::string_view key, std::int32_t& target, std::int64_t min, std::int64_t max);
    void integer(std::string_view key, std::int64_t& target, std::int64_t min, std::int64_t max);
    void number(std::string_view key, double& target, double min, double max);
    // UTF-8 without NUL; at most `max_bytes`.
    void string(std::string_view key, std::string& target, std::size_t max_bytes);
    void strings(std::string_view key, std::vector<std::string>& target, std::size_t max_items,
                 std::size_t max_bytes);
    // One of the words; `target` becomes its index.
    void word(std::string_view key, std::size_t& target,
              const std::vector<std::string_view>& words);

    void error(std::string_view key, std::string message);
    std::string pointer(std::string_view key) const;
    // Adds "unknown field" for every key that was not asked for, with those that were.
    void finish();

  private:
    template <class T>
    void integer_as(std::string_view key, T& target, std::int64_t min, std::int64_t max);

    const Json& object_;
    std::string pointer_;
    std::vector<FieldError>& errors_;
    std::set<std::string, std::less<>> known_;
};

// `~` and `/` escaped as RFC 6901 asks.
std::string pointer_token(std::string_view key);
// One invalid Error with all fields; its message names the first, with an empty pointer "the
// document".
Error field_errors(std::vector<FieldError> fields);

}  // namespace lockstep
