#include "daemon/control/exchange.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <limits>

namespace lockstep {
namespace {

wire::KeyReply refuse(std::uint64_t id, Errc code, std::string message) {
    wire::KeyReply reply;
    reply.id = id;
    reply.error = to_string(code);
    reply.message = std::move(message);
    return reply;
}

wire::KeyReply accept(std::uint64_t id) {
    wire::KeyReply reply;
    reply.id = id;
    reply.ok = true;
    return reply;
}

}  // namespace

std::vector<KeyExchange::Answer> KeyExchange::request(std::int32_t node_rank,
                                                      const wire::KeyRequest& request,
                                                      TimePoint now) {
    std::vector<Answer> out;
    const auto answer = [&](wire::KeyReply reply) {
        if (!request.replay) {
            out.push_back({node_rank, std::move(reply)});
        }
    };
    const bool long_key = std::any_of(
        request.keys.begin(), request.keys.end(),
        [](const std::string& key) { return key.empty() || key.size() > limits::kKeyBytes; });
    if (request.keys.empty() || long_key) {
        answer(refuse(request.id, Errc::invalid,
                      "a key must have 1.." + std::to_string(limits::kKeyBytes) + " bytes"));
        return out;
    }
    if (waiters_.size() >= limits::kWaiters || counted_.size() >= limits::kCountedRequests ||
        arrivals_.size() >= limits::kBarriers) {
        answer(refuse(request.id, Errc::exhausted,
                      "too many waits, additions or barriers in this generation"));
        return out;
    }
    if (request.op == "set") {
        answer(set(request));
    } else if (request.op == "get") {
        answer(get(request));
    } else if (request.op == "multi_get") {
        answer(multi_get(request));
    } else if (request.op == "add") {
        answer(add(node_rank, request));
    } else if (request.op == "wait") {
        wait(node_rank, request, now);
    } else if (request.op == "barrier") {
        arrive(node_rank, request, now);
    } else {
        answer(refuse(request.id, Errc::invalid, "unknown operation"));
    }
    release(out);
    return out;
}

Status KeyExchange::put(const std::string& key, std::string value) {
    // 4/3: base 64.
    if (value.size() > limits::kValueBytes / 3 * 4 + 4) {
        return fail(Errc::invalid,
                    "a value may have at most " + std::to_string(limits::kValueBytes) + " bytes");
    }
    const auto found = values_.find(key);
    const std::size_t before = found == values_.end() ? 0 : found->second.size();
    if ((found == values_.end() && values_.size() >= limits::kKeys) ||
        bytes_ - before + value.size() > limits::kKeyTotalBytes) {
        return fail(Errc::exhausted, "the keys of this generation are full");
    }
    bytes_ += value.size() - before;
    values_[key] = std::move(value);
    return {};
}

wire::KeyReply KeyExchange::set(const wire::KeyRequest& request) {
    if (auto stored = put(request.keys.front(), request.value); !stored) {
        return refuse(request.id, stored.error().code, stored.error().message);
    }
    return accept(request.id);
}

wire::KeyReply KeyExchange::get(const wire::KeyRequest& request) const {
    const auto found = values_.find(request.keys.front());
    if (found == values_.end()) {
        return refuse(request.id, Errc::not_found, "no key " + request.keys.front());
    }
    wire::KeyReply reply = accept(request.id);
    reply.has_value = true;
    reply.value = found->second;
    return reply;
}

wire::KeyReply KeyExchange::multi_get(const wire::KeyRequest& request) const {
    wire::KeyReply reply = accept(request.id);
    for (const auto& key : request.keys) {
        const auto found = values_.find(key);
        if (found == values_.end()) {
            return refuse(request.id, Errc::not_found, "no key " + key);
        }
        reply.values.push_back(found->second);
    }
    return reply;
}

bool KeyExchange::first_time(std::int32_t node_rank, const wire::KeyRequest& request) {
    return counted_.emplace(node_rank, request.id).second;
}

wire::KeyReply KeyExchange::add(std::int32_t node_rank, const wire::KeyRequest& request) {
    const std::string& key = request.keys.front();
    std::int64_t number = 0;
    if (const auto found = values_.find(key); found != values_.end()) {
        const auto text = base64_decode(found->second);
        const auto value = text ? to_int(*text) : std::nullopt;
        if (!value) {
            return refuse(request.id, Errc::invalid, key + " does not hold a number");
        }
        number = *value;
    }
    if (first_time(node_rank, request)) {
        if (__builtin_add_overflow(number, request.delta, &number)) {
            return refuse(request.id, Errc::invalid, key + " would overflow");
        }
        if (auto stored = put(key, base64_encode(std::to_string(number))); !stored) {
            return refuse(request.id, stored.error().code, stored.error().message);
        }
    }
    wire::KeyReply reply = accept(request.id);
    reply.number = number;
    return reply;
}

void KeyExchange::wait(std::int32_t node_rank, const wire::KeyRequest& request, TimePoint now) {
    waiters_.remove_if([&](const Waiter& waiter) {
        return waiter.node_rank == node_rank && waiter.id == request.id;
    });
    Waiter waiter;
    waiter.node_rank = node_rank;
    waiter.id = request.id;
    waiter.keys = request.keys;
    waiter.rank = request.rank;
    waiter.deadline = now + std::chrono::milliseconds{
                                std::clamp<std::int64_t>(request.timeout_ms, 0, 86'400'000)};
    waiters_.push_back(std::move(waiter));
}

void KeyExchange::arrive(std::int32_t node_rank, const wire::KeyRequest& request, TimePoint now) {
    const std::string& name = request.keys.front();
    std::uint64_t& times = arrivals_[name][request.rank];
    if (first_time(node_rank, request)) {
        ++times;
    }
    if (request.replay) {
        return;
    }
    wait(node_rank, request, now);
    waiters_.back().keys.clear();
    waiters_.back().barrier = name;
    waiters_.back().round = times;
}

// How often every rank has been there.
std::uint64_t KeyExchange::round_done(const std::string& barrier) const {
    const auto found = arrivals_.find(barrier);
    if (found == arrivals_.end() || found->second.size() < static_cast<std::size_t>(world_size_)) {
        return 0;
    }
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    for (const auto& [rank, times] : found->second) {
        least = std::min(least, times);
    }
    return least;
}

bool KeyExchange::complete(const Waiter& waiter) const {
    if (!waiter.barrier.empty()) {
        return round_done(waiter.barrier) >= waiter.round;
    }
    return std::all_of(waiter.keys.begin(), waiter.keys.end(),
                       [this](const std::string& key) { return values_.contains(key); });
}

void KeyExchange::release(std::vector<Answer>& out) {
    for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
        if (complete(*waiter)) {
            out.push_back({waiter->node_rank, accept(waiter->id)});
            waiter = waiters_.erase(waiter);
        } else {
            ++waiter;
        }
    }
}

std::string KeyExchange::missing(const Waiter& waiter) const {
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
        const auto found = arrivals_.find(waiter.barrier);
        for (std::int32_t rank = 0; rank < world_size_; ++rank) {
            const auto there = found->second.find(rank);
            if (there == found->second.end() || there->second < waiter.round) {
                name("rank " + std::to_string(rank));
            }
        }
    }
    return count > 8 ? out + " and " + std::to_string(count - 8) + " more" : out;
}

std::vector<KeyExchange::Answer> KeyExchange::expire(TimePoint now) {
    std::vector<Answer> out;
    for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
        if (waiter->deadline <= now) {
            out.push_back({waiter->node_rank,
                           refuse(waiter->id, Errc::timed_out, "missing: " + missing(*waiter))});
            waiter = waiters_.erase(waiter);
        } else {
            ++waiter;
        }
    }
    return out;
}

}  // namespace lockstep
