// Who is cut off, from who reached whom.
#include "tests/support/sanitized.hpp"
#include "tests/unit/preflight/preflight_nodes.hpp"

#include <gtest/gtest.h>

#include <ctime>
#include <functional>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// Everybody tries its peers at every address; `works(from, to, address)` says what comes of it.
Connections meet(const std::vector<PreflightNode>& nodes,
                 const std::function<bool(std::int32_t, std::int32_t, const std::string&)>& works) {
    std::vector<ProbeResult> results;
    std::set<std::int32_t> all;
    const auto count = static_cast<std::int32_t>(nodes.size());
    for (std::int32_t from = 0; from < count; ++from) {
        all.insert(from);
        for (const std::int32_t to : probe_peers(from, count)) {
            for (const auto& one : nodes[static_cast<std::size_t>(to)].facts.addresses) {
                results.push_back(
                    {from, to, one.address, works(from, to, one.address) ? "" : "refused"});
            }
        }
    }
    return judge_connections(nodes, all, results);
}

TEST(PreflightConnections, PeersAreTheRingAndPowersOfTwo) {
    EXPECT_THAT(probe_peers(0, 1), IsEmpty());
    EXPECT_THAT(probe_peers(0, 2), ElementsAre(1));
    EXPECT_THAT(probe_peers(7, 8), ElementsAre(0, 1, 3, 6));
    EXPECT_THAT(probe_peers(0, 1250), SizeIs(12));  // ⌈log2⌉ and the neighbour before it
    std::vector<int> asked(100);
    for (std::int32_t i = 0; i < 100; ++i) {
        for (const std::int32_t peer : probe_peers(i, 100)) {
            EXPECT_NE(peer, i);
            ++asked[static_cast<std::size_t>(peer)];
        }
    }
    EXPECT_THAT(asked, testing::Each(8));
}

TEST(PreflightConnections, ProvesTheFirstAddressThatAllReach) {
    auto nodes = good_nodes(4);
    for (auto& node : nodes) {
        node.facts.addresses.push_back({"ib0", "10.1.0." + std::to_string(node.slot)});
    }
    const auto all = meet(nodes, [](auto, auto, const auto&) { return true; });
    EXPECT_THAT(all.findings, IsEmpty());
    EXPECT_EQ(all.proven.at(2), "10.0.0.2");
    // eth0 of node 2 leads nowhere: ib0 is given out, and eth0 is named.
    const auto one = meet(nodes, [](auto, auto, const auto& at) { return at != "10.0.0.2"; });
    EXPECT_EQ(one.proven.at(2), "10.1.0.2");
    ASSERT_THAT(one.findings, SizeIs(1));
    EXPECT_EQ(lines(one.findings)[0],
              "n2 interface warn: eth0 10.0.0.2 is not reached by n0, n1, n3: refused");
}

TEST(PreflightConnections, NamesANodeThatIsCutOffAndNoOther) {
    const auto out =
        meet(good_nodes(5), [](auto from, auto to, const auto&) { return from != 3 && to != 3; });
    ASSERT_THAT(out.findings, SizeIs(1)) << testing::PrintToString(lines(out.findings));
    EXPECT_EQ(out.findings[0].node, "n3");
    EXPECT_EQ(out.findings[0].check, "reachable");
    EXPECT_TRUE(out.findings[0].fails);
    EXPECT_EQ(out.proven.count(3), 0U);
    EXPECT_EQ(out.proven.size(), 4U);
}

TEST(PreflightConnections, NamesANodeThatNobodyReaches) {
    const auto out = meet(good_nodes(3), [](auto, auto to, const auto&) { return to != 1; });
    EXPECT_THAT(lines(out.findings),
                ElementsAre("n1 reachable fail: n0, n2 cannot connect to it at "
                            "eth0 10.0.0.1 (refused)"));
}

TEST(PreflightConnections, OfTwoThatDoNotMeetOneIsGivenUpAndBothAreNamed) {
    const auto out = meet(good_nodes(2), [](auto, auto, const auto&) { return false; });
    EXPECT_THAT(lines(out.findings),
                ElementsAre("n1 reachable fail: n0 cannot connect to it at eth0 10.0.0.1 "
                            "(refused), and it cannot connect to n0"));
}

TEST(PreflightConnections, NamesANodeThatConnectsToNobody) {
    const auto out = meet(good_nodes(4), [](auto from, auto, const auto&) { return from != 2; });
    EXPECT_THAT(lines(out.findings),
                ElementsAre("n2 reachable fail: it cannot connect to n0, n1, n3"));
}

// A firewall between some: the node with the most bad pairs, not those it harms.
TEST(PreflightConnections, BlamesAsFewAsExplainWhatFailed) {
    const auto out = meet(good_nodes(4), [](auto from, auto to, const auto&) {
        return (from != 2 && to != 2) || from == 0 || to == 0;
    });
    ASSERT_THAT(out.findings, SizeIs(1)) << testing::PrintToString(lines(out.findings));
    EXPECT_EQ(out.findings[0].node, "n2");
    EXPECT_EQ(out.proven.size(), 3U);
}

TEST(PreflightConnections, AnAddressThatOnlySomeReachIsNotGivenOut) {
    auto nodes = good_nodes(4);
    nodes[2].facts.addresses.push_back({"ib0", "10.1.0.2"});
    const auto out = meet(nodes, [](auto from, auto to, const auto& at) {
        return to != 2 || (at == "10.0.0.2" ? from != 1 : from == 1);
    });
    ASSERT_THAT(out.findings, SizeIs(1));
    EXPECT_TRUE(out.findings[0].fails) << "no address serves them all";
    EXPECT_EQ(out.findings[0].node, "n2");
}

TEST(PreflightConnections, JudgesOnlyThoseThatAreNew) {
    const auto nodes = good_nodes(3);
    const std::vector<ProbeResult> results{{0, 2, "10.0.0.2", "refused"},
                                           {1, 2, "10.0.0.2", "refused"},
                                           {2, 0, "10.0.0.0", ""},
                                           {2, 1, "10.0.0.1", ""}};
    EXPECT_THAT(judge_connections(nodes, {2}, results).findings, SizeIs(1));
    EXPECT_THAT(lines(judge_connections(nodes, {0, 1}, results).findings),
                ElementsAre("n0 reachable fail: it cannot connect to n2",
                            "n1 reachable fail: it cannot connect to n2"));
}

// One of those that train had been too busy to answer, and the spare was given up for it.
TEST(PreflightConnections, OneBadPairWithANodeThatHadPassedIsOnlyWarnedOf) {
    const auto nodes = good_nodes(3);
    const std::vector<ProbeResult> results{{0, 2, "10.0.0.2", "no answer"},
                                           {1, 2, "10.0.0.2", ""},
                                           {2, 0, "10.0.0.0", ""},
                                           {2, 1, "10.0.0.1", ""}};
    const auto spare = judge_connections(nodes, {2}, results);
    EXPECT_THAT(lines(spare.findings),
                ElementsAre("n2 reachable warn: n0 cannot connect to it at eth0 10.0.0.2 (no "
                            "answer)"));
    EXPECT_EQ(spare.proven.at(2), "10.0.0.2") << "as the others say";
    const auto all = judge_connections(nodes, {0, 1, 2}, results);
    ASSERT_THAT(all.findings, SizeIs(1));
    EXPECT_TRUE(all.findings[0].fails) << "of two that are new one has to go";
}

// Two hosts without a route to each other trained, and only one of them was warned of.
TEST(PreflightConnections, APairThatIsRefusedIsNotOnlyWarnedOf) {
    const auto nodes = good_nodes(3);
    const std::vector<ProbeResult> results{{0, 2, "10.0.0.2", "No route to host"},
                                           {1, 2, "10.0.0.2", ""},
                                           {2, 0, "10.0.0.0", "no answer"},
                                           {2, 1, "10.0.0.1", ""}};
    const auto spare = judge_connections(nodes, {2}, results);
    ASSERT_THAT(spare.findings, SizeIs(1));
    EXPECT_TRUE(spare.findings[0].fails);
}

// Each round of the search went over all nodes, and there were as many rounds.
TEST(PreflightConnections, ThousandsThatReachNobodyAreJudgedAtOnce) {
    const std::clock_t begin = std::clock();  // the processor's time: others may need it too
    const auto out = meet(good_nodes(8192), [](auto, auto, const auto&) { return false; });
    EXPECT_LT(std::clock() - begin, (test::kSanitized ? 100 : 10) * CLOCKS_PER_SEC);
    EXPECT_GT(out.findings.size(), 4096U);
}

TEST(PreflightConnections, PeersAndResultsTravelWhole) {
    const std::vector<ProbePeer> peers{{3, 5003, {"10.0.0.3", "fd00::3"}}};
    const auto back = parse_probe_peers(to_json(peers));
    ASSERT_TRUE(back);
    EXPECT_EQ(to_json(*back), to_json(peers));
    const auto results =
        parse_probe_results(to_json(std::vector<ProbeResult>{{-1, 3, "10.0.0.3", "refused"}}), 7);
    ASSERT_TRUE(results);
    EXPECT_EQ(results->front().from, 7);
    EXPECT_EQ(results->front().error, "refused");
    EXPECT_FALSE(parse_probe_peers(Json::object()));
    EXPECT_FALSE(parse_probe_results(Json::array({{{"slot", -4}}}), 7));
}

}  // namespace
}  // namespace lockstep::test
