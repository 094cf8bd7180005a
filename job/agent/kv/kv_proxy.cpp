#include "job/agent/kv/kv_proxy.hpp"

#include "job/base/sort.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lockstep {
namespace {

bool is_read(const wire::KeyRequest& request) {
    return request.op == wire::KvOp::get || request.op == wire::KvOp::multi_get;
}
// What is asked once, however many ranks ask.
bool is_shared(const wire::KeyRequest& request) {
    return is_read(request) || request.op == wire::KvOp::wait;
}

bool is_timed(const wire::KeyRequest& request) {
    return request.op == wire::KvOp::wait || request.op == wire::KvOp::barrier;
}

// Of a rank's wait or barrier that is asked again. A daemon without keys hears of what has been set
// and who has arrived from each node as it comes back (agent_session.hpp: every 2 s it tries):
// asked sooner it would name as missing what is only not told yet. The rank itself gives up 5 s
// after its time is over.
std::int64_t time_left(std::chrono::steady_clock::duration left, bool keys_lost) {
    constexpr std::chrono::steady_clock::duration kOthersReturn = std::chrono::seconds{3};
    if (keys_lost) {
        left = std::max(left, std::min(kOthersReturn, left + kOthersReturn));
    }
    return std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

bool timed_out(const wire::KeyReply& reply) {
    return reply.error == to_string(Errc::timed_out);
}

// Whether every value of the answer is write-once.
bool is_final(const wire::KeyReply& reply) {
    return reply.ok && !reply.once.empty() && reply.once.find('0') == std::string::npos;
}

}  // namespace

void KvProxy::start_generation(std::int32_t generation) {
    generation_ = generation;
    cache_.clear();
    waiting_.clear();
    reads_.clear();
    done_.clear();
    newest_.clear();
    arrivals_.clear();
}

KvProxy::Asked KvProxy::ask(Origin origin, wire::KeyRequest request) {
    Asked out;
    if (auto answer = known(request)) {
        out.answer = std::move(answer);
        return out;
    }
    if (is_shared(request)) {
        if (const auto read = reads_.find({request.op, request.keys}); read != reads_.end()) {
            Waiting& there = waiting_.at(read->second);
            if (is_read(request) || there.origins.front().deadline <= origin.deadline) {
                there.joined.push_back(std::move(origin));
                return out;
            }
        }
    }
    out.send = send({std::move(origin)}, std::move(request));
    return out;
}

wire::KeyRequest KvProxy::send(std::vector<Origin> origins, wire::KeyRequest request) {
    request.generation = generation_;
    request.id = next_id_++;
    request.rank = origins.front().rank;
    if (is_shared(request)) {
        reads_[{request.op, request.keys}] = request.id;
    }
    waiting_[request.id] = {std::move(origins), {}, request};
    return request;
}

// The answer to a read or a wait of keys that are all in the cache.
std::optional<wire::KeyReply> KvProxy::known(const wire::KeyRequest& request) const {
    const bool all = (is_read(request) || request.op == wire::KvOp::wait) &&
                     !request.keys.empty() &&
                     std::all_of(request.keys.begin(), request.keys.end(),
                                 [this](const std::string& key) { return cache_.contains(key); });
    if (!all) {
        return std::nullopt;
    }
    wire::KeyReply reply;
    reply.ok = true;
    std::size_t bytes = 0;
    for (const auto& key : request.keys) {
        const std::string& value = *cache_.find(key);
        bytes += value.size();
        if (request.op == wire::KvOp::get) {
            reply.has_value = true;
            reply.value = value;
        } else if (request.op == wire::KvOp::multi_get) {
            reply.values.push_back(value);
        }
    }
    if (request.op != wire::KvOp::wait && bytes > limits::kKeyAnswerBytes) {
        return std::nullopt;  // the daemon says so
    }
    return reply;
}

void KvProxy::learn(const wire::KeyRequest& request, const wire::KeyReply& reply) {
    if (request.op == wire::KvOp::get && reply.once == "1") {
        cache_.put(request.keys.front(), reply.value);
    } else if (request.op == wire::KvOp::set && request.once) {
        cache_.put(request.keys.front(), request.value);
    } else if (request.op == wire::KvOp::multi_get && reply.once.size() == request.keys.size() &&
               reply.values.size() == request.keys.size()) {
        for (std::size_t i = 0; i < request.keys.size(); ++i) {
            if (reply.once[i] == '1') {
                cache_.put(request.keys[i], reply.values[i]);
            }
        }
    } else if (request.op == wire::KvOp::multi_set && request.once) {
        for (std::size_t i = 0; i < request.keys.size(); ++i) {
            cache_.put(request.keys[i], request.values[i]);
        }
    }
}

// Whoever may wait longer than the one that asked goes on waiting.
void KvProxy::settle_wait(Waiting& waiting, const wire::KeyReply& reply,
                          std::chrono::steady_clock::time_point now, Answered& out) {
    std::vector<Origin> rest;
    std::move(waiting.joined.begin(), waiting.joined.end(), std::back_inserter(waiting.origins));
    for (Origin& origin : waiting.origins) {
        const bool over = out.origins.empty() || !timed_out(reply) || origin.deadline <= now;
        (over ? out.origins : rest).push_back(std::move(origin));
    }
    if (!rest.empty()) {
        sort_stably(rest, [](const Origin& a, const Origin& b) { return a.deadline < b.deadline; });
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(rest.front().deadline - now);
        waiting.request.timeout_ms = left.count() + 1;
        out.again = send(std::move(rest), std::move(waiting.request));
    }
}

KvProxy::Answered KvProxy::answered(const wire::KeyReply& reply,
                                    std::chrono::steady_clock::time_point now) {
    Answered out;
    const auto found = waiting_.find(reply.id);
    if (found == waiting_.end()) {
        return out;
    }
    Waiting waiting = std::move(found->second);
    waiting_.erase(found);
    if (is_shared(waiting.request)) {
        const auto read = reads_.find({waiting.request.op, waiting.request.keys});
        if (read != reads_.end() && read->second == reply.id) {
            reads_.erase(read);
        }
    }
    if (reply.ok) {
        learn(waiting.request, reply);
    }
    if (waiting.request.op == wire::KvOp::wait) {
        settle_wait(waiting, reply, now, out);
        return out;
    }
    out.origins = std::move(waiting.origins);
    if (is_final(reply)) {
        std::move(waiting.joined.begin(), waiting.joined.end(), std::back_inserter(out.origins));
    } else if (!waiting.joined.empty()) {
        out.again = send(std::move(waiting.joined), std::move(waiting.request));
    } else {
        remember(std::move(waiting.request), reply);
    }
    return out;
}

void KvProxy::remember(wire::KeyRequest request, const wire::KeyReply& reply) {
    const wire::KvOp op = request.op;
    if (op == wire::KvOp::barrier) {
        // One that timed out has been arrived at all the same.
        if (reply.ok || timed_out(reply)) {
            arrivals_[{request.rank, request.keys.front()}].push_back(request.id);
        }
        return;
    }
    if (!reply.ok) {
        return;
    }
    request.replay = true;
    request.version = reply.version;
    if (op == wire::KvOp::add) {
        const Slot slot{wire::KvOp::add, request.keys.front()};
        request.delta += forget(slot);
        newest_[slot] = {request.id, 0};
        done_[{request.id, 0}] = std::move(request);
    } else if (op == wire::KvOp::set || op == wire::KvOp::erase) {
        remember_set(std::move(request), 0);
    } else if (op == wire::KvOp::cas && reply.swapped) {
        // As the set that it came to: to a daemon whose keys are gone, what the value had been
        // compared with may be unknown, or be replayed later by another node, and the rank has been
        // told that it swapped. Its version puts it behind what it replaced.
        request.op = wire::KvOp::set;
        request.expected.clear();
        remember_set(std::move(request), 0);
    } else if (op == wire::KvOp::multi_set) {
        const auto keys = std::move(request.keys);
        const auto values = std::move(request.values);
        request.op = wire::KvOp::set;
        for (std::size_t i = 0; i < keys.size(); ++i) {
            request.keys = {keys[i]};
            request.value = values[i];
            request.values.clear();
            remember_set(request, i);
        }
    }
}

void KvProxy::remember_set(wire::KeyRequest request, std::size_t index) {
    const std::string key = request.keys.front();
    forget({wire::KvOp::add, key});  // what was counted before is overwritten
    forget({wire::KvOp::set, key});
    const Number number{request.id, index};
    newest_[{wire::KvOp::set, key}] = number;
    done_[number] = std::move(request);
}

std::int64_t KvProxy::forget(const Slot& slot) {
    const auto found = newest_.find(slot);
    if (found == newest_.end()) {
        return 0;
    }
    const auto old = done_.find(found->second);
    const std::int64_t delta = old->second.delta;
    done_.erase(old);
    newest_.erase(found);
    return delta;
}

std::vector<wire::KeyRequest> KvProxy::after_reconnect(
    bool keys_lost, std::chrono::steady_clock::time_point now) const {
    std::vector<wire::KeyRequest> out;
    if (keys_lost) {
        for (const auto& [number, request] : done_) {
            out.push_back(request);
        }
        for (const auto& [who, numbers] : arrivals_) {
            wire::KeyRequest request;
            request.generation = generation_;
            request.rank = who.first;
            request.op = wire::KvOp::barrier;
            request.keys = {who.second};
            request.replay = true;
            for (const std::uint64_t number : numbers) {
                request.id = number;
                out.push_back(request);
            }
        }
    }
    for (const auto& [id, waiting] : waiting_) {
        out.push_back(waiting.request);
        if (is_timed(waiting.request)) {
            out.back().timeout_ms = time_left(waiting.origins.front().deadline - now, keys_lost);
        }
    }
    return out;
}

}  // namespace lockstep
