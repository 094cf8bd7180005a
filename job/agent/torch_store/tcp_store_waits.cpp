// Who waits for what, who watches what, and the queues of a TCPStore.
#include "job/agent/torch_store/tcp_store_reply.hpp"
#include "job/agent/torch_store/tcp_store_state.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

using namespace store_reply;

void TcpStoreState::await(Id id, std::string_view key) {
    Entry& entry = entry_of(key);
    Wait& mine = waits_[id];
    entry.second.waiters.push_back({id, mine.ticket});
    ++entry.second.interest;
    ++mine.missing;
    mine.entries.push_back(&entry);
    bytes_ += kWaitBytes;
}

// What the connection waited for is not waited for any more: it came, or it has `given_up`.
void TcpStoreState::end_wait(Id id, bool given_up) {
    if (id >= waits_.size() || waits_[id].ticket == 0) {
        return;
    }
    Wait& mine = waits_[id];
    mine.ticket = 0;
    mine.missing = 0;
    for (Entry* entry : mine.entries) {
        Slot& slot = entry->second;
        --slot.interest;
        bytes_ -= kWaitBytes;
        // Waiters that gave up are taken out when they are the most: then each costs the same.
        if (given_up && ++slot.given_up * 2 > slot.waiters.size()) {
            std::erase_if(slot.waiters,
                          [this](const Waiter& w) { return waits_[w.id].ticket != w.ticket; });
            slot.given_up = 0;
        }
        drop_if_unused(*entry);
    }
    mine.entries.clear();
}

Status TcpStoreState::wait(Id id, const StoreQuery& query, Replies& replies) {
    std::size_t bytes = 0;
    for (const std::string_view key : query.parts) {
        bytes += ready(key) ? 0 : key.size() + kEntryBytes + kWaitBytes;
    }
    if (bytes == 0) {
        replies.to(id).push_back(kStopWaiting);
        return {};
    }
    if (auto room = room_for(bytes, 0); !room) {
        return room;
    }
    end_wait(id, true);
    waits_.resize(std::max(waits_.size(), id + 1));
    waits_[id].ticket = next_ticket_++;
    for (const std::string_view key : query.parts) {
        if (!ready(key)) {
            await(id, key);
        }
    }
    return {};
}

// `one`: the first that waits for nothing else, and those before it.
void TcpStoreState::wake(Slot& slot, Replies& replies, bool one) {
    if (slot.waiters.empty()) {
        return;
    }
    woken_.swap(slot.waiters);
    slot.given_up = 0;
    ++slot.interest;  // it stays until this is done
    auto waiter = woken_.begin();
    for (bool enough = false; waiter != woken_.end() && !enough; ++waiter) {
        if (waits_[waiter->id].ticket != waiter->ticket) {
            continue;
        }
        if (--waits_[waiter->id].missing == 0) {
            replies.to(waiter->id).push_back(kStopWaiting);
            end_wait(waiter->id, false);
            enough = one;
        }
    }
    slot.waiters.assign(waiter, woken_.end());
    woken_.clear();
    --slot.interest;
}

// A key that counts arrivals; it is there for GET and CHECK at once, but nobody is let through.
Status TcpStoreState::barrier(Id id, const StoreQuery& query, Replies& replies) {
    const auto before = number_of(query.parts[0]);
    LOCKSTEP_TRY(before);
    const std::int64_t count = sum(*before, 1);
    const bool all = count >= query.number;
    if (auto room = room_for(kWaitBytes, 0); !room) {
        return room;
    }
    if (auto stored = store(query.parts[0], std::to_string(count), replies, all); !stored) {
        return stored;
    }
    if (all) {
        replies.to(id).push_back(kStopWaiting);
        return {};
    }
    end_wait(id, true);
    waits_.resize(std::max(waits_.size(), id + 1));
    waits_[id].ticket = next_ticket_++;
    await(id, query.parts[0]);
    return {};
}

void TcpStoreState::forget(Id id) {
    end_wait(id, true);
    const auto mine = watches_.find(id);
    if (mine == watches_.end()) {
        return;
    }
    for (Entry* entry : mine->second) {
        std::vector<Id>& watchers = entry->second.watchers;
        watchers.erase(std::find(watchers.begin(), watchers.end(), id));
        --entry->second.interest;
        bytes_ -= kWaitBytes;
        drop_if_unused(*entry);
    }
    watches_.erase(mine);
}

// --- watches, of torch up to 2.0 -----------------------------------------------------------------

Status TcpStoreState::watch(Id id, std::string_view key, Replies& replies) {
    if (auto room = room_for(key.size() + kEntryBytes + kWaitBytes, 0); !room) {
        return room;
    }
    Entry& entry = entry_of(key);
    entry.second.watchers.push_back(id);
    ++entry.second.interest;
    bytes_ += kWaitBytes;
    watches_[id].push_back(&entry);
    put(replies.to(id), kRegistered);
    return {};
}

void TcpStoreState::tell_watchers(const Entry& entry, std::uint8_t what, std::string_view before,
                                  std::string_view after, Replies& replies) const {
    for (const Id id : entry.second.watchers) {
        std::string& out = replies.to(id);
        put(out, what);
        put_bytes(out, entry.first);
        put_bytes(out, before);
        put_bytes(out, after);
    }
}

// --- queues --------------------------------------------------------------------------------------

Status TcpStoreState::queue_push(const StoreQuery& query, Replies& replies) {
    const std::string_view key = query.parts[0];
    auto found = queues_.find(key);
    const std::size_t named = found == queues_.end() ? key.size() + kEntryBytes : 0;
    const std::size_t more = named + query.parts[1].size() + kWaitBytes;
    if (auto room = room_for(more, 0); !room) {
        return room;
    }
    if (found == queues_.end()) {
        found = queues_.try_emplace(std::string{key}).first;
    }
    found->second.emplace_back(query.parts[1]);
    bytes_ += more;
    if (const auto slot = slots_.find(key); slot != slots_.end()) {
        wake(slot->second, replies, true);
        drop_if_unused(*slot);
    }
    return {};
}

void TcpStoreState::queue_pop(Id id, std::string_view key, Replies& replies) {
    std::string& out = replies.to(id);
    put(out, static_cast<std::int64_t>(queue_length(key)));
    const auto found = queues_.find(key);
    if (found == queues_.end()) {
        return;
    }
    put_bytes(out, found->second.front());
    bytes_ -= found->second.front().size() + kWaitBytes;
    found->second.pop_front();
    if (found->second.empty()) {
        bytes_ -= key.size() + kEntryBytes;
        queues_.erase(found);
    }
}

std::size_t TcpStoreState::queue_length(std::string_view key) const {
    const auto found = queues_.find(key);
    return found == queues_.end() ? 0 : found->second.size();
}

}  // namespace lockstep
