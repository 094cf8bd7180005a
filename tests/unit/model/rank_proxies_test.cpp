// A rank's proxies, and whom it does not reach through them.
#include "tests/unit/model/rank_contract.hpp"

#include <gtest/gtest.h>

namespace lockstep::test {
namespace {

TEST(RankProxies, TheyAreKeptButNotBetweenRanks) {
    const auto out = rank_environment(spec(Framework::pytorch), place(),
                                      {{"https_proxy", "http://p:1"}, {"no_proxy", ".corp"}});
    EXPECT_EQ(out.at("https_proxy"), "http://p:1");
    EXPECT_EQ(out.at("no_proxy"), ".corp,localhost,127.0.0.1,10.0.0.2,10.0.0.1,n1,n2");
    EXPECT_EQ(out.at("NO_PROXY"), out.at("no_proxy"));
}

TEST(RankProxies, NoProxyNamesTheAddressesThatRanksAreToldToConnectTo) {
    RankPlace first = place();
    first.endpoints = {"10.0.0.1:5000",      "10.0.0.1:5001",     "10.0.0.2:5000",
                       "10.0.0.2:5001",      "10.0.0.3:5000",     "10.0.0.3:5001",
                       "[fd00::1:2:3]:5000", "[fd00::1:2:3]:5001"};
    const Variables recorded{
        {"http_proxy", "http://p:1"}, {"NO_PROXY", "localhost,n2"}, {"no_grpc_proxy", ".corp"}};
    const auto out = rank_environment(spec(Framework::tensorflow), first, recorded);
    const std::string peers = "127.0.0.1,10.0.0.2,10.0.0.1,10.0.0.3,fd00::1:2:3,n1";
    EXPECT_EQ(out.at("no_proxy"), "localhost,n2," + peers);
    EXPECT_EQ(out.at("NO_PROXY"), out.at("no_proxy"));
    EXPECT_EQ(out.at("no_grpc_proxy"), ".corp,localhost," + peers + ",n2");
    EXPECT_EQ(
        rank_environment(spec(Framework::tensorflow), first, {{"grpc_proxy", "p"}}).at("no_proxy"),
        "localhost," + peers + ",n2");
}

TEST(RankProxies, NoProxyOfManyNodesStillFitsIntoOneVariable) {
    RankPlace of = place();
    of.hosts.clear();
    for (std::int32_t node = 0; node < 4096; ++node) {
        const std::string number = std::to_string(10000 + node);
        const std::string address = "10.100." + number.substr(1, 2) + ".1" + number.substr(3);
        of.endpoints.push_back(address + ":50000");
        of.hosts.push_back("node-" + number + ".compute.cluster.example.org");
    }
    const auto out =
        rank_environment(spec(Framework::tensorflow), of, {{"http_proxy", "http://p:1"}});
    EXPECT_LT(out.at("no_proxy").size() + sizeof("no_proxy="), 128U << 10U);
    EXPECT_NE(out.at("no_proxy").find(",10.100.40.195,"), std::string::npos)
        << "what they connect to comes first";
}

}  // namespace
}  // namespace lockstep::test
