// What a TCPStore holds and what it answers: keys, queues, who waits for what. Given a connection's
// query, appends the replies to the connections they are for. No I/O, no clock; one thread. A
// fresh one per generation. Semantics: TCPStoreLibUvBackend.cpp of torch; where a revision of torch
// closes the connection (GET of a missing key before libuv), this answers as the newer ones do.
#pragma once

#include "job/agent/torch_store/tcp_store_wire.hpp"
#include "job/base/limits.hpp"
#include "job/base/result.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep {

// The caps of one store; only tests have smaller ones.
struct TcpStoreCaps {
    std::size_t keys = limits::kStoreKeys;
    std::size_t bytes = limits::kStoreBytes;
    std::size_t transit_bytes = limits::kStoreTransitBytes;
    std::size_t reply_bytes = limits::kStoreQueryBytes;
    std::size_t connections = limits::kStoreConnections;
};

// What the store of a world of so many ranks may hold, and those caps in all.
constexpr std::size_t store_bytes(std::int32_t world_size) {
    const auto ranks = static_cast<std::size_t>(std::clamp(world_size, 1, limits::kRanks));
    return std::min(limits::kStoreBytes,
                    limits::kStoreQueryBytes + ranks * limits::kStoreValueBytes);
}
constexpr TcpStoreCaps store_caps(std::int32_t world_size) {
    const auto ranks = static_cast<std::size_t>(std::clamp(world_size, 1, limits::kRanks));
    TcpStoreCaps out;
    out.bytes = store_bytes(world_size);
    out.transit_bytes =
        std::min(limits::kStoreTransitBytes, (ranks + 1) * limits::kStoreQueryBytes);
    return out;
}

class TcpStoreState {
  public:
    // A small number; it may be used again after forget().
    using Id = std::size_t;
    // Where replies go.
    class Replies {
      public:
        // What is not sent yet to that connection; the reply is appended.
        virtual std::string& to(Id id) = 0;

      protected:
        ~Replies() = default;
    };

    explicit TcpStoreState(TcpStoreCaps caps = {}) : caps_(caps) {}
    TcpStoreState(const TcpStoreState&) = delete;
    TcpStoreState& operator=(const TcpStoreState&) = delete;

    // An error: the protocol has no reply for it, the connection is to be closed. Errors:
    // invalid (ADD to what is not a number), exhausted (a cap; of MULTI_SET the first keys are
    // set).
    Status apply(Id id, const StoreQuery& query, Replies& replies);
    // The connection is closed: it waits for and watches nothing any more.
    void forget(Id id);

    std::size_t keys() const { return present_; }
    std::size_t bytes() const { return bytes_; }

  private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const {
            return std::hash<std::string_view>{}(text);
        }
    };
    struct Waiter {
        Id id;
        std::uint64_t ticket;  // not the connection's any more: it has given up
    };
    // A key that exists, or that somebody waits for or watches.
    struct Slot {
        std::string value;
        bool present = false;
        std::size_t interest = 0;  // waits and watches that point here
        std::size_t given_up = 0;  // of the waiters
        std::vector<Waiter> waiters;
        std::vector<Id> watchers;
    };
    using Slots = std::unordered_map<std::string, Slot, Hash, std::equal_to<>>;
    using Entry = Slots::value_type;  // stays where it is
    // What one connection waits for; ticket 0: nothing.
    struct Wait {
        std::uint64_t ticket = 0;
        std::size_t missing = 0;
        std::vector<Entry*> entries;
    };

    Status set(std::string_view key, std::string_view value, Replies& replies);
    Status compare_set(Id id, const StoreQuery& query, Replies& replies);
    Status add(Id id, const StoreQuery& query, Replies& replies);
    Status append(std::string_view key, std::string_view value, Replies& replies);
    Status multi_get(Id id, const StoreQuery& query, Replies& replies);
    Status list_keys(Id id, Replies& replies);
    Status wait(Id id, const StoreQuery& query, Replies& replies);
    Status barrier(Id id, const StoreQuery& query, Replies& replies);
    Status watch(Id id, std::string_view key, Replies& replies);
    Status queue_push(const StoreQuery& query, Replies& replies);
    void queue_pop(Id id, std::string_view key, Replies& replies);
    std::size_t queue_length(std::string_view key) const;
    std::int64_t remove(std::string_view key, Replies& replies);

    const std::string& value_of(std::string_view key) const;
    Result<std::int64_t> number_of(std::string_view key) const;
    bool ready(std::string_view key) const;
    Status store(std::string_view key, std::string value, Replies& replies, bool wakes = true);
    Status room_for(std::size_t bytes, std::size_t keys) const;
    Entry& entry_of(std::string_view key);
    void drop_if_unused(Entry& entry);
    void await(Id id, std::string_view key);
    void end_wait(Id id, bool given_up);
    void wake(Slot& slot, Replies& replies, bool one);
    void tell_watchers(const Entry& entry, std::uint8_t what, std::string_view before,
                       std::string_view after, Replies& replies) const;

    TcpStoreCaps caps_;
    Slots slots_;
    std::size_t present_ = 0;
    std::size_t bytes_ = 0;  // of everything that is held, with what each thing costs
    std::unordered_map<std::string, std::deque<std::string>, Hash, std::equal_to<>> queues_;
    std::vector<Wait> waits_;  // by connection
    std::unordered_map<Id, std::vector<Entry*>> watches_;
    std::uint64_t next_ticket_ = 1;
    std::vector<Waiter> woken_;  // scratch
};

}  // namespace lockstep
