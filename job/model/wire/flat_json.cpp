#include "job/model/wire/flat_json.hpp"

#include "job/base/limits.hpp"

#include <algorithm>

namespace lockstep {
namespace {

bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}
// Needs no escape, and is a character by itself.
bool is_plain(char c) {
    return c >= 0x20 && c <= 0x7E && c != '"' && c != '\\';
}

bool ends_number(char c) {
    return c == ',' || c == ']' || c == '}' || is_space(c);
}

}  // namespace

void FlatObject::Cursor::space() {
    while (at < end && is_space(*at)) {
        ++at;
    }
}

bool FlatObject::Cursor::skip_to(char wanted) {
    space();
    if (at == end || *at != wanted) {
        return false;
    }
    ++at;
    space();
    return true;
}

bool FlatObject::Cursor::number(std::int64_t& out) {
    constexpr std::ptrdiff_t kDigits = 18;  // no overflow; more are parse_json()'s
    const bool negative = at < end && *at == '-';
    const char* const first = negative ? at + 1 : at;
    const char* last = first;
    std::int64_t value = 0;
    for (; last < end && *last >= '0' && *last <= '9' && last - first < kDigits; ++last) {
        value = value * 10 + (*last - '0');
    }
    const bool whole = last == end || ends_number(*last);
    if (last == first || (*first == '0' && last - first > 1) || !whole) {
        return false;
    }
    at = last;
    out = negative ? -value : value;
    return true;
}

bool FlatObject::Cursor::text(std::string_view& out) {
    if (at == end || *at != '"') {
        return false;
    }
    const char* const first = ++at;
    while (at < end && is_plain(*at)) {
        ++at;
    }
    if (at == end || *at != '"') {
        return false;
    }
    out = {first, static_cast<std::size_t>(at - first)};
    ++at;
    return true;
}

bool FlatObject::Cursor::word(std::string_view expected) {
    if (!std::string_view{at, static_cast<std::size_t>(end - at)}.starts_with(expected)) {
        return false;
    }
    at += expected.size();
    return true;
}

bool FlatObject::Cursor::next_item(bool first) {
    space();
    if (skip_to(']')) {
        ended = true;
        return false;
    }
    return first || skip_to(',');
}

bool FlatObject::skip_list(Cursor& at, std::size_t& nodes) {
    ++at.at;  // its bracket
    at.ended = false;
    FlatObject item;
    for (bool more = at.next_item(true); more; more = at.next_item(false)) {
        std::int64_t number = 0;
        const bool good = at.at < at.end && *at.at == '{' ? item.take(at, 1, nodes)
                                                          : ++nodes > 0 && at.number(number);
        if (!good || nodes > limits::kJsonNodes) {
            return false;
        }
    }
    return at.ended;
}

bool FlatObject::take_value(Cursor& at, int depth, std::size_t& nodes, Value& out) {
    if (at.at == at.end || ++nodes > limits::kJsonNodes) {
        return false;
    }
    switch (*at.at) {
        case '"':
            out.kind = Kind::text;
            return at.text(out.text);
        case 't':
        case 'f':
            out.kind = Kind::truth;
            out.number = *at.at == 't' ? 1 : 0;
            return at.word(out.number == 1 ? "true" : "false");
        case '[': {
            out.kind = Kind::list;
            const char* const first = at.at;
            if (depth > 0 || !skip_list(at, nodes)) {
                return false;
            }
            out.text = {first, static_cast<std::size_t>(at.at - first)};
            return true;
        }
        default:
            out.kind = Kind::number;
            return at.number(out.number);
    }
}

bool FlatObject::take(Cursor& at, int depth, std::size_t& nodes) {
    count_ = 0;
    next_ = 0;
    ++nodes;
    if (!at.skip_to('{')) {
        return false;
    }
    if (at.skip_to('}')) {
        return true;
    }
    for (;;) {
        if (count_ == kMost) {
            return false;
        }
        Value& value = values_[count_];
        if (!at.text(value.key) || !at.skip_to(':') || !take_value(at, depth, nodes, value)) {
            return false;
        }
        const auto same = [&](const Value& other) { return other.key == value.key; };
        if (std::any_of(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(count_),
                        same)) {
            return false;  // twice: parse_json() says so
        }
        ++count_;
        if (at.skip_to('}')) {
            return true;
        }
        if (!at.skip_to(',')) {
            return false;
        }
    }
}

bool FlatObject::read(std::string_view text) {
    Cursor at{text.data(), text.data() + text.size()};
    std::size_t nodes = 0;
    return take(at, 0, nodes) && at.at == at.end;
}

const FlatObject::Value* FlatObject::find(std::string_view key) const {
    for (std::size_t i = 0; i < count_; ++i) {
        const std::size_t index = next_ + i < count_ ? next_ + i : next_ + i - count_;
        if (values_[index].key == key) {
            next_ = index + 1 < count_ ? index + 1 : 0;
            return &values_[index];
        }
    }
    return nullptr;
}

bool FlatTaker::flag(const char* key, bool& value) {
    const FlatObject::Value* found = in_.find(key);
    if (found == nullptr || found->kind != FlatObject::Kind::truth) {
        good_ = good_ && found == nullptr;
        return false;
    }
    value = found->number == 1;
    return true;
}

bool FlatTaker::string(const char* key, std::string& value) {
    const FlatObject::Value* found = in_.find(key);
    if (found == nullptr || found->kind != FlatObject::Kind::text ||
        found->text.size() > limits::kAgentFrameBytes) {
        good_ = good_ && found == nullptr;
        return false;
    }
    value = found->text;
    return true;
}

// Ports, or nodes of an allocation: see FieldTaker.
void FlatTaker::optional(const char* key, std::vector<std::int32_t>& value) {
    constexpr std::int64_t kMost = 65'535;
    const FlatObject::Value* found = in_.find(key);
    if (found == nullptr) {
        return;
    }
    std::vector<std::int32_t> list;
    const auto take = [&list](std::int64_t number) {
        list.push_back(static_cast<std::int32_t>(number));
        return number >= 0 && number <= kMost &&
               list.size() <= static_cast<std::size_t>(limits::kRanks);
    };
    if (found->kind != FlatObject::Kind::list || !FlatObject::numbers_of(found->text, take)) {
        good_ = false;
        return;
    }
    value = std::move(list);
}

void TextWriter::put(std::string_view value) {
    if (std::all_of(value.begin(), value.end(), is_plain)) {
        text += '"';
        text += value;
        text += '"';
    } else {
        text += dump_json(Json(value));
    }
}

}  // namespace lockstep
