#include "daemon/http/auth/admission.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

net::ip::address admission_key(const net::ip::address& remote) {
    if (!remote.is_v6()) {
        return remote;
    }
    const auto v6 = remote.to_v6();
    if (v6.is_v4_mapped()) {
        return net::ip::make_address_v4(net::ip::v4_mapped, v6);
    }
    auto bytes = v6.to_bytes();
    std::fill(bytes.begin() + 8, bytes.end(), static_cast<unsigned char>(0));
    return net::ip::address_v6{bytes};
}

ConnectionAdmission::Place::Place(ConnectionAdmission& of, const net::ip::address& remote,
                                  Instant now, std::function<void()> evict)
    : of_(of), key_(admission_key(remote)), since_(now), evict_(std::move(evict)) {
    ++of_.size_;
    ++of_.addresses_[key_];
    List& list = of_.strangers_[key_];
    at_ = list.insert(list.end(), this);
}

ConnectionAdmission::Place::~Place() {
    --of_.size_;
    if (!evict_) {
        --of_.leaving_;
        return;
    }
    if (stranger_) {
        leave_strangers();
    }
    leave_user();
    leave_address();
}

void ConnectionAdmission::Place::leave_address() {
    const auto found = of_.addresses_.find(key_);
    if (--found->second == 0) {
        of_.addresses_.erase(found);
    }
}

void ConnectionAdmission::Place::leave_strangers() {
    stranger_ = false;
    const auto found = of_.strangers_.find(key_);
    found->second.erase(at_);
    if (found->second.empty()) {
        of_.strangers_.erase(found);
    }
}

void ConnectionAdmission::Place::work() {
    if (std::exchange(rests_, false)) {
        of_.users_.find(user_)->second.resting.erase(at_);
    }
}

void ConnectionAdmission::Place::leave_user() {
    if (user_.empty()) {
        return;
    }
    work();
    const auto found = of_.users_.find(user_);
    if (--found->second.count == 0) {
        of_.users_.erase(found);
    }
    user_.clear();
}

bool ConnectionAdmission::Place::known(const std::string& user) {
    if (!evict_ || user_ == user) {
        work();
        return true;
    }
    if (!of_.make_room_of(user)) {
        return false;
    }
    if (stranger_) {
        leave_strangers();
    }
    leave_user();  // a proxy's connection is one user's after another
    user_ = user;
    ++of_.users_[user].count;
    return true;
}

void ConnectionAdmission::Place::active() {
    if (stranger_) {
        List& list = of_.strangers_.find(key_)->second;
        list.splice(list.end(), list, at_);
    } else if (!user_.empty()) {
        work();
        List& list = of_.users_.find(user_)->second.resting;
        at_ = list.insert(list.end(), this);
        rests_ = true;
    }
}

// It stays until it has ended, and does not count any more.
void ConnectionAdmission::send_away(Place& place) {
    if (place.stranger_) {
        place.leave_strangers();
    }
    place.leave_user();
    place.leave_address();
    ++leaving_;
    ++evicted_;
    const auto evict = std::exchange(place.evict_, nullptr);
    evict();  // the place may be gone after this
}

bool ConnectionAdmission::make_room_of(const std::string& user) {
    const auto own = users_.find(user);
    if (caps_.user == 0 || own == users_.end() || own->second.count < caps_.user) {
        return true;
    }
    if (own->second.resting.empty()) {
        return false;
    }
    send_away(*own->second.resting.front());
    return true;
}

bool ConnectionAdmission::evict_oldest(const net::ip::address& key, Instant now) {
    const auto found = strangers_.find(key);
    if (found == strangers_.end()) {
        return false;
    }
    Place& oldest = *found->second.front();
    if (now - oldest.since_ < caps_.patience) {
        return false;
    }
    send_away(oldest);
    return true;
}

bool ConnectionAdmission::make_room(const net::ip::address& remote, Instant now) {
    const auto own = admission_key(remote);
    const auto mine = strangers_.find(own);
    if (mine != strangers_.end() && mine->second.size() >= caps_.strangers) {
        evict_oldest(own, now);
    }
    const bool near = remote.is_loopback() || own.is_loopback();  // ::1, and IPv4 in IPv6
    if (!near && caps_.address > 0) {
        const auto held = addresses_.find(own);
        if (held != addresses_.end() && held->second >= caps_.address && !evict_oldest(own, now)) {
            return false;
        }
    }
    if (staying() + (near ? 0 : caps_.reserved) < caps_.connections) {
        return true;
    }
    // Full: the address with the most connections without a credential loses one.
    const auto most = std::max_element(
        strangers_.begin(), strangers_.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    if (most == strangers_.end()) {
        return false;
    }
    const net::ip::address key = most->first;
    return evict_oldest(key, now);
}

}  // namespace lockstep
