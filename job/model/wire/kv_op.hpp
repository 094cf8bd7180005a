// The operations of the key-value store that the ranks of a generation share: what they are called
// between rank and agent and between agent and daemon, once. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep::wire {

enum class KvOp : std::uint8_t {
    set,
    multi_set,
    get,
    multi_get,
    wait,
    add,
    cas,
    erase,
    barrier,
    unknown,  // a word of a newer version, or none: refused where it is executed
};

// In the order of the enumerators.
inline constexpr std::array<std::string_view, 10> kKvOpWords{
    "set", "multi_set", "get", "multi_get", "wait", "add", "cas", "delete", "barrier", ""};
static_assert(kKvOpWords.size() == static_cast<std::size_t>(KvOp::unknown) + 1);

constexpr std::string_view to_string(KvOp op) {
    return kKvOpWords[static_cast<std::size_t>(op)];
}
// Any other word is unknown. For the visitors of wire_fields.hpp.
constexpr void parse_word(std::string_view word, KvOp& op) {
    op = KvOp::unknown;
    for (std::size_t i = 0; i < kKvOpWords.size(); ++i) {
        if (kKvOpWords[i] == word) {
            op = static_cast<KvOp>(i);
        }
    }
}
constexpr KvOp kv_op_of(std::string_view word) {
    KvOp op{};
    parse_word(word, op);
    return op;
}

}  // namespace lockstep::wire
