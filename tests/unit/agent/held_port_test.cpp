#include "job/agent/preflight/held_port.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

namespace lockstep::test {
namespace {

std::int32_t first_of_the_kernels_choice() {
    std::int32_t first = 0;
    std::ifstream{"/proc/sys/net/ipv4/ip_local_port_range"} >> first;
    return first;
}

// A launcher binds it seconds after it was let go: another program that had asked the kernel for
// any port was given it meanwhile.
TEST(HeldPort, IsNoneThatSomebodyWhoAsksForAnyPortIsGiven) {
    if (first_of_the_kernels_choice() <= 20'000) {
        GTEST_SKIP() << "this machine's ip_local_port_range leaves no port below it";
    }
    std::set<std::int32_t> seen;
    std::vector<HeldPort> held;
    for (int i = 0; i < 100; ++i) {
        auto port = HeldPort::hold(i % 2 == 0 ? "127.0.0.1" : "::1");
        ASSERT_TRUE(port) << port.error().message;
        EXPECT_LT(port->number(), first_of_the_kernels_choice());
        EXPECT_GE(port->number(), 20'000);
        EXPECT_TRUE(seen.insert(port->number()).second) << "held twice: " << port->number();
        held.push_back(std::move(*port));
    }
}

TEST(HeldPort, TheSameIsHeldAgainOnceItIsFree) {
    auto port = HeldPort::hold("127.0.0.1");
    ASSERT_TRUE(port);
    EXPECT_FALSE(HeldPort::hold("127.0.0.1", port->number()));
    port->release();
    const auto again = HeldPort::hold("127.0.0.1", port->number());
    ASSERT_TRUE(again);
    EXPECT_EQ(again->number(), port->number());
}

}  // namespace
}  // namespace lockstep::test
