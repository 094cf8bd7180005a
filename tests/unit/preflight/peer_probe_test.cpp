// Two agents that connect to each other, over real sockets.
#include "job/agent/preflight/peer_probe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class PeerProbeTest : public testing::Test {
  protected:
    PeerProbeTest() { b_port = b.listen("127.0.0.1"); }
    // What `a` finds out about `peers`, by address.
    std::map<std::string, std::string> probe(std::vector<ProbePeer> peers,
                                             PeerProbe* other = nullptr) {
        return probe_from(a, std::move(peers), other);
    }
    std::map<std::string, std::string> probe_from(PeerProbe& from, std::vector<ProbePeer> peers,
                                                  PeerProbe* other = nullptr) {
        std::map<std::string, std::string> out;
        bool done = false;
        from.probe(std::move(peers), [&](std::vector<ProbeResult> results) {
            for (const ProbeResult& one : results) {
                out[one.address] = one.error;
            }
            done = true;
        });
        while (!done && io.run_one_for(std::chrono::seconds{60}) > 0) {
        }
        EXPECT_TRUE(done);
        a.stop();
        b.stop();
        if (other != nullptr) {
            other->stop();
        }
        io.run();  // and no coroutine is left behind
        return out;
    }
    net::io_context io{1};
    TaskGroup tasks{io};
    // Whoever answers does so in time, also where the machine stands still for seconds.
    PeerProbe a{tasks, 0, "the ticket", {milliseconds{20'000}, milliseconds{10'000}}};
    PeerProbe b{tasks, 1, "the ticket"};
    std::int32_t b_port = 0;
};

TEST_F(PeerProbeTest, ReachesAPeerAtEachOfItsAddresses) {
    ASSERT_GT(b_port, 0);
    EXPECT_EQ(b.listen("127.0.0.1"), b_port);
    const auto found = probe({{1, b_port, {"127.0.0.1", "127.0.0.7"}}});
    EXPECT_EQ(found, (std::map<std::string, std::string>{{"127.0.0.1", ""}, {"127.0.0.7", ""}}));
}

TEST_F(PeerProbeTest, AnAddressAtWhichAnotherNodeAnswersIsNotItsOwn) {
    EXPECT_THAT(probe({{2, b_port, {"127.0.0.1"}}})["127.0.0.1"], HasSubstr("another node"));
}

TEST_F(PeerProbeTest, AnAgentOfAnotherAttemptIsNoPeer) {
    PeerProbe stranger{tasks, 1, "another ticket"};
    const auto port = stranger.listen("127.0.0.1");
    EXPECT_THAT(probe({{1, port, {"127.0.0.1"}}}, &stranger)["127.0.0.1"],
                HasSubstr("another program"));
}

TEST_F(PeerProbeTest, NamesWhatIsNoAddressOrHasNoListener) {
    tcp::acceptor closed{io, {net::ip::make_address("127.0.0.1"), 0}};
    const std::int32_t port = closed.local_endpoint().port();
    closed.close();
    const auto found = probe({{1, port, {"127.0.0.1", "n1"}}});
    EXPECT_THAT(found.at("127.0.0.1"), HasSubstr("refused"));
    EXPECT_EQ(found.at("n1"), "not an IP address");
}

// A listener that never accepts nor answers: the kernel takes the connection, nobody reads it.
TEST_F(PeerProbeTest, AnAddressThatKeepsSilentIsGivenUpInTime) {
    tcp::acceptor silent{io, {net::ip::make_address("127.0.0.9"), static_cast<std::uint16_t>(0)}};
    const std::int32_t port = silent.local_endpoint().port();
    const auto began = std::chrono::steady_clock::now();
    PeerProbe quick{tasks, 0, "the ticket", {milliseconds{5'000}, milliseconds{500}}};
    const auto found = probe_from(quick, {{1, b_port, {"127.0.0.1"}}, {1, port, {"127.0.0.9"}}});
    EXPECT_EQ(found.at("127.0.0.1"), "");
    EXPECT_EQ(found.at("127.0.0.9"), "no answer");
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds{60});
}

TEST_F(PeerProbeTest, NoPeersIsAnAnswerToo) {
    EXPECT_TRUE(probe({}).empty());
}

}  // namespace
}  // namespace lockstep
