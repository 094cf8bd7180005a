// Reads the query parameters a route declares and collects every mistake, as ObjectReader does for
// JSON: an unknown, repeated or malformed parameter is an error that names it as "?name".
//   QueryReader in{request.query};
//   in.integer("limit", limit, 1, limits::kPage);
//   if (const auto error = in.finish()) { return problem(*error); }
// Pure; any thread; not longer than the query it reads.
#pragma once

#include "daemon/http/base/message.hpp"
#include "job/base/result.hpp"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class QueryReader {
  public:
    explicit QueryReader(const Query& query) : query_(query) {}

    // A parameter that is absent leaves the target as it is.
    void integer(std::string_view name, std::int64_t& target, std::int64_t min, std::int64_t max);
    void number(std::string_view name, std::optional<double>& target);
    void text(std::string_view name, std::string& target, std::size_t max_bytes);
    // May be given more than once.
    void texts(std::string_view name, std::vector<std::string>& target, std::size_t max_items,
               std::size_t max_bytes);
    // "true", "1" or nothing after the name; "false" or "0".
    void boolean(std::string_view name, bool& target);
    void error(std::string_view name, std::string message);
    bool has(std::string_view name) const;

    // Unknown parameters become errors; nothing when all was well.
    std::optional<Error> finish();

  private:
    const std::string* value(std::string_view name);

    const Query& query_;
    std::set<std::string_view> known_;
    std::vector<FieldError> errors_;
};

}  // namespace lockstep
