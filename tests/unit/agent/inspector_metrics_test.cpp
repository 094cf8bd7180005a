// What NCCL's Inspector posts, as its plugin has written it and as others might.
#include "job/agent/nccl/inspector_metrics.hpp"

#include "job/agent/nccl/ras_status.hpp"
#include "tests/unit/agent/inspector_fixture.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::test {
namespace {

std::size_t place(std::string_view operation, bool many) {
    const auto found = std::find(kNcclOperations.begin(), kNcclOperations.end(), operation);
    return nccl_bandwidth_place(static_cast<std::size_t>(found - kNcclOperations.begin()),
                                many ? 1 : 0);
}

// What NCCL 2.32.3 said of four ranks of torch that shared an H200.
TEST(RasStatus, ReadsWhatARealNcclHasSaid) {
    const auto status = parse_ras_status(fixture("../nccl/status-2.32.3.json"));
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(status->version, "2.32.3");
    ASSERT_EQ(status->communicators.size(), 1U);
    const RasCommunicator& all = status->communicators[0];
    EXPECT_EQ(all.name, "0x9b29b68130ce7a2e");
    EXPECT_EQ(all.size, 4);
    EXPECT_TRUE(all.missing.empty());
    ASSERT_EQ(all.ranks.size(), 4U);
    for (const RasRank& one : all.ranks) {
        EXPECT_TRUE(one.in_use);
        EXPECT_EQ(one.launched.at("AllReduce"), 460);
        EXPECT_EQ(one.total(), 460);
    }
}

TEST(InspectorMetrics, ReadsWhatThePluginHasPostedOfWholeIntervals) {
    const auto post = parse_inspector_post(fixture("aggregated.json"));
    ASSERT_TRUE(post) << post.error().message;
    EXPECT_EQ(post->skipped, 0U);
    const auto& reduce = post->by_place[place("all_reduce", true)];
    ASSERT_TRUE(reduce);
    // 64 MiB in 4 ms among four: 64 MiB ÷ 4 ms × 2 × 3 ÷ 4, not that of the 1 MiB beside it.
    EXPECT_NEAR(reduce->bytes_per_second, 67'108'864 / 0.004 * 1.5, 1);
    EXPECT_DOUBLE_EQ(reduce->seconds, 0.004);
    EXPECT_EQ(reduce->bytes, 64U << 20U);
    EXPECT_EQ(reduce->ranks, 4U);
    EXPECT_EQ(reduce->values, 2U);
    EXPECT_NEAR(post->by_place[place("reduce_scatter", true)]->bytes_per_second, 2.62144e9, 1);
    EXPECT_NEAR(post->by_place[place("all_gather", false)]->bytes_per_second, 4.36906666e9, 10);
    EXPECT_NEAR(post->by_place[place("broadcast", false)]->bytes_per_second, 3.2768e9, 1);
    EXPECT_FALSE(post->by_place[place("all_reduce", false)]);
}

TEST(InspectorMetrics, ReadsWhatThePluginHasPostedOfEachOperation) {
    const auto post = parse_inspector_post(fixture("verbose.json"));
    ASSERT_TRUE(post) << post.error().message;
    const auto& reduce = post->by_place[place("all_reduce", true)];
    ASSERT_TRUE(reduce);
    EXPECT_EQ(reduce->values, 2U);
    EXPECT_EQ(reduce->bytes, 1U << 20U);
    EXPECT_NEAR(reduce->bytes_per_second, 1'048'576 / 0.001 * 1.5, 1) << "the slower of the two";
    EXPECT_DOUBLE_EQ(reduce->seconds, 0.001);
}

TEST(InspectorMetrics, OperationsBetweenTwoRanksHaveNamesOfTheirOwn) {
    std::string text = replaced(fixture("aggregated.json"), "nccl_bus_bandwidth_gbs",
                                "nccl_p2p_bus_bandwidth_gbs");
    text = replaced(replaced(text, "\"collective\"", "\"p2p_operation\""), "Broadcast", "Send");
    const auto post = parse_inspector_post(text);
    ASSERT_TRUE(post);
    EXPECT_TRUE(post->by_place[place("send", false)]);
}

TEST(InspectorMetrics, WhatMeansNothingIsCountedAndNotShown) {
    const std::string whole = fixture("aggregated.json");
    for (const auto& [from, to] : std::initializer_list<std::pair<std::string, std::string>>{
             {"\"AllReduce\"", "\"All2All\""},
             {"\"asDouble\":25.165824000000004", "\"asDouble\":0"},
             {"\"asDouble\":25.165824000000004", "\"asDouble\":-3"},
             {"\"asDouble\":25.165824000000004", "\"asDouble\":1e300"},
             {"{\"key\":\"n_nodes\",\"value\":{\"stringValue\":\"2\"}},", ""},
             {"\"n_nodes\",\"value\":{\"stringValue\":\"2\"}",
              "\"n_nodes\",\"value\":{\"stringValue\":\"-2\"}"},
             {"\"n_nodes\",\"value\":{\"stringValue\":\"2\"}",
              "\"n_nodes\",\"value\":{\"intValue\":2}"}}) {
        const auto post = parse_inspector_post(replaced(whole, from, to));
        ASSERT_TRUE(post) << from << " → " << to;
        EXPECT_GT(post->skipped, 0U) << from << " → " << to;
        const auto& reduce = post->by_place[place("all_reduce", true)];
        EXPECT_TRUE(!reduce || reduce->bytes_per_second < 4e9) << from << " → " << to;
    }
    const auto other = parse_inspector_post(replaced(whole, "nccl_", "cuda_"));
    ASSERT_TRUE(other);
    for (const auto& value : other->by_place) {
        EXPECT_FALSE(value);
    }
    EXPECT_TRUE(parse_inspector_post("{}"));
}

TEST(InspectorMetrics, WhatIsNotOtlpIsRefused) {
    const std::string whole = fixture("aggregated.json");
    for (const std::string& text :
         {std::string{}, std::string{"[]"}, std::string{"7"},
          std::string{"{\"resourceMetrics\":7}"}, std::string{"{\"resourceMetrics\":[7]}"},
          std::string{"{\"resourceMetrics\":[{\"scopeMetrics\":[{\"metrics\":[{}]}]}]}"},
          whole.substr(0, whole.size() / 2), std::string(100'000, '['),
          "{\"resourceMetrics\":" + std::string(5000, '[') + std::string(5000, ']') + "}",
          replaced(whole, "\"asDouble\":", "\"asDouble\":\"x\",\"y\":"),
          replaced(whole, "\"asDouble\"", "\"asInt\""),
          replaced(whole, "\"dataPoints\":[", "\"dataPoints\":7,\"x\":["),
          replaced(whole, "\"key\":\"n_nodes\"", "\"key\":7"),
          replaced(whole, "\"stringValue\":\"2\"}", "\"stringValue\":7}").replace(0, 1, "")}) {
        EXPECT_FALSE(parse_inspector_post(text)) << text.substr(0, 60);
    }
}

// As it may come from a process that ends while it writes, or that somebody else has written.
TEST(InspectorMetrics, WhatThePluginHasPostedCutAndChangedAtEachByteIsReadOrRefused) {
    const std::string whole = fixture("aggregated.json");
    ASSERT_FALSE(whole.empty());
    std::uint64_t points = 0;
    const InspectorVisit visit = [&](const InspectorPoint& point) {
        ++points;
        EXPECT_GT(point.value, 0);
        EXPECT_LT(point.operation, kNcclOperations.size());
        EXPECT_LT(point.communicator.size() + point.algorithm.size(), whole.size());
    };
    for (std::size_t size = 0; size + 1 < whole.size(); ++size) {
        EXPECT_FALSE(parse_inspector_post(std::string_view{whole}.substr(0, size), visit)) << size;
    }
    EXPECT_EQ(points, 0U) << "what is cut is no JSON";
    // Each byte in turn by one other; by all is what tests/fuzz does.
    constexpr std::string_view kOthers{"\0\xff\"{[]},:\\9-eu", 14};
    std::string text = whole;
    std::size_t at = 0;
    for (char& byte : text) {
        const char was = byte;
        byte = kOthers[at++ % kOthers.size()];
        const auto post = parse_inspector_post(text, visit);
        byte = was;
        for (const auto& value : post ? post->by_place : InspectorPost{}.by_place) {
            EXPECT_TRUE(!value || (value->bytes_per_second > 0 && value->values > 0));
        }
    }
    EXPECT_GT(points, 0U);
}

}  // namespace
}  // namespace lockstep::test
