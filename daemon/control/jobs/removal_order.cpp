#include "daemon/control/jobs/removal_order.hpp"

#include <utility>

namespace lockstep {

void RemovalOrder::add(Place place, bool may_go) {
    OfUser& user = users_[place.user];
    user.bytes += place.bytes;
    bytes_ += place.bytes;
    if (may_go) {
        user.may_go.push_back(std::move(place));
    }
}

std::optional<RemovalOrder::Place> RemovalOrder::next() {
    OfUser* most = nullptr;
    for (auto& [name, user] : users_) {
        if (user.given == user.may_go.size()) {
            continue;
        }
        const bool first = most == nullptr || user.bytes > most->bytes ||
                           (user.bytes == most->bytes && user.may_go[user.given].finished_at <
                                                             most->may_go[most->given].finished_at);
        most = first ? &user : most;
    }
    if (most == nullptr) {
        return std::nullopt;
    }
    return most->may_go[most->given++];
}

void RemovalOrder::gone(const Place& place) {
    users_[place.user].bytes -= place.bytes;
    bytes_ -= place.bytes;
}

}  // namespace lockstep
