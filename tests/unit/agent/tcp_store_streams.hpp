// What torch's clients of several releases send to a TCPStore, byte by byte, for the tests.
// Sources: TCPStore.cpp at the releases named; x86 byte order.
#pragma once

#include "job/agent/torch_store/tcp_store_wire.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::test {

template <class Number>
std::string raw(Number number) {
    std::string out(sizeof(number), '\0');
    std::memcpy(out.data(), &number, sizeof(number));
    return out;
}

inline std::string text(std::string_view bytes) {
    return raw(std::uint64_t{bytes.size()}) + std::string{bytes};
}

inline std::string code(int number) {
    return std::string(1, static_cast<char>(number));
}

inline std::string list(const std::vector<std::string>& keys) {
    std::string out = raw(std::uint64_t{keys.size()});
    for (const auto& key : keys) {
        out += text(key);
    }
    return out;
}

inline std::string validate() {
    return code(0) + raw(kStoreMagic);
}

// torch 2.6: connect (VALIDATE, PING), join (ADD of init/), then what a script may ask. BARRIER and
// LIST_KEYS are of newer revisions, with the same codes before them.
inline std::string new_client() {
    return validate() + code(13) + raw(std::uint32_t{4711}) +    // PING
           code(4) + text("init/") + raw(std::int64_t{1}) +      // ADD
           code(1) + text("/a") + text("one") +                  // SET
           code(2) + text("/a") + text("one") + text("two") +    // COMPARE_SET
           code(6) + list({"/a"}) +                              // WAIT
           code(3) + text("/a") +                                // GET
           code(5) + list({"/a", "/none"}) +                     // CHECK
           code(9) + text("/a") + text("+") +                    // APPEND
           code(11) + raw(std::uint64_t{2}) +                    // MULTI_SET
           text("/b") + text("B") + text("/c") + text("") +      //
           code(10) + list({"/a", "/b", "/c"}) +                 // MULTI_GET
           code(14) + text("/q") + text("job") +                 // QUEUE_PUSH
           code(16) + text("/q") +                               // QUEUE_LEN
           code(15) + text("/q") +                               // QUEUE_POP
           code(7) +                                             // GETNUMKEYS
           code(8) + text("/b") +                                // DELETE_KEY
           code(6) + list({"/never"}) + code(12) +               // CANCEL_WAIT
           code(18) + text("/barrier") + raw(std::int64_t{1}) +  // BARRIER
           code(17);                                             // LIST_KEYS
}

// The replies to new_client() up to LIST_KEYS, whose order is nobody's.
inline std::string new_replies() {
    return raw(std::uint32_t{4711}) + raw(std::int64_t{1}) + text("two") + code(0) + text("two") +
           code(1) + text("two+") + text("B") + text("") + raw(std::int64_t{1}) +
           raw(std::int64_t{1}) + text("job") + raw(std::int64_t{4}) + raw(std::int64_t{1}) +
           code(1) + code(0);
}

// torch 2.1: no VALIDATE.
inline std::string client_of_2_1() {
    return code(3) + text("init/") + raw(std::int64_t{1}) + code(0) + text("/k") + text("v") +
           code(8) + text("/k") + text("w") + code(9) + list({"/k"}) + code(10) +
           raw(std::uint64_t{1}) + text("/m") + text("n") + code(7) + text("/m") + code(5) +
           list({"/x"}) + code(11) + code(6);
}
inline std::string replies_to_2_1() {
    return raw(std::int64_t{1}) + text("vw") + raw(std::int64_t{1}) + code(1) +
           raw(std::int64_t{2});
}

// One revision of main between 2.1 and 2.2: the magic number before every query.
inline std::string guarded_client() {
    const std::string magic = raw(kStoreMagic);
    return magic + code(3) + text("init/") + raw(std::int64_t{1}) + magic + code(0) + text("/k") +
           text("v") + magic + code(2) + text("/k") + magic + code(6);
}
inline std::string guarded_replies() {
    return raw(std::int64_t{1}) + text("v") + raw(std::int64_t{2});
}

}  // namespace lockstep::test
