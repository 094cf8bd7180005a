#include "job/agent/node/held_ports.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep {
namespace {

const std::string kHere = "127.0.0.1";

// Of one node with `ports` as its ranks' endpoints.
wire::World world_of(std::int32_t master, std::vector<std::int32_t> ports) {
    wire::World out;
    out.generation = 1;
    out.nodes = 1;
    out.world_size = out.local_ranks = static_cast<std::int32_t>(ports.size());
    out.master_port = master;
    out.hosts = {"h"};
    out.addresses = {kHere};
    out.ports = std::move(ports);
    return out;
}

TEST(HeldPorts, KeepsWhatItHoldsAndHoldsTheSameNumbersAgain) {
    HeldPorts ports;
    ASSERT_TRUE(ports.hold(kHere, {2, true}));
    const std::int32_t master = ports.master()->number();
    const auto ranks = ports.ranks();
    ASSERT_EQ(ranks.size(), 2U);
    EXPECT_NE(ports.ras(), 0);
    ASSERT_TRUE(ports.hold(kHere, {2, true}));
    EXPECT_EQ(ports.ranks(), ranks);

    ports.release(world_of(master, ranks), false);
    EXPECT_FALSE(ports.master()->held());
    EXPECT_TRUE(HeldPort::hold(kHere, ranks[0]).has_value()) << "a rank can bind it";
    ports.hold_again(kHere);
    EXPECT_TRUE(ports.master()->held());
    EXPECT_EQ(ports.master()->number(), master);
    EXPECT_EQ(ports.ranks(), ranks);
}

TEST(HeldPorts, TheMasterPortStaysHeldIfTheAgentServesOnIt) {
    HeldPorts ports;
    ASSERT_TRUE(ports.hold(kHere, {}));
    EXPECT_EQ(ports.ras(), 0);
    ports.release(world_of(ports.master()->number(), {1}), true);
    EXPECT_TRUE(ports.master()->held());
}

TEST(HeldPorts, TheDaemonsEndpointsMustBeTheOnesThatAreHeld) {
    HeldPorts ports;
    ASSERT_TRUE(ports.hold(kHere, {2, false}));
    const auto ranks = ports.ranks();
    EXPECT_TRUE(ports.check(world_of(1, ranks), true));
    const Status other = ports.check(world_of(1, {ranks[1], ranks[0]}), true);
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().code, Errc::conflict);
    const Status none = ports.check(world_of(1, ranks), false);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, Errc::invalid);
}

}  // namespace
}  // namespace lockstep
