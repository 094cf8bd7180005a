#include "job/agent/key_broker.hpp"

#include <utility>

namespace lockstep {

void KeyBroker::start_generation(std::int32_t generation) {
    generation_ = generation;
    waiting_.clear();
    done_.clear();
    newest_.clear();
    arrivals_.clear();
}

wire::KeyRequest KeyBroker::ask(const Origin& origin, wire::KeyRequest request) {
    request.generation = generation_;
    request.id = next_id_++;
    request.rank = origin.rank;
    waiting_[request.id] = {origin, request};
    return request;
}

std::optional<KeyBroker::Origin> KeyBroker::answered(const wire::KeyReply& reply) {
    const auto found = waiting_.find(reply.id);
    if (found == waiting_.end()) {
        return std::nullopt;
    }
    Waiting waiting = std::move(found->second);
    waiting_.erase(found);
    const std::string& op = waiting.request.op;
    // A barrier that timed out has been arrived at all the same.
    const bool counted = op == "barrier" && (reply.ok || reply.error == "timed_out");
    if (counted || (reply.ok && (op == "set" || op == "add"))) {
        remember(std::move(waiting.request));
    }
    return std::move(waiting.origin);
}

void KeyBroker::remember(wire::KeyRequest request) {
    if (request.op == "barrier") {
        arrivals_[{request.rank, request.keys.front()}].push_back(request.id);
        return;
    }
    request.replay = true;
    const std::string& key = request.keys.front();
    const auto forget = [this](const std::string& slot) {
        const auto found = newest_.find(slot);
        std::int64_t delta = 0;
        if (found != newest_.end()) {
            const auto old = done_.find(found->second);
            delta = old->second.delta;
            done_.erase(old);
            newest_.erase(found);
        }
        return delta;
    };
    if (request.op == "set") {
        forget("add " + key);  // what was counted before is overwritten
        forget("set " + key);
    } else {
        request.delta += forget("add " + key);
    }
    newest_[request.op + ' ' + key] = request.id;
    done_[request.id] = std::move(request);
}

std::vector<wire::KeyRequest> KeyBroker::after_reconnect(bool keys_lost) const {
    std::vector<wire::KeyRequest> out;
    if (keys_lost) {
        for (const auto& [id, request] : done_) {
            out.push_back(request);
        }
        for (const auto& [who, numbers] : arrivals_) {
            wire::KeyRequest request;
            request.generation = generation_;
            request.rank = who.first;
            request.op = "barrier";
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
    }
    return out;
}

}  // namespace lockstep
