#include "job/model/spec/text_pattern.hpp"

#include <re2/re2.h>

namespace lockstep {

Result<TextPattern> TextPattern::parse(const std::string& expression) {
    auto pattern = std::make_shared<const re2::RE2>(expression, re2::RE2::Quiet);
    if (!pattern->ok()) {
        return fail(Errc::invalid, pattern->error());
    }
    return TextPattern{std::move(pattern)};
}

bool TextPattern::is_in(std::string_view text) const {
    return re2::RE2::PartialMatch(re2::StringPiece(text.data(), text.size()), *pattern_);
}

}  // namespace lockstep
