#include "job/agent/torch_store/tcp_store_state.hpp"

#include "job/agent/torch_store/tcp_store_reply.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace lockstep {

using namespace store_reply;

Status TcpStoreState::apply(Id id, const StoreQuery& query, Replies& replies) {
    const auto key = query.parts.empty() ? std::string_view{} : query.parts.front();
    switch (query.op) {
        case StoreOp::set:
            return set(key, query.parts[1], replies);
        case StoreOp::compare_set:
            return compare_set(id, query, replies);
        case StoreOp::get:
            put_bytes(replies.to(id), value_of(key));
            return {};
        case StoreOp::add:
            return add(id, query, replies);
        case StoreOp::check: {
            const bool all = std::all_of(query.parts.begin(), query.parts.end(),
                                         [this](std::string_view each) { return ready(each); });
            replies.to(id).push_back(all ? kReady : kNotReady);
            return {};
        }
        case StoreOp::wait:
            return wait(id, query, replies);
        case StoreOp::count_keys:
            put(replies.to(id), static_cast<std::int64_t>(present_));
            return {};
        case StoreOp::delete_key:
            put(replies.to(id), remove(key, replies));
            return {};
        case StoreOp::append:
            return append(key, query.parts[1], replies);
        case StoreOp::multi_get:
            return multi_get(id, query, replies);
        case StoreOp::multi_set:
            for (std::size_t i = 0; i < query.parts.size(); i += 2) {
                if (auto good = set(query.parts[i], query.parts[i + 1], replies); !good) {
                    return good;
                }
            }
            return {};
        case StoreOp::cancel_wait:
            end_wait(id, true);
            replies.to(id).push_back(kWaitCancelled);
            return {};
        case StoreOp::ping:
            put(replies.to(id), static_cast<std::uint32_t>(query.number));
            return {};
        case StoreOp::queue_push:
            return queue_push(query, replies);
        case StoreOp::queue_pop:
            queue_pop(id, key, replies);
            return {};
        case StoreOp::queue_length:
            put(replies.to(id), static_cast<std::int64_t>(queue_length(key)));
            return {};
        case StoreOp::list_keys:
            return list_keys(id, replies);
        case StoreOp::barrier:
            return barrier(id, query, replies);
        case StoreOp::watch_key:
            return watch(id, key, replies);
        case StoreOp::validate:
            break;
    }
    return fail(Errc::invalid, "not a query");
}

const std::string& TcpStoreState::value_of(std::string_view key) const {
    static const std::string kNone;
    const auto found = slots_.find(key);
    return found == slots_.end() ? kNone : found->second.value;
}

// As std::stoll reads it, which is what torch does: what follows the digits does not count.
Result<std::int64_t> TcpStoreState::number_of(std::string_view key) const {
    const auto found = slots_.find(key);
    if (found == slots_.end() || !found->second.present) {
        return 0;
    }
    std::string_view text = found->second.value;
    text.remove_prefix(std::min(text.find_first_not_of(" \t\n\v\f\r"), text.size()));
    if (text.starts_with('+')) {
        text.remove_prefix(1);
    }
    std::int64_t number = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc{}) {
        return fail(Errc::invalid, "a number is added to a value that is none");
    }
    return number;
}

bool TcpStoreState::ready(std::string_view key) const {
    const auto found = slots_.find(key);
    return (found != slots_.end() && found->second.present) ||
           (!queues_.empty() && queues_.find(key) != queues_.end());
}

Status TcpStoreState::room_for(std::size_t bytes, std::size_t keys) const {
    if (bytes > caps_.bytes - std::min(bytes_, caps_.bytes)) {
        return fail(Errc::exhausted,
                    "the store is full: " + std::to_string(caps_.bytes) + " bytes");
    }
    if (present_ + keys > caps_.keys) {
        return fail(Errc::exhausted, "the store is full: " + std::to_string(caps_.keys) + " keys");
    }
    return {};
}

TcpStoreState::Entry& TcpStoreState::entry_of(std::string_view key) {
    const auto found = slots_.find(key);
    if (found != slots_.end()) {
        return *found;
    }
    bytes_ += key.size() + kEntryBytes;
    return *slots_.try_emplace(std::string{key}).first;
}

void TcpStoreState::drop_if_unused(Entry& entry) {
    if (!entry.second.present && entry.second.interest == 0) {
        bytes_ -= entry.first.size() + kEntryBytes;
        slots_.erase(slots_.find(entry.first));
    }
}

// Gives the key its value; `value` must not be a view into the store.
Status TcpStoreState::store(std::string_view key, std::string value, Replies& replies, bool wakes) {
    const auto found = slots_.find(key);
    const bool known = found != slots_.end();
    const std::size_t before = known ? found->second.value.size() : 0;
    const std::size_t more = (value.size() > before ? value.size() - before : 0) +
                             (known ? 0 : key.size() + kEntryBytes);
    if (auto room = room_for(more, known && found->second.present ? 0 : 1); !room) {
        return room;
    }
    Entry& entry = known ? *found : entry_of(key);
    Slot& slot = entry.second;
    bytes_ = bytes_ - slot.value.size() + value.size();
    const bool created = !std::exchange(slot.present, true);
    present_ += created ? 1 : 0;
    std::swap(slot.value, value);
    if (!slot.watchers.empty()) {
        tell_watchers(entry, created ? kCreated : kUpdated, value, slot.value, replies);
    }
    if (wakes) {
        wake(slot, replies, false);
    }
    return {};
}

Status TcpStoreState::set(std::string_view key, std::string_view value, Replies& replies) {
    return store(key, std::string{value}, replies);
}

// A key that is missing is made only if nothing was expected. If something was, torch answers what
// was expected, though there is no such value; clients count on it.
Status TcpStoreState::compare_set(Id id, const StoreQuery& query, Replies& replies) {
    const std::string_view key = query.parts[0];
    const std::string_view expected = query.parts[1];
    const auto found = slots_.find(key);
    if (found == slots_.end() || !found->second.present) {
        if (!expected.empty()) {
            put_bytes(replies.to(id), expected);
            return {};
        }
    } else if (found->second.value != expected) {
        put_bytes(replies.to(id), found->second.value);
        return {};
    }
    if (auto stored = set(key, query.parts[2], replies); !stored) {
        return stored;
    }
    put_bytes(replies.to(id), query.parts[2]);
    return {};
}

Status TcpStoreState::add(Id id, const StoreQuery& query, Replies& replies) {
    const auto before = number_of(query.parts[0]);
    LOCKSTEP_TRY(before);
    const std::int64_t number = sum(*before, query.number);
    if (auto stored = store(query.parts[0], std::to_string(number), replies); !stored) {
        return stored;
    }
    put(replies.to(id), number);
    return {};
}

Status TcpStoreState::append(std::string_view key, std::string_view value, Replies& replies) {
    const auto found = slots_.find(key);
    if (found == slots_.end() || !found->second.present) {
        return set(key, value, replies);
    }
    Slot& slot = found->second;
    if (slot.value.size() + value.size() > caps_.reply_bytes) {
        return fail(Errc::exhausted, "a value has become too long for a reply");
    }
    if (!slot.watchers.empty()) {
        return store(key, slot.value + std::string{value}, replies);
    }
    if (auto room = room_for(value.size(), 0); !room) {
        return room;
    }
    slot.value.append(value);
    bytes_ += value.size();
    wake(slot, replies, false);
    return {};
}

Status TcpStoreState::multi_get(Id id, const StoreQuery& query, Replies& replies) {
    std::size_t size = 0;
    for (const std::string_view key : query.parts) {
        size += sizeof(std::uint64_t) + value_of(key).size();
    }
    if (size > caps_.reply_bytes) {
        return fail(Errc::exhausted, "the values of one query are too many bytes");
    }
    std::string& out = replies.to(id);
    for (const std::string_view key : query.parts) {
        put_bytes(out, value_of(key));
    }
    return {};
}

Status TcpStoreState::list_keys(Id id, Replies& replies) {
    std::size_t size = 0;
    for (const auto& [key, slot] : slots_) {
        size += slot.present ? sizeof(std::uint64_t) + key.size() : 0;
    }
    if (size > caps_.reply_bytes) {
        return fail(Errc::exhausted, "the keys of the store are too many bytes for a reply");
    }
    std::string& out = replies.to(id);
    put(out, static_cast<std::int64_t>(present_));
    for (const auto& [key, slot] : slots_) {
        if (slot.present) {
            put_bytes(out, key);
        }
    }
    return {};
}

std::int64_t TcpStoreState::remove(std::string_view key, Replies& replies) {
    const auto found = slots_.find(key);
    if (found == slots_.end() || !found->second.present) {
        return 0;
    }
    Slot& slot = found->second;
    slot.present = false;
    --present_;
    bytes_ -= slot.value.size();
    const std::string before = std::exchange(slot.value, {});
    tell_watchers(*found, kDeleted, before, {}, replies);
    drop_if_unused(*found);
    return 1;
}

}  // namespace lockstep
