#include "daemon/control/jobs/hand_over_window.hpp"

#include "job/base/limits.hpp"

#include <algorithm>

namespace lockstep {

std::size_t HandOverWindow::places(const Share& share) const {
    return share.there + (share.aside > size_ ? share.aside - size_ : 0);
}

void HandOverWindow::set_size(std::size_t jobs) {
    if (jobs == size_) {
        return;
    }
    size_ = jobs;
    taken_ = 0;
    for (const auto& [user, share] : users_) {
        taken_ += places(share);
    }
}

bool HandOverWindow::takes(const std::string& user) const {
    if (taken_ < size_) {
        return true;
    }
    const auto own = users_.find(user);
    const std::size_t has = own == users_.end() ? 0 : places(own->second);
    const std::size_t least =
        taken_ < 2 * size_ ? std::max<std::size_t>(1, size_ / limits::kWindowShare) : 1;
    return has < least;
}

void HandOverWindow::count(const Place& place, bool in) {
    Share& share = users_[place.user];
    taken_ -= places(share);
    std::size_t& number = place.aside ? share.aside : share.there;
    number = in ? number + 1 : number - 1;
    taken_ += places(share);
    if (share.there + share.aside == 0) {
        users_.erase(place.user);
    }
}

void HandOverWindow::enter(const std::string& job, const std::string& user) {
    const auto [at, fresh] = jobs_.try_emplace(job, Place{user, false});
    if (fresh) {
        count(at->second, true);
    }
}

void HandOverWindow::set_aside(const std::string& job, bool aside) {
    const auto at = jobs_.find(job);
    if (at == jobs_.end() || at->second.aside == aside) {
        return;
    }
    count(at->second, false);
    at->second.aside = aside;
    count(at->second, true);
}

void HandOverWindow::leave(const std::string& job) {
    const auto at = jobs_.find(job);
    if (at != jobs_.end()) {
        count(at->second, false);
        jobs_.erase(at);
    }
}

}  // namespace lockstep
