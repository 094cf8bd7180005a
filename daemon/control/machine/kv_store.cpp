// size: one operation after another, and what they share
#include "daemon/control/machine/kv_store.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <iterator>

namespace lockstep {
namespace {

constexpr std::size_t kEncodedValueBytes = (limits::kValueBytes + 2) / 3 * 4;  // base 64

wire::KeyReply refuse(std::uint64_t id, const Error& error) {
    wire::KeyReply reply;
    reply.id = id;
    reply.error = to_string(error.code);
    reply.message = error.message;
    return reply;
}

wire::KeyReply accept(std::uint64_t id) {
    wire::KeyReply reply;
    reply.id = id;
    reply.ok = true;
    return reply;
}

}  // namespace

Status KvStore::check(const wire::KeyRequest& request) const {
    const bool bad_key = std::any_of(
        request.keys.begin(), request.keys.end(),
        [](const std::string& key) { return key.empty() || key.size() > limits::kKeyBytes; });
    if (request.keys.empty() || bad_key) {
        return fail(Errc::invalid,
                    "a key must have 1.." + std::to_string(limits::kKeyBytes) + " bytes");
    }
    if (waiters_.size() >= limits::kWaiters || counted_.size() >= limits::kCountedRequests ||
        replaced_.size() >= limits::kCountedRequests || barriers_.size() >= limits::kBarriers) {
        return fail(Errc::exhausted, "too many waits, additions or barriers in this generation");
    }
    return {};
}

std::vector<KvStore::Answer> KvStore::request(std::int32_t node_rank,
                                              const wire::KeyRequest& request, TimePoint now) {
    std::vector<Answer> out;
    woken_.clear();
    const Status good = check(request);
    if (good && (request.op == wire::KvOp::wait || request.op == wire::KvOp::barrier)) {
        Waiter waiter;
        waiter.deadline = now + std::chrono::milliseconds{std::clamp<std::int64_t>(
                                    request.timeout_ms, 0, limits::kKeyWaitMs)};
        if (request.op == wire::KvOp::wait) {
            waiter.keys = request.keys;
            waiter.left = request.keys.size();
            wait({node_rank, request.id}, std::move(waiter), out);
        } else {
            arrive({node_rank, request.id}, std::move(waiter), request, out);
        }
    } else {
        auto reply = good ? apply(node_rank, request) : refuse(request.id, good.error());
        if (!request.replay) {
            out.push_back({node_rank, std::move(reply)});
        }
    }
    release(out);
    return out;
}

wire::KeyReply KvStore::apply(std::int32_t node_rank, const wire::KeyRequest& request) {
    if (request.replay) {
        version_ = std::max(version_, request.version);
    }
    switch (request.op) {
        case wire::KvOp::set:
            return set(node_rank, request, {{request.keys.front(), request.value}});
        case wire::KvOp::multi_set:
            return multi_set(node_rank, request);
        case wire::KvOp::get:
            return get(request);
        case wire::KvOp::multi_get:
            return multi_get(request);
        case wire::KvOp::add:
            return add(node_rank, request);
        case wire::KvOp::cas:
            return cas(node_rank, request);
        case wire::KvOp::erase:
            return remove(node_rank, request);
        case wire::KvOp::wait:
        case wire::KvOp::barrier:  // request() has taken these
        case wire::KvOp::unknown:
            break;
    }
    return refuse(request.id, {Errc::invalid, "unknown operation"});
}

Status KvStore::check_room(const Pairs& pairs, bool once) const {
    std::size_t bytes = bytes_;
    std::size_t keys = values_.size();
    std::set<std::string_view> names;
    for (const auto& [key, text] : pairs) {
        if (text.size() > kEncodedValueBytes) {
            return fail(Errc::invalid, key + ": a value may have at most " +
                                           std::to_string(limits::kValueBytes) + " bytes");
        }
        if (!names.insert(key).second) {
            return fail(Errc::invalid, key + ": appears twice");
        }
        const auto found = values_.find(key);
        if (found == values_.end()) {
            ++keys;
        } else {
            if (found->second.text != text && (once || found->second.once)) {
                return fail(Errc::conflict,
                            key + (found->second.once ? ": was set once, to another value"
                                                      : ": has another value already"));
            }
            bytes -= found->second.text.size();
        }
        bytes += text.size();
    }
    if (keys > limits::kKeys || bytes > limits::kKeyTotalBytes) {
        return fail(Errc::exhausted, "the keys of this generation are full");
    }
    return {};
}

void KvStore::store(const std::string& key, std::string text, bool once, std::int64_t version,
                    const RequestId& by) {
    const auto [place, is_new] = values_.try_emplace(key);
    Value& value = place->second;
    if (value.by.first != by.first) {
        note_replaced(key, value);
    }
    value.by = by;
    bytes_ = bytes_ - value.text.size() + text.size();
    value.text = std::move(text);
    value.version = version;
    value.once = value.once || once;
    if (is_new) {
        deleted_.erase(key);
        woken_.push_back("key " + key);
    }
}

void KvStore::note_replaced(const std::string& key, const Value& value) {
    if (value.by.first >= 0) {
        replaced_[{key, value.by.first}] = {value.by.second, value.version};
    }
}

// Of a set that has been done before; 0 if its node has set the key again since. A node's requests
// come in the order of their ids. Nothing: it is new.
std::optional<std::int64_t> KvStore::version_of(const std::string& key, const RequestId& by) const {
    const auto stands = values_.find(key);
    if (stands != values_.end() && stands->second.by.first == by.first &&
        stands->second.by.second >= by.second) {
        return stands->second.by == by ? stands->second.version : 0;
    }
    const auto replaced = replaced_.find({key, by.first});
    if (replaced != replaced_.end() && replaced->second.first >= by.second) {
        return replaced->second.first == by.second ? replaced->second.second : 0;
    }
    return std::nullopt;
}

// A replay of something older than what stands.
bool KvStore::outdated(const std::string& key, const wire::KeyRequest& request) const {
    if (!request.replay) {
        return false;
    }
    const auto found = values_.find(key);
    const auto deleted = deleted_.find(key);
    return (found != values_.end() && found->second.version > request.version) ||
           (deleted != deleted_.end() && deleted->second > request.version);
}

// Sent again because its answer was lost with the agent's connection, it sets nothing: the value
// may be another's by now, or deleted.
wire::KeyReply KvStore::set(std::int32_t node_rank, const wire::KeyRequest& request, Pairs pairs) {
    const RequestId by{node_rank, request.id};
    std::optional<std::int64_t> done;
    std::erase_if(pairs, [&](const auto& pair) {
        if (request.replay) {
            return outdated(pair.first, request);
        }
        const auto version = version_of(pair.first, by);
        done = version ? version : done;
        return version.has_value();
    });
    if (const Status room = check_room(pairs, request.once); !room) {
        return refuse(request.id, room.error());
    }
    wire::KeyReply reply = accept(request.id);
    if (pairs.empty() && done) {
        reply.version = *done;  // the agent replays it with that
        return reply;
    }
    reply.version = request.replay ? request.version : ++version_;
    for (auto& [key, text] : pairs) {
        store(key, std::move(text), request.once, reply.version, by);
    }
    return reply;
}

wire::KeyReply KvStore::multi_set(std::int32_t node_rank, const wire::KeyRequest& request) {
    if (request.values.size() != request.keys.size()) {
        return refuse(request.id, {Errc::invalid, "multi_set: one value for each key"});
    }
    Pairs pairs;
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
        pairs.emplace_back(request.keys[i], request.values[i]);
    }
    return set(node_rank, request, std::move(pairs));
}

wire::KeyReply KvStore::get(const wire::KeyRequest& request) const {
    const auto found = values_.find(request.keys.front());
    if (found == values_.end()) {
        return refuse(request.id, {Errc::not_found, "no key " + request.keys.front()});
    }
    wire::KeyReply reply = accept(request.id);
    reply.has_value = true;
    reply.value = found->second.text;
    reply.once = found->second.once ? "1" : "";
    return reply;
}

wire::KeyReply KvStore::multi_get(const wire::KeyRequest& request) const {
    wire::KeyReply reply = accept(request.id);
    std::size_t bytes = 0;
    for (const auto& key : request.keys) {
        const auto found = values_.find(key);
        if (found == values_.end()) {
            return refuse(request.id, {Errc::not_found, "no key " + key});
        }
        bytes += found->second.text.size();
        // A larger frame would end the agent's connection.
        if (bytes > limits::kKeyAnswerBytes) {
            return refuse(request.id,
                          {Errc::exhausted, "the values do not fit one answer of " +
                                                std::to_string(limits::kKeyAnswerBytes) +
                                                " bytes: ask for fewer at a time"});
        }
        reply.values.push_back(found->second.text);
        reply.once += found->second.once ? '1' : '0';
    }
    return reply;
}

wire::KeyReply KvStore::add(std::int32_t node_rank, const wire::KeyRequest& request) {
    const std::string& key = request.keys.front();
    std::int64_t number = 0;
    std::int64_t version = 0;
    RequestId by{-1, 0};  // of the set that it adds to
    if (const auto found = values_.find(key); found != values_.end()) {
        const auto text = base64_decode(found->second.text);
        const auto value = text ? to_int(*text) : std::nullopt;
        if (!value) {
            return refuse(request.id, {Errc::invalid, key + " does not hold a number"});
        }
        number = *value;
        version = found->second.version;
        by = found->second.by;
    }
    const auto this_one = std::pair{node_rank, request.id};
    if (!counted_.contains(this_one) && !outdated(key, request)) {
        if (__builtin_add_overflow(number, request.delta, &number)) {
            return refuse(request.id, {Errc::invalid, key + " would overflow"});
        }
        auto text = base64_encode(std::to_string(number));
        if (const Status room = check_room({{key, text}}, false); !room) {
            return refuse(request.id, room.error());
        }
        counted_.insert(this_one);
        store(key, std::move(text), false, version, by);
    }
    wire::KeyReply reply = accept(request.id);
    reply.number = number;
    reply.version = ++version_;
    return reply;
}

wire::KeyReply KvStore::cas(std::int32_t node_rank, const wire::KeyRequest& request) {
    const std::string& key = request.keys.front();
    const auto found = values_.find(key);
    const bool exists = found != values_.end();
    wire::KeyReply reply = accept(request.id);
    const auto this_one = std::pair{node_rank, request.id};
    if (counted_.contains(this_one)) {
        // Its answer was lost with the agent's connection. When it swapped, its value stood.
        reply.swapped = reply.has_value = true;
        reply.value = request.value;
        reply.version = exists && found->second.text == request.value ? found->second.version : 0;
        return reply;
    }
    reply.swapped =
        request.expected.empty() ? !exists : exists && found->second.text == request.expected;
    if (!reply.swapped) {
        reply.has_value = exists;
        reply.value = exists ? found->second.text : "";
        return reply;
    }
    if (const Status room = check_room({{key, request.value}}, false); !room) {
        return refuse(request.id, room.error());
    }
    counted_.insert(this_one);
    reply.version = ++version_;
    store(key, request.value, false, reply.version, this_one);
    reply.has_value = true;
    reply.value = request.value;
    return reply;
}

// Agents keep what was set once and answer for it: such a key stays.
wire::KeyReply KvStore::remove(std::int32_t node_rank, const wire::KeyRequest& request) {
    const std::string& key = request.keys.front();
    const auto found = values_.find(key);
    const bool exists = found != values_.end() && !outdated(key, request);
    if (exists && found->second.once) {
        return refuse(request.id, {Errc::conflict, key + ": was set once and stays"});
    }
    if (deleted_.size() >= limits::kKeys) {
        return refuse(request.id,
                      {Errc::exhausted, "too many keys of this generation were deleted"});
    }
    wire::KeyReply reply = accept(request.id);
    reply.version = request.replay ? request.version : ++version_;
    const auto this_one = std::pair{node_rank, request.id};
    if (counted_.contains(this_one)) {
        reply.number = 1;  // the answer was lost with the agent's connection
        return reply;
    }
    reply.number = exists ? 1 : 0;
    if (exists) {
        counted_.insert(this_one);
        bytes_ -= found->second.text.size();
        note_replaced(key, found->second);
        values_.erase(found);
    }
    if (exists || request.replay) {
        deleted_[key] = std::max(deleted_[key], reply.version);
    }
    return reply;
}

void KvStore::wait(WaiterId id, Waiter waiter, std::vector<Answer>& out) {
    if (const auto old = waiters_.find(id); old != waiters_.end()) {
        forget(old);
    }
    if (complete(waiter)) {
        out.push_back({id.first, accept(id.second)});
        return;
    }
    places_[place_of(waiter)].insert(id);
    waiters_.emplace(id, std::move(waiter));
}

void KvStore::arrive(WaiterId id, Waiter waiter, const wire::KeyRequest& request,
                     std::vector<Answer>& out) {
    waiter.barrier = request.keys.front();
    Barrier& barrier = barriers_[waiter.barrier];
    std::uint64_t& times = barrier.times[request.rank];
    if (counted_.insert(id).second && ++times == barrier.done + 1 &&
        ++barrier.ahead == world_size_) {
        ++barrier.done;
        barrier.ahead = static_cast<std::size_t>(
            std::count_if(barrier.times.begin(), barrier.times.end(),
                          [&](const auto& rank) { return rank.second > barrier.done; }));
        woken_.push_back("barrier " + waiter.barrier);
    }
    waiter.round = times;
    if (!request.replay) {
        wait(id, std::move(waiter), out);
    }
}

bool KvStore::complete(Waiter& waiter) const {
    if (!waiter.barrier.empty()) {
        const auto found = barriers_.find(waiter.barrier);
        return found != barriers_.end() && found->second.done >= waiter.round;
    }
    while (waiter.left > 0 && values_.contains(waiter.keys[waiter.left - 1])) {
        --waiter.left;
    }
    return waiter.left == 0;
}

std::string KvStore::place_of(const Waiter& waiter) {
    return waiter.barrier.empty() ? "key " + waiter.keys[waiter.left - 1]
                                  : "barrier " + waiter.barrier;
}

void KvStore::forget(std::map<WaiterId, Waiter>::iterator waiter) {
    const auto place = places_.find(place_of(waiter->second));
    place->second.erase(waiter->first);
    if (place->second.empty()) {
        places_.erase(place);
    }
    waiters_.erase(waiter);
}

void KvStore::release(std::vector<Answer>& out) {
    for (const auto& place : woken_) {
        const auto here = places_.extract(place);
        if (here.empty()) {
            continue;
        }
        for (const WaiterId& id : here.mapped()) {
            const auto waiter = waiters_.find(id);
            if (complete(waiter->second)) {
                out.push_back({id.first, accept(id.second)});
                waiters_.erase(waiter);
            } else {
                places_[place_of(waiter->second)].insert(id);
            }
        }
    }
}

std::string KvStore::missing(const Waiter& waiter) const {
    std::string out;
    std::size_t count = 0;
    const auto name = [&](const std::string& what) {
        if (++count <= 8) {
            out += (out.empty() ? "" : ", ") + what;
        }
    };
    if (waiter.barrier.empty()) {
        for (const auto& key : waiter.keys) {
            if (!values_.contains(key)) {
                name(key);
            }
        }
    } else {
        const auto& times = barriers_.find(waiter.barrier)->second.times;
        for (std::int32_t rank = 0; static_cast<std::size_t>(rank) < world_size_; ++rank) {
            const auto there = times.find(rank);
            if (there == times.end() || there->second < waiter.round) {
                name("rank " + std::to_string(rank));
            }
        }
    }
    return count > 8 ? out + " and " + std::to_string(count - 8) + " more" : out;
}

std::vector<KvStore::Answer> KvStore::expire(TimePoint now) {
    std::vector<Answer> out;
    for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
        const auto next = std::next(waiter);
        if (waiter->second.deadline <= now) {
            const auto [node_rank, id] = waiter->first;
            out.push_back(
                {node_rank, refuse(id, {Errc::timed_out, "missing: " + missing(waiter->second)})});
            forget(waiter);
        }
        waiter = next;
    }
    return out;
}

}  // namespace lockstep
