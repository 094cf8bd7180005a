// A regular expression (RE2's syntax, time linear in the text) that a person gave. Values; any
// thread.
#pragma once

#include "job/base/result.hpp"

#include <memory>
#include <string>
#include <string_view>

namespace re2 {
class RE2;
}

namespace lockstep {

class TextPattern {
  public:
    // invalid: RE2's own words.
    static Result<TextPattern> parse(const std::string& expression);
    // Whether it fits anywhere in the text.
    bool is_in(std::string_view text) const;

  private:
    explicit TextPattern(std::shared_ptr<const re2::RE2> pattern) : pattern_(std::move(pattern)) {}
    std::shared_ptr<const re2::RE2> pattern_;
};

}  // namespace lockstep
