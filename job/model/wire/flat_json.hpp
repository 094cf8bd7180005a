// Frequent messages without a DOM: FlatTaker parses them in place, TextWriter writes them
// directly. Both visit the same list of fields as FieldTaker
// and FieldWriter (fields.hpp). Internal to job/model. Any thread.
//
// Beside simdjson 3.0.1 (build/bin/bench_parsers): STARTED of 8 ranks in 0.9 us, 0.55 by
// simdjson, 2.6 by nlohmann without reading a field. That is 4 ms at a start of 12,288 agents, for
// which every frame would need 64 bytes behind it, a key that is given twice would be taken, and
// agent and lockstepd had one library more: not taken.
#pragma once

#include "job/base/json.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lockstep {

// One object of JSON whose values are whole numbers, true, false, plain text, or a list of whole
// numbers or of objects without lists. It takes nothing that parse_json() refuses, and not all that
// it takes (no escapes, nothing beyond ASCII, no null, no fraction): on `false` the caller uses
// parse_json(), which also words the error. Views point into what was read.
class FlatObject {
  public:
    enum class Kind : std::uint8_t { text, number, truth, list };
    struct Value {
        std::string_view key;
        std::string_view text;    // also a list's, with its brackets
        std::int64_t number = 0;  // also of a truth: 1 or 0
        Kind kind = Kind::number;
    };

    // All of `text`, and nothing but it.
    bool read(std::string_view text);
    // nullptr: there is no such key. Cheapest in the order of the text.
    const Value* find(std::string_view key) const;

    // The items of a list that read() has seen; `each(item)` returns false to stop: then, or if one
    // is of another kind, false.
    template <class Each>
    static bool objects_of(std::string_view list, Each&& each) {
        FlatObject item;
        Cursor at{list.data() + 1, list.data() + list.size()};
        for (bool more = at.next_item(true); more; more = at.next_item(false)) {
            std::size_t nodes = 0;
            if (!item.take(at, 1, nodes) || !each(static_cast<const FlatObject&>(item))) {
                return false;
            }
        }
        return at.ended;
    }
    template <class Each>
    static bool numbers_of(std::string_view list, Each&& each) {
        Cursor at{list.data() + 1, list.data() + list.size()};
        for (bool more = at.next_item(true); more; more = at.next_item(false)) {
            std::int64_t number = 0;
            if (!at.number(number) || !each(number)) {
                return false;
            }
        }
        return at.ended;
    }

  private:
    static constexpr std::size_t kMost = 24;  // keys; no message has so many
    struct Cursor {
        const char* at;
        const char* end;
        bool ended = false;  // the list's bracket was seen

        bool skip_to(char wanted);  // over white space and over it
        void space();
        bool number(std::int64_t& out);
        bool text(std::string_view& out);
        bool word(std::string_view expected);
        // To the next item of a list, or false; its end sets `ended`.
        bool next_item(bool first);
    };
    bool take(Cursor& at, int depth, std::size_t& nodes);
    bool take_value(Cursor& at, int depth, std::size_t& nodes, Value& out);
    static bool skip_list(Cursor& at, std::size_t& nodes);

    std::array<Value, kMost> values_{};
    std::size_t count_ = 0;
    mutable std::size_t next_ = 0;  // where find() begins
};

// What it cannot take leaves good() false; the target may have been changed by then.
class FlatTaker {
  public:
    explicit FlatTaker(const FlatObject& in) : in_(in) {}
    bool good() const { return good_; }

    void operator()(const char* key, bool& value) { required(flag(key, value)); }
    void operator()(const char* key, std::int32_t& value) {
        required(whole(key, value, INT32_MIN, INT32_MAX));
    }
    void operator()(const char* key, std::int64_t& value) {
        required(whole(key, value, INT64_MIN, INT64_MAX));
    }
    void operator()(const char* key, std::uint64_t& value) {
        std::int64_t number = 0;
        required(whole(key, number, 0, INT64_MAX));
        value = static_cast<std::uint64_t>(number);
    }
    void operator()(const char* key, std::string& value) { required(string(key, value)); }
    // By its word: parse_word() beside the enum.
    template <class E>
        requires std::is_enum_v<E>
    void operator()(const char* key, E& value) {
        std::string word;
        (*this)(key, word);
        parse_word(word, value);
    }
    void optional(const char* key, bool& value) { flag(key, value); }
    void optional(const char* key, std::int64_t& value) { whole(key, value, INT64_MIN, INT64_MAX); }
    void optional(const char* key, std::string& value) { string(key, value); }
    void optional(const char* key, std::vector<std::int32_t>& value);
    template <class T>
    void number_or_none(const char* key, T& value) {
        whole(key, value, 0, std::numeric_limits<T>::max());
    }
    // Whatever else a message has, a document has to be made for.
    template <class T>
    void operator()(const char*, T&) {
        good_ = false;
    }
    template <class T>
    void optional(const char*, T&) {
        good_ = false;
    }

  private:
    void required(bool there) { good_ = good_ && there; }
    // Whether the key is there; of another kind: no good.
    bool flag(const char* key, bool& value);
    bool string(const char* key, std::string& value);
    template <class T>
    bool whole(const char* key, T& value, std::int64_t least, std::int64_t most) {
        const FlatObject::Value* found = in_.find(key);
        if (found == nullptr) {
            return false;
        }
        if (found->kind != FlatObject::Kind::number || found->number < least ||
            found->number > most) {
            good_ = false;
            return false;
        }
        value = static_cast<T>(found->number);
        return true;
    }

    const FlatObject& in_;
    bool good_ = true;
};

// The text that FieldWriter's document would become.
class TextWriter {
  public:
    std::string text{"{"};

    void key(std::string_view name) {
        text += text.back() == '{' ? "\"" : ",\"";
        text += name;
        text += "\":";
    }
    template <class T>
    void operator()(const char* name, const T& value) {
        key(name);
        put(value);
    }
    // Left out when it is empty, null, false or 0.
    void optional(const char* name, const std::string& value) {
        if (!value.empty()) {
            (*this)(name, value);
        }
    }
    template <class T>
    void optional(const char* name, const std::vector<T>& value) {
        if (!value.empty()) {
            (*this)(name, value);
        }
    }
    void optional(const char* name, const Json& value) {
        if (!value.is_null()) {
            (*this)(name, value);
        }
    }
    void optional(const char* name, bool value) {
        if (value) {
            (*this)(name, value);
        }
    }
    void optional(const char* name, std::int64_t value) {
        if (value != 0) {
            (*this)(name, value);
        }
    }
    template <class T>
    void number_or_none(const char* name, T value) {
        if (value >= 0) {
            (*this)(name, value);
        }
    }

    void put(std::string_view value);
    void put(const std::string& value) { put(std::string_view{value}); }
    void put(const char* value) { put(std::string_view{value}); }
    void put(bool value) { text += value ? "true" : "false"; }
    void put(const Json& value) { text += dump_json(value); }
    template <class E>
        requires std::is_enum_v<E>
    void put(E value) {
        put(to_string(value));
    }
    template <class T>
        requires std::is_integral_v<T>
    void put(T value) {
        text += std::to_string(value);
    }
    template <class T>
    void put(const std::vector<T>& list) {
        text += '[';
        for (const T& item : list) {
            text += text.back() == '[' ? "" : ",";
            put(item);
        }
        text += ']';
    }
};

}  // namespace lockstep
