#include "daemon/control/jobs/waiting_line.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

std::string waits_for(const std::set<std::string>& jobs) {
    std::string out = "waits for " + *jobs.begin() + " to succeed";
    if (jobs.size() > 1) {
        out += ", and " + std::to_string(jobs.size() - 1) + " more";
    }
    return out;
}

}  // namespace

std::string WaitingLine::add(Entry entry) {
    if (entry.after.empty()) {
        return enter(entry);
    }
    std::string why = waits_for(entry.after);
    for (const std::string& other : entry.after) {
        followers_[other].insert(entry.id);
    }
    std::string id = entry.id;
    held_up_[std::move(id)] = std::move(entry);
    return why;
}

std::string WaitingLine::enter(const Entry& entry) {
    if (!entry.sweep.empty() && entry.max_parallel > 0) {
        Sweep& sweep = sweeps_[entry.sweep];
        sweep.max_parallel = entry.max_parallel;
        sweep.user = entry.user;
        sweep_of_[entry.id] = entry.sweep;
        if (sweep.active.size() >= static_cast<std::size_t>(entry.max_parallel)) {
            sweep.waiting.push_back(entry.id);
            ++in_sweeps_;
            return "waits for its sweep: " + std::to_string(entry.max_parallel) +
                   " of it may run at once";
        }
        sweep.active.insert(entry.id);
    }
    queue(entry.user, entry.id);
    return "";
}

void WaitingLine::queue(const std::string& user, const std::string& id) {
    std::deque<std::string>& own = queues_[user];
    if (own.empty()) {
        turns_.push_back(user);
    }
    own.push_back(id);
    ready_[id] = user;
}

void WaitingLine::leave_queue(const std::string& id) {
    const auto found = ready_.find(id);
    if (found == ready_.end()) {
        return;
    }
    const auto own = queues_.find(found->second);
    ready_.erase(found);
    std::erase(own->second, id);
    if (own->second.empty()) {
        turns_.remove(own->first);
        queues_.erase(own);
    }
}

void WaitingLine::occupy(const Entry& entry) {
    if (!entry.sweep.empty() && entry.max_parallel > 0) {
        Sweep& sweep = sweeps_[entry.sweep];
        sweep.max_parallel = entry.max_parallel;
        sweep.user = entry.user;
        sweep.active.insert(entry.id);
        sweep_of_[entry.id] = entry.sweep;
    }
}

void WaitingLine::leave_sweep(const std::string& id, Settled& settled) {
    const auto member = sweep_of_.find(id);
    if (member == sweep_of_.end()) {
        return;
    }
    const auto found = sweeps_.find(member->second);
    sweep_of_.erase(member);
    Sweep& sweep = found->second;
    sweep.active.erase(id);
    in_sweeps_ -= std::erase(sweep.waiting, id);
    while (!sweep.waiting.empty() &&
           sweep.active.size() < static_cast<std::size_t>(sweep.max_parallel)) {
        std::string next = std::move(sweep.waiting.front());
        sweep.waiting.pop_front();
        --in_sweeps_;
        sweep.active.insert(next);
        queue(sweep.user, next);
        settled.ready.push_back(std::move(next));
    }
    if (sweep.active.empty()) {
        sweeps_.erase(found);
    }
}

WaitingLine::Settled WaitingLine::finished(const std::string& id, bool succeeded) {
    Settled settled;
    leave_queue(id);
    if (const auto own = held_up_.find(id); own != held_up_.end()) {
        for (const std::string& other : own->second.after) {
            followers_[other].erase(id);
        }
        held_up_.erase(own);
    }
    leave_sweep(id, settled);
    const auto found = followers_.find(id);
    if (found == followers_.end()) {
        return settled;
    }
    const std::set<std::string> followers = std::move(found->second);
    followers_.erase(found);
    for (const std::string& follower : followers) {
        const auto at = held_up_.find(follower);
        if (at == held_up_.end()) {
            continue;
        }
        at->second.after.erase(id);
        if (!succeeded) {
            settled.failed.push_back(follower);
        } else if (!at->second.after.empty()) {
            settled.waiting.emplace_back(follower, waits_for(at->second.after));
        } else {
            const Entry entry = std::move(at->second);
            held_up_.erase(at);
            if (std::string why = enter(entry); why.empty()) {
                settled.ready.push_back(follower);
            } else {
                settled.waiting.emplace_back(follower, std::move(why));
            }
        }
    }
    return settled;
}

std::string WaitingLine::take_next(const std::function<bool(const std::string& user)>& may) {
    for (auto turn = turns_.begin(); turn != turns_.end(); ++turn) {
        if (may && !may(*turn)) {
            continue;
        }
        const auto own = queues_.find(*turn);
        std::string next = std::move(own->second.front());
        own->second.pop_front();
        ready_.erase(next);
        if (own->second.empty()) {
            queues_.erase(own);
            turns_.erase(turn);
        } else {
            turns_.splice(turns_.end(), turns_, turn);
        }
        return next;
    }
    return "";
}

std::size_t WaitingLine::ahead_of(const std::string& user) const {
    const auto own = queues_.find(user);
    const std::size_t mine = own == queues_.end() ? 0 : own->second.size();
    std::size_t out = mine;
    bool before = true;  // whose turn comes before the user's, in every round
    for (const std::string& other : turns_) {
        if (other == user) {
            before = false;
        } else {
            out += std::min(queues_.at(other).size(), mine + (before ? 1 : 0));
        }
    }
    return out;
}

}  // namespace lockstep
