#include "scheduler-integration/slurm/json_parts.hpp"

#include <algorithm>

namespace lockstep::json_parts {
namespace {

// Walks over values; position_ is always within the text or at its end.
class Walker {
  public:
    explicit Walker(std::string_view text) : text_(text) {}

    void blanks() {
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' ||
                                      text_[at_] == '\t' || text_[at_] == '\r')) {
            ++at_;
        }
    }
    bool done() const { return at_ >= text_.size(); }
    char peek() const { return done() ? '\0' : text_[at_]; }
    bool take(char c) {
        if (peek() != c || done()) {
            return false;
        }
        ++at_;
        return true;
    }
    std::size_t at() const { return at_; }

    // A string with its quotes; false when it does not end.
    bool string() {
        if (!take('"')) {
            return false;
        }
        while (!done()) {
            const char c = text_[at_++];
            if (c == '"') {
                return true;
            }
            if (c == '\\' && !done()) {
                ++at_;
            }
        }
        return false;
    }

    // Any value: to the bracket that closes it, or to the next comma, bracket or blank.
    bool value() {
        if (peek() == '"') {
            return string();
        }
        if (peek() != '{' && peek() != '[') {
            const std::size_t from = at_;
            at_ = std::min(text_.find_first_of(",]} \t\r\n", at_), text_.size());
            return at_ > from;
        }
        std::string open;
        do {
            const char c = peek();
            if (c == '"') {
                if (!string()) {
                    return false;
                }
                continue;
            }
            if (c == '{' || c == '[') {
                open += c;
            } else if (c == '}' || c == ']') {
                if (open.back() != (c == '}' ? '{' : '[')) {
                    return false;
                }
                open.pop_back();
            }
            ++at_;
        } while (!open.empty() && !done());
        return open.empty();
    }

    // Calls each(key without quotes) at the value of every member; `each` walks over the value.
    template <class Each>
    bool members(Each&& each) {
        if (!take('{')) {
            return false;
        }
        blanks();
        if (take('}')) {
            return true;
        }
        while (true) {
            blanks();
            const std::size_t from = at_;
            if (!string()) {
                return false;
            }
            const std::string_view key = text_.substr(from + 1, at_ - from - 2);
            blanks();
            if (!take(':')) {
                return false;
            }
            blanks();
            if (!each(key)) {
                return false;
            }
            blanks();
            if (take('}')) {
                return true;
            }
            if (!take(',')) {
                return false;
            }
        }
    }

    std::string_view slice(std::size_t from) const { return text_.substr(from, at_ - from); }

  private:
    std::string_view text_;
    std::size_t at_ = 0;
};

void append_member(std::string& object, std::string_view key, std::string_view value) {
    object += object.size() > 1 ? "," : "";
    object.append("\"").append(key).append("\":").append(value);
}

// One element at the walker; objects lose their unread members.
bool element(Walker& walker, std::span<const std::string_view> unread, std::string& out) {
    const std::size_t from = walker.at();
    if (walker.peek() != '{') {
        const bool good = walker.value();
        out = walker.slice(from);
        return good;
    }
    out = "{";
    const bool good = walker.members([&](std::string_view key) {
        const std::size_t begin = walker.at();
        if (!walker.value()) {
            return false;
        }
        if (std::find(unread.begin(), unread.end(), key) == unread.end()) {
            append_member(out, key, walker.slice(begin));
        }
        return true;
    });
    out += "}";
    return good;
}

bool elements(Walker& walker, std::span<const std::string_view> unread,
              std::vector<std::string>& out) {
    walker.take('[');
    walker.blanks();
    if (walker.take(']')) {
        return true;
    }
    while (true) {
        walker.blanks();
        if (!element(walker, unread, out.emplace_back())) {
            return false;
        }
        walker.blanks();
        if (walker.take(']')) {
            return true;
        }
        if (!walker.take(',')) {
            return false;
        }
    }
}

}  // namespace

Result<Parts> take_apart(std::string_view text, std::string_view array,
                         std::span<const std::string_view> unread) {
    Parts parts;
    parts.frame = "{";
    Walker walker{text};
    walker.blanks();
    const bool good = walker.members([&](std::string_view key) {
        if (key == array && walker.peek() == '[' && !parts.found) {
            parts.found = true;
            append_member(parts.frame, key, "[]");
            return elements(walker, unread, parts.elements);
        }
        const std::size_t begin = walker.at();
        if (!walker.value()) {
            return false;
        }
        append_member(parts.frame, key, walker.slice(begin));  // twice: refused by the parser
        return true;
    });
    parts.frame += "}";
    walker.blanks();
    if (!good || !walker.done()) {
        return fail(Errc::invalid, "not JSON, or cut off, at byte " + std::to_string(walker.at()));
    }
    return parts;
}

}  // namespace lockstep::json_parts
