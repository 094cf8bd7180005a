#include "daemon/control/base/fair_turns.hpp"

namespace lockstep {

Task<Result<FairTurns::Turn>> FairTurns::wait(std::string who) {
    if (closed_) {
        co_return fail(Errc::unavailable, "the daemon is stopping");
    }
    if (free_ > 0) {
        --free_;
        co_return Turn{*this};
    }
    auto& line = lines_[who];
    if (line.size() >= most_waiting_) {
        co_return fail(Errc::exhausted, "too many questions of yours wait to be answered");
    }
    if (line.empty()) {
        order_.push_back(who);
    }
    const auto waiter = std::make_shared<Waiter>(io_);
    line.push_back(waiter);
    ++waiting_;
    ErrorCode ec;
    co_await waiter->timer.async_wait(into(ec));
    if (!waiter->granted) {
        co_return fail(Errc::unavailable, "the daemon is stopping");
    }
    co_return Turn{*this};
}

void FairTurns::release() {
    if (order_.empty()) {
        ++free_;
        return;
    }
    const auto line = lines_.find(order_.front());
    const auto waiter = line->second.front();
    line->second.pop_front();
    --waiting_;
    if (line->second.empty()) {
        lines_.erase(line);
        order_.pop_front();
    } else {
        order_.splice(order_.end(), order_, order_.begin());
    }
    waiter->granted = true;
    waiter->timer.cancel();
}

void FairTurns::close() {
    closed_ = true;
    for (const auto& [who, line] : lines_) {
        for (const auto& waiter : line) {
            waiter->timer.cancel();
        }
    }
    lines_.clear();
    order_.clear();
    waiting_ = 0;
}

}  // namespace lockstep
