// What the parts of tcp_store_state share: the costs of what is held, the form of replies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace lockstep::store_reply {

// What an entry costs beside its bytes: node, slot and allocations, rounded up.
inline constexpr std::size_t kEntryBytes = 192;
inline constexpr std::size_t kWaitBytes = 32;  // a waiter, and the wait's pointer back

// WaitResponseType, CheckResponseType and WatchResponseType of torch.
inline constexpr char kStopWaiting = 0;
inline constexpr char kWaitCancelled = 1;
inline constexpr char kReady = 0;
inline constexpr char kNotReady = 1;
inline constexpr std::uint8_t kUpdated = 0;
inline constexpr std::uint8_t kCreated = 1;
inline constexpr std::uint8_t kDeleted = 2;
inline constexpr std::uint8_t kRegistered = 3;

template <class Number>
void put(std::string& out, Number number) {
    char bytes[sizeof(number)];
    std::memcpy(bytes, &number, sizeof(number));
    out.append(bytes, sizeof(number));
}

inline void put_bytes(std::string& out, std::string_view bytes) {
    put(out, static_cast<std::uint64_t>(bytes.size()));
    out.append(bytes);
}

// Overflow wraps, as torch's does.
inline std::int64_t sum(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

}  // namespace lockstep::store_reply
