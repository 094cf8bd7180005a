#include "daemon/control/waiting_line.hpp"

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
        sweep_of_[entry.id] = entry.sweep;
        if (sweep.active.size() >= static_cast<std::size_t>(entry.max_parallel)) {
            sweep.waiting.push_back(entry.id);
            ++in_sweeps_;
            return "waits for its sweep: " + std::to_string(entry.max_parallel) +
                   " of it may run at once";
        }
        sweep.active.insert(entry.id);
    }
    ready_.push_back(entry.id);
    return "";
}

void WaitingLine::occupy(const Entry& entry) {
    if (!entry.sweep.empty() && entry.max_parallel > 0) {
        Sweep& sweep = sweeps_[entry.sweep];
        sweep.max_parallel = entry.max_parallel;
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
        ready_.push_back(next);
        settled.ready.push_back(std::move(next));
    }
    if (sweep.active.empty()) {
        sweeps_.erase(found);
    }
}

WaitingLine::Settled WaitingLine::finished(const std::string& id, bool succeeded) {
    Settled settled;
    std::erase(ready_, id);
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

std::string WaitingLine::take_next() {
    if (ready_.empty()) {
        return "";
    }
    std::string next = std::move(ready_.front());
    ready_.pop_front();
    return next;
}

}  // namespace lockstep
