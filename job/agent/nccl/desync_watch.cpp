#include "job/agent/nccl/desync_watch.hpp"

#include <algorithm>
#include <iterator>

namespace lockstep {
namespace {

// Counts alone are told no more often than this; a lag that changes at once.
constexpr auto kRowsEvery = std::chrono::seconds{10};

// One that RAS has lost ("unknown", −1) is nobody else's.
std::string process_name(const RasCommunicator& where, std::int32_t place, const std::string& host,
                         std::int64_t pid) {
    return pid > 0 ? host + " " + std::to_string(pid) : where.key + " " + std::to_string(place);
}

std::int64_t sum(const std::map<std::string, std::int64_t>& launched) {
    std::int64_t out = 0;
    for (const auto& one : launched) {
        out += one.second;
    }
    return out;
}

// The operation that others wait in: of what one has launched less than they, if that is of one
// kind only. `mine` is what it had launched when it answered last; unless it answers `now`, the
// others may have gone far beyond that before it stopped, and wait in their newest.
std::string awaited_operation(const std::map<std::string, std::int64_t>& mine,
                              const std::map<std::string, std::int64_t>& theirs, bool now) {
    const std::string any =
        "collective operation " + std::to_string(now ? sum(mine) + 1 : sum(theirs));
    std::string out;
    for (const auto& [name, count] : theirs) {
        const auto found = mine.find(name);
        const std::int64_t own = found == mine.end() ? 0 : found->second;
        if (count > own) {
            if (!out.empty()) {
                return any;
            }
            out = name + " " + std::to_string(now ? own + 1 : count);
        }
    }
    return out.empty() ? any : out;
}

}  // namespace

// A communicator of all ranks whose numbers are those of the job, as far as this node can tell.
bool DesyncWatch::is_of_all(const RasCommunicator& communicator) const {
    if (communicator.size != job_.world_size) {
        return false;
    }
    bool any = false;
    for (const RasRank& one : communicator.ranks) {
        if (one.rank >= job_.first_rank && one.rank < job_.first_rank + job_.local_ranks) {
            if (local_rank_(one.pid) != std::optional{one.rank}) {
                return false;
            }
            any = true;
        }
    }
    return any;
}

void DesyncWatch::learn(const RasStatus& status) {
    for (const RasCommunicator& communicator : status.communicators) {
        if (!is_of_all(communicator)) {
            continue;
        }
        for (const RasRank& one : communicator.ranks) {
            if (one.pid > 0) {
                processes_[process_name(communicator, one.rank, one.host, one.pid)] = one.rank;
            }
        }
    }
}

std::int32_t DesyncWatch::rank_of(const RasCommunicator& communicator, bool of_all,
                                  std::int32_t place, const std::string& process,
                                  std::int64_t pid) const {
    if (of_all) {
        return place;
    }
    if (const auto found = processes_.find(process); found != processes_.end()) {
        return found->second;
    }
    const bool all_here = job_.local_ranks == job_.world_size;
    return all_here && communicator.size <= job_.world_size ? local_rank_(pid).value_or(-1) : -1;
}

std::int64_t DesyncWatch::front_of(const std::vector<Member>& members) {
    std::int64_t front = 0;
    for (const Member& one : members) {
        front = std::max(front, one.total);
    }
    return front;
}

// Whether RAS has lost ranks that NCCL has not: of several that are silent it may be RAS that is
// cut off, and without one that has really stopped the others do not get far from where they were
// when it was first found silent. How far they are from its own last count says nothing: between
// two looks a fast job launches hundreds.
bool DesyncWatch::is_out_of_touch(const std::vector<Member>& members) {
    constexpr std::int64_t kRunAhead = 64;  // launched before somebody waits for the first of them
    const std::int64_t front = front_of(members);
    const auto silent =
        std::count_if(members.begin(), members.end(), [](const Member& one) { return one.silent; });
    return silent > 1 || std::any_of(members.begin(), members.end(), [front](const Member& one) {
               return one.silent && front - one.silent_at > kRunAhead;
           });
}

DesyncWatch::Standing DesyncWatch::standing(const RasCommunicator& communicator, TimePoint now) {
    Standing out;
    out.communicator = &communicator;
    const auto known = past_.find(communicator.key);
    const bool of_all = is_of_all(communicator);
    for (const RasRank& one : communicator.ranks) {
        Member member;
        member.process = process_name(communicator, one.rank, one.host, one.pid);
        member.rank = rank_of(communicator, of_all, one.rank, member.process, one.pid);
        member.place = one.rank;
        member.launched = one.launched;
        member.total = one.total();
        out.usable = out.usable && one.in_use;
        out.members.push_back(std::move(member));
    }
    for (const RasMissing& one : communicator.missing) {
        Member member;
        member.process = process_name(communicator, one.rank, one.host, one.pid);
        member.rank = rank_of(communicator, of_all, one.rank, member.process, one.pid);
        member.place = one.rank;
        member.silent = true;
        member.dead = one.dead;
        const auto before = known == past_.end() ? decltype(Past::launched)::const_iterator{}
                                                 : known->second.launched.find(one.rank);
        // One that answers is no member any more; of one that never answered nothing is known.
        if (known == past_.end() || before == known->second.launched.end() || !one.unresponsive) {
            out.usable = false;
            continue;
        }
        member.launched = before->second;
        member.total = sum(member.launched);
        const auto first = known->second.silent_at.find(one.rank);
        member.silent_at = first == known->second.silent_at.end()
                               ? std::max(front_of(out.members), member.total)
                               : first->second;
        out.members.push_back(std::move(member));
    }
    out.usable = out.usable && !is_out_of_touch(out.members) && communicator.size > 1 &&
                 out.members.size() == static_cast<std::size_t>(communicator.size);
    Past next;
    for (const Member& one : out.members) {
        next.launched[one.place] = one.launched;
        if (one.silent) {
            next.silent_at[one.place] = one.silent_at;
        }
    }
    out.still = known != past_.end() && known->second.launched == next.launched;
    out.since = out.still ? known->second.since : now;
    compare(out);
    if (known != past_.end() && !out.still && known->second.waited) {
        slow_ = std::max(slow_, now - known->second.since);
    }
    next.since = out.since;
    next.waited = out.still && !out.behind.empty();
    past_[communicator.key] = std::move(next);
    return out;
}

void DesyncWatch::compare(Standing& one) {
    if (!one.usable) {
        return;
    }
    const auto [least, most] =
        std::minmax_element(one.members.begin(), one.members.end(),
                            [](const Member& a, const Member& b) { return a.total < b.total; });
    if (least->total < most->total) {
        for (const Member& member : one.members) {
            (member.total == least->total ? one.behind : one.waiting).push_back(&member);
        }
        return;
    }
    // As many each: is there one that has done other things than all the rest, who agree? Of three
    // two belong to the rest. One pass: this is every look at a healthy job.
    if (one.members.size() < 3) {
        return;
    }
    const auto& first = one.members[0].launched;
    const auto& second = one.members[1].launched;
    const auto& crowd = first == second || first == one.members[2].launched ? first : second;
    const Member* odd = nullptr;
    for (const Member& member : one.members) {
        if (member.launched == crowd) {
            continue;
        }
        if (odd != nullptr) {
            return;
        }
        odd = &member;
    }
    if (odd == nullptr) {
        return;
    }
    one.differ = true;
    one.behind.push_back(odd);
    for (const Member& member : one.members) {
        if (&member != odd) {
            one.waiting.push_back(&member);
        }
    }
}

DesyncWatch::Seen DesyncWatch::take(const RasStatus& status, TimePoint now) {
    Seen out;
    learn(status);
    std::map<std::string, Past> before = past_;  // what was launched until now
    std::vector<Standing> all;
    all.reserve(status.communicators.size());
    std::set<std::string> here;
    std::map<std::int32_t, std::int64_t> launched;
    for (const RasCommunicator& communicator : status.communicators) {
        all.push_back(standing(communicator, now));
        here.insert(communicator.key);
        const auto known = before.find(communicator.key);
        for (const Member& member : all.back().members) {
            std::int64_t last = 0;
            if (known != before.end()) {
                const auto found = known->second.launched.find(member.place);
                last = found == known->second.launched.end() ? 0 : sum(found->second);
            }
            if (member.rank >= 0) {
                told_[member.rank].launched += std::max<std::int64_t>(0, member.total - last);
            }
        }
    }
    // RAS may leave one out of an answer: what it had launched would be counted again.
    for (auto& [key, past] : past_) {
        past.missed += here.contains(key) ? 0 : 1;
    }
    std::erase_if(past_, [](const auto& one) {
        constexpr int kLooks = 5;
        return one.second.missed > kLooks;
    });
    add_rows(all, now, out);
    out.account = account_of(all, now);
    if (named_ && has_gone_on(all)) {
        named_.reset();
    }
    if (!named_) {
        name(all, now);
    }
    if (named_) {
        out.waited_for = named_->finding;
        out.waited_for->waited = now - named_->since;
    }
    return out;
}

void DesyncWatch::add_rows(const std::vector<Standing>& all, TimePoint now, Seen& out) {
    std::map<std::int32_t, std::int64_t> lag;
    for (const Standing& one : all) {
        const std::int64_t front = front_of(one.members);
        for (const Member& member : one.members) {
            if (member.rank >= 0) {
                const std::int64_t mine = one.still && one.usable ? behind_by(member, front) : 0;
                lag[member.rank] = std::max(lag[member.rank], mine);
            }
        }
    }
    for (const auto& [rank, behind] : lag) {
        Told& told = told_[rank];
        const bool due = !told.at || now - *told.at >= kRowsEvery;
        if (told.lag != behind || !told.at || (due && told.launched > 0)) {
            out.rows.push_back({rank, told.launched, behind});
            told = {0, behind, now};
        }
    }
}

// It stays named until its communicator goes on: any of its ranks, since without one that is waited
// for none does. Where the communicator is gone, until one of its processes launches more in
// another: while a job is ended, communicators go before their processes.
bool DesyncWatch::has_gone_on(const std::vector<Standing>& all) const {
    for (const Standing& one : all) {
        if (one.communicator->key == named_->key) {
            return launched_by_all(one.members) > named_->launched;
        }
    }
    for (const auto& [process, launched] : launched_by_process(all, "")) {
        const auto before = named_->elsewhere.find(process);
        if (before != named_->elsewhere.end() && launched > before->second) {
            return true;
        }
    }
    return false;
}

std::int64_t DesyncWatch::launched_by_all(const std::vector<Member>& members) {
    std::int64_t out = 0;
    for (const Member& one : members) {
        out += one.total;
    }
    return out;
}

// In all communicators but one.
std::map<std::string, std::int64_t> DesyncWatch::launched_by_process(
    const std::vector<Standing>& all, const std::string& without) {
    std::map<std::string, std::int64_t> out;
    for (const Standing& one : all) {
        for (const Member& member : one.members) {
            out[member.process] += one.communicator->key == without ? 0 : member.total;
        }
    }
    return out;
}

// Whether it may wait where nothing is counted.
bool DesyncWatch::may_wait_unseen(const std::vector<Standing>& all, const std::string& process) {
    return std::any_of(all.begin(), all.end(), [&process](const Standing& one) {
        const bool member =
            std::any_of(one.members.begin(), one.members.end(),
                        [&process](const Member& other) { return other.process == process; });
        const bool unused = std::all_of(one.members.begin(), one.members.end(),
                                        [](const Member& other) { return other.total == 0; });
        return member && one.communicator->size > 1 && (!one.usable || unused);
    });
}

std::string DesyncWatch::words(const Standing& where, const Member& who) {
    const std::size_t others = where.waiting.size();
    const std::string whose = " of NCCL's communicator " + where.communicator->name;
    const std::string wait = others == 1 ? "1 rank waits" : std::to_string(others) + " ranks wait";
    const std::string next =
        awaited_operation(who.launched, where.waiting.front()->launched, !who.silent);
    std::string out = "rank " + std::to_string(who.rank);
    if (who.silent) {
        out += who.dead ? " is dead to NCCL's RAS" : " does not answer NCCL's RAS";
        return out + ", and " + wait + " for it in " + next + whose;
    }
    if (where.differ) {
        return out + " has launched something else than " + next + whose + ", where the other " +
               wait + " for it";
    }
    return out + " has not launched " + next + whose + ", where " + wait + " for it";
}

void DesyncWatch::name(const std::vector<Standing>& all, TimePoint now) {
    std::set<std::string> waiting;
    for (const Standing& one : all) {
        for (const Member* member : one.waiting) {
            if (one.still) {
                waiting.insert(member->process);
            }
        }
    }
    const Standing* where = nullptr;
    const Member* who = nullptr;
    for (const Standing& one : all) {
        for (const Member* member : one.behind) {
            if (!one.still || waiting.contains(member->process)) {
                continue;
            }
            if (who != nullptr && who->process != member->process) {
                return;  // nobody knows which of them
            }
            // The communicator that waits the longest.
            if (who == nullptr || one.since < where->since) {
                where = &one;
                who = member;
            }
        }
    }
    if (who == nullptr || who->rank < 0 || now - where->since < std::max(least_, 2 * slow_) ||
        may_wait_unseen(all, who->process)) {
        return;
    }
    Named named;
    named.since = where->since;
    named.key = where->communicator->key;
    named.launched = launched_by_all(where->members);
    named.elsewhere = launched_by_process(all, named.key);
    named.finding.rank = who->rank;
    named.finding.message = words(*where, *who);
    named_ = std::move(named);
}

}  // namespace lockstep
