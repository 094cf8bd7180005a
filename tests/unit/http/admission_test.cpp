// Who gives way to whom when there are too many connections.
#include "daemon/http/auth/admission.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

net::ip::address ip(const std::string& text) {
    return net::ip::make_address(text);
}

class AdmissionTest : public testing::Test {
  protected:
    static constexpr ConnectionAdmission::Instant kStart{1h};

    ConnectionAdmission admission_{ConnectionAdmission::Caps{4, 2, 1s}};
    std::vector<std::unique_ptr<ConnectionAdmission::Place>> places_;
    std::vector<std::size_t> evicted_;

    // Admits one, or says that there is no room.
    bool come(const std::string& from, ConnectionAdmission::Instant now) {
        if (!admission_.make_room(ip(from), now)) {
            return false;
        }
        const std::size_t number = places_.size();
        places_.push_back(std::make_unique<ConnectionAdmission::Place>(
            admission_, ip(from), now, [this, number] { evicted_.push_back(number); }));
        return true;
    }
};

TEST_F(AdmissionTest, TheOldestStrangerOfACrowdedAddressGivesWay) {
    EXPECT_TRUE(come("10.0.0.1", kStart));
    EXPECT_TRUE(come("10.0.0.1", kStart + 100ms));
    EXPECT_TRUE(come("10.0.0.2", kStart));
    EXPECT_TRUE(come("10.0.0.1", kStart + 2s));
    EXPECT_EQ(evicted_, (std::vector<std::size_t>{0}));
    EXPECT_EQ(admission_.evicted(), 1U);
}

TEST_F(AdmissionTest, ABurstIsNoAttack) {
    for (int i = 0; i < 4; ++i) {
        EXPECT_TRUE(come("10.0.0.1", kStart + 10ms * i));
    }
    EXPECT_TRUE(evicted_.empty());
    EXPECT_FALSE(come("10.0.0.1", kStart + 50ms)) << "all of them, then no more";
}

TEST_F(AdmissionTest, WhoHoldsTheMostGivesOneUpWhenAllAreTaken) {
    for (const char* from : {"10.0.0.2", "10.0.0.1", "10.0.0.1", "10.0.0.1"}) {
        EXPECT_TRUE(come(from, kStart));
    }
    EXPECT_TRUE(come("10.0.0.3", kStart + 2s));
    EXPECT_EQ(evicted_, (std::vector<std::size_t>{1}));
}

TEST_F(AdmissionTest, ACredentialIsNeverSentAway) {
    for (int i = 0; i < 4; ++i) {
        EXPECT_TRUE(come("10.0.0.1", kStart));
        places_.back()->known("ada");
    }
    EXPECT_FALSE(come("10.0.0.2", kStart + 1h));
    EXPECT_TRUE(evicted_.empty());
    places_.erase(places_.begin());
    EXPECT_TRUE(come("10.0.0.2", kStart + 1h));
}

TEST_F(AdmissionTest, WhoIsServedHasNotWaited) {
    EXPECT_TRUE(come("10.0.0.1", kStart));
    EXPECT_TRUE(come("10.0.0.1", kStart));
    places_[0]->active();
    EXPECT_TRUE(come("10.0.0.1", kStart + 10s));
    EXPECT_EQ(evicted_, (std::vector<std::size_t>{1}));
}

TEST_F(AdmissionTest, ThoseThatAreLeavingTakeNoRoom) {
    for (int i = 0; i < 4; ++i) {
        EXPECT_TRUE(come("10.0.0." + std::to_string(i), kStart));
    }
    // Nobody has left yet: the evicted connection ends later, on its own.
    EXPECT_TRUE(come("10.0.0.9", kStart + 2s));
    EXPECT_EQ(admission_.size(), 5U);
    EXPECT_TRUE(come("10.0.0.8", kStart + 2s));
    EXPECT_EQ(evicted_.size(), 2U);
    places_.clear();
    EXPECT_EQ(admission_.size(), 0U);
    for (int i = 0; i < 4; ++i) {
        EXPECT_TRUE(come("10.0.0.1", kStart + 3s));
    }
    EXPECT_FALSE(come("10.0.0.1", kStart + 3s));
}

// A token is no licence to hold every connection there is.
TEST(Admission, OneAddressHasSoManyWithACredentialToo) {
    constexpr ConnectionAdmission::Instant kNow{1h};
    ConnectionAdmission admission{ConnectionAdmission::Caps{100, 50, 1h, 3, 0}};
    std::vector<std::unique_ptr<ConnectionAdmission::Place>> places;
    const auto come = [&](const std::string& from) {
        if (!admission.make_room(ip(from), kNow)) {
            return false;
        }
        places.push_back(
            std::make_unique<ConnectionAdmission::Place>(admission, ip(from), kNow, [] {}));
        places.back()->known("ada");
        return true;
    };
    for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(come("10.0.0.1"));
    }
    EXPECT_FALSE(come("10.0.0.1"));
    EXPECT_TRUE(come("10.0.0.2"));
    places.erase(places.begin());
    EXPECT_TRUE(come("10.0.0.1"));
    EXPECT_FALSE(come("10.0.0.1"));
    for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(come(i % 2 == 0 ? "127.0.0.1" : "::1")) << "a proxy of this machine's";
    }
}

// Connections of one user's, as they come through a proxy on this machine, or from it.
class AdmissionOfUsers : public testing::Test {
  protected:
    static constexpr ConnectionAdmission::Instant kNow{1h};

    std::size_t come(const std::string& from = "127.0.0.1") {
        const std::size_t number = places_.size();
        places_.push_back(std::make_unique<ConnectionAdmission::Place>(
            admission_, ip(from), kNow, [this, number] { evicted_.push_back(number); }));
        return number;
    }
    // A request with a token, and its answer.
    bool ask(std::size_t at, const std::string& user) {
        const bool taken = places_[at]->known(user);
        places_[at]->active();
        return taken;
    }

    ConnectionAdmission admission_{ConnectionAdmission::Caps{8, 50, 1h, 0, 0, 2}};
    std::vector<std::unique_ptr<ConnectionAdmission::Place>> places_;
    std::vector<std::size_t> evicted_;
};

// One token of this machine's held all connections, also those reserved for it, and no other user,
// nor the operator, got in.
TEST_F(AdmissionOfUsers, OneUserHasAShareWhereverConnectionsComeFrom) {
    for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(admission_.make_room(ip("127.0.0.1"), kNow)) << i;
        EXPECT_TRUE(ask(come(i % 2 == 0 ? "127.0.0.1" : "10.0.0.1"), "ada"));
    }
    EXPECT_EQ(evicted_.size(), 18U);
    EXPECT_TRUE(admission_.make_room(ip("127.0.0.1"), kNow));
    EXPECT_TRUE(ask(come(), "bob"));
    EXPECT_EQ(evicted_.size(), 18U) << "another user's";
}

TEST_F(AdmissionOfUsers, TheOneThatHasRestedLongestGivesWay) {
    const auto first = come();
    const auto second = come();
    EXPECT_TRUE(ask(first, "ada"));
    EXPECT_TRUE(ask(second, "ada"));
    EXPECT_TRUE(ask(first, "ada"));
    EXPECT_TRUE(ask(come(), "ada"));
    EXPECT_EQ(evicted_, (std::vector<std::size_t>{second}));
    places_.clear();
    EXPECT_EQ(admission_.size(), 0U);
}

TEST_F(AdmissionOfUsers, WhatIsAtWorkIsNotCutOff) {
    const auto first = come();
    const auto second = come();
    EXPECT_TRUE(places_[first]->known("ada"));
    EXPECT_TRUE(places_[second]->known("ada"));
    EXPECT_FALSE(places_[come()]->known("ada"));
    EXPECT_TRUE(evicted_.empty());
    places_[second]->active();
    EXPECT_TRUE(places_[come()]->known("ada"));
    EXPECT_EQ(evicted_, (std::vector<std::size_t>{second}));
    // What was sent away and works on to its end counts no more.
    EXPECT_TRUE(ask(second, "ada"));
    EXPECT_EQ(evicted_.size(), 1U);
}

TEST_F(AdmissionOfUsers, AProxysConnectionIsOneUsersAfterAnother) {
    const auto shared = come();
    EXPECT_TRUE(ask(shared, "ada"));
    EXPECT_TRUE(ask(shared, "bob"));
    EXPECT_TRUE(ask(come(), "ada"));
    EXPECT_TRUE(ask(come(), "ada"));
    EXPECT_TRUE(evicted_.empty());
    EXPECT_TRUE(ask(shared, "ada"));
    EXPECT_EQ(evicted_.size(), 1U);
}

TEST(Admission, AStrangerOfAFullAddressGivesWayToItsNext) {
    constexpr ConnectionAdmission::Instant kNow{1h};
    ConnectionAdmission admission{ConnectionAdmission::Caps{100, 50, 1s, 2, 0}};
    int evicted = 0;
    const auto place = [&](ConnectionAdmission::Instant now) {
        return std::make_unique<ConnectionAdmission::Place>(admission, ip("10.0.0.1"), now,
                                                            [&] { ++evicted; });
    };
    const auto known = place(kNow);
    known->known("ada");
    auto stranger = place(kNow);
    EXPECT_FALSE(admission.make_room(ip("10.0.0.1"), kNow)) << "a burst";
    EXPECT_TRUE(admission.make_room(ip("10.0.0.1"), kNow + 2s));
    EXPECT_EQ(evicted, 1);
    auto next = place(kNow + 2s);
    stranger.reset();
    EXPECT_FALSE(admission.make_room(ip("10.0.0.1"), kNow + 2s));
    next.reset();
    EXPECT_TRUE(admission.make_room(ip("10.0.0.1"), kNow + 2s));
}

TEST(Admission, SomeConnectionsAreForThisMachineAlone) {
    constexpr ConnectionAdmission::Instant kNow{1h};
    ConnectionAdmission admission{ConnectionAdmission::Caps{4, 50, 1h, 0, 2}};
    std::vector<std::unique_ptr<ConnectionAdmission::Place>> places;
    const auto come = [&](const std::string& from) {
        if (!admission.make_room(ip(from), kNow)) {
            return false;
        }
        places.push_back(
            std::make_unique<ConnectionAdmission::Place>(admission, ip(from), kNow, [] {}));
        places.back()->known("ada");
        return true;
    };
    EXPECT_TRUE(come("10.0.0.1"));
    EXPECT_TRUE(come("10.0.0.2"));
    EXPECT_FALSE(come("10.0.0.3"));
    EXPECT_TRUE(come("127.0.0.1"));
    EXPECT_TRUE(come("127.0.0.2"));
    EXPECT_FALSE(come("127.0.0.1")) << "all of them";
}

TEST_F(AdmissionTest, AnIPv6HostIsItsNetwork) {
    EXPECT_EQ(admission_key(ip("2001:db8::1")), admission_key(ip("2001:db8::ffff:1:2:3")));
    EXPECT_NE(admission_key(ip("2001:db8::1")), admission_key(ip("2001:db8:0:1::1")));
    EXPECT_EQ(admission_key(ip("::ffff:10.0.0.1")), ip("10.0.0.1"));
}

}  // namespace
}  // namespace lockstep
