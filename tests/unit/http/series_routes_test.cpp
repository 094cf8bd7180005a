// The routes of what was measured of a job: series, samples, ranks and the heatmap.
#include "tests/unit/http/routes_fixture.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {
namespace {

TEST_F(RoutesTest, AHeatmapIsBytesAndItsParametersArePassedOn) {
    const auto good =
        get(of_job("/heatmap?metric=loss&ranks=1000-1999&from=5&to=9&columns=100&rows=50"));
    EXPECT_EQ(good.status, 200);
    EXPECT_EQ(good.header("Content-Type"), "application/octet-stream");
    EXPECT_EQ(good.body, "LSH1" + std::string{kJob});
    ASSERT_EQ(control_.heatmap_queries.size(), 1U);
    const auto& query = control_.heatmap_queries.front();
    EXPECT_EQ(query.metric, "loss");
    EXPECT_EQ(query.ranks.size(), 1000U);
    EXPECT_EQ(query.ranks.back(), 1999);
    EXPECT_EQ(query.from, 5.0);
    EXPECT_EQ(query.to, 9.0);
    EXPECT_EQ(query.columns, 100U);
    EXPECT_EQ(query.rows, 50U);
    EXPECT_EQ(get(of_job("/heatmap?columns=0&rows=-1&ranks=x")).status, 400);
}

TEST_F(RoutesTest, RanksAreSortedAndPagedAsAsked) {
    EXPECT_EQ(get(of_job("/ranks?sort=-loss&offset=20&limit=10")).status, 200);
    EXPECT_EQ(get(of_job("/ranks")).status, 200);
    ASSERT_EQ(control_.ranks_queries.size(), 2U);
    EXPECT_EQ(control_.ranks_queries[0].key.name, "loss");
    EXPECT_TRUE(control_.ranks_queries[0].descending);
    EXPECT_EQ(control_.ranks_queries[0].offset, 20U);
    EXPECT_EQ(control_.ranks_queries[0].limit, 10U);
    EXPECT_EQ(control_.ranks_queries[1].key.name, "rank");
    EXPECT_FALSE(control_.ranks_queries[1].descending);
    const auto bad = get(of_job("/ranks?sort=colour&offset=-1&limit=0"));
    EXPECT_EQ(bad.status, 400);
    EXPECT_EQ(pointers(bad), (std::vector<std::string>{"?offset", "?limit", "?sort"}));
    EXPECT_EQ(control_.ranks_queries.size(), 2U);
}

TEST_F(RoutesTest, EventsAndSeriesPassTheirParametersOn) {
    EXPECT_EQ(get(of_job("/events?after=12&limit=3")).body,
              "{\"asked\":\"" + std::string{kJob} + " 12 3\"}");
    EXPECT_EQ(get(of_job("/series?metric=lr&ranks=0-2,5&x=time&from=1.5&to=9&points=100")).status,
              200);
    ASSERT_EQ(control_.series_queries.size(), 1U);
    const auto& query = control_.series_queries.front();
    EXPECT_EQ(query.metric, "lr");
    EXPECT_EQ(query.ranks, (std::vector<std::int32_t>{0, 1, 2, 5}));
    EXPECT_TRUE(query.by_time);
    EXPECT_EQ(query.from, 1.5);
    EXPECT_EQ(query.to, 9.0);
    EXPECT_EQ(query.points, 100U);
    const auto bad = get(of_job("/series?ranks=9-1&x=epoch&points=5000&from=nan"));
    EXPECT_EQ(bad.status, 400);
    EXPECT_EQ(pointers(bad), (std::vector<std::string>{"?from", "?points", "?ranks", "?x"}));
}

TEST_F(RoutesTest, GpusAreAskedForByTheirNumbersOrByRanks) {
    EXPECT_EQ(get(of_job("/series?entity=gpu&gpus=3,0-1")).status, 200);
    const auto& query = control_.series_queries.at(0);
    EXPECT_EQ(query.metric, "gpu_utilization_ratio");
    EXPECT_EQ(query.gpus, (std::vector<std::int32_t>{0, 1, 3}));
    for (const char* wrong : {"/series?gpus=1", "/samples?entity=gpu&gpus=1&ranks=1"}) {
        EXPECT_EQ(pointers(get(of_job(wrong))), std::vector<std::string>{"?gpus"});
    }
}

TEST_F(RoutesTest, SamplesAndMetricNamesPassTheirParametersOn) {
    EXPECT_EQ(get(of_job("/metrics")).body, "{\"asked\":\"" + std::string{kJob} + "\"}");
    EXPECT_EQ(get(of_job("/metrics?x=1")).status, 400);
    EXPECT_EQ(get(of_job("/samples?metric=lr&ranks=0-2,5&from=3&to=9&attempt=2&generation=4&"
                         "limit=7&cursor=MS4yLjM%3D"))
                  .status,
              200);
    EXPECT_EQ(get(of_job("/samples")).status, 200);
    ASSERT_EQ(control_.samples_queries.size(), 2U);
    const auto& query = control_.samples_queries.front();
    EXPECT_EQ(query.metric, "lr");
    EXPECT_EQ(query.ranks, (std::vector<std::int32_t>{0, 1, 2, 5}));
    EXPECT_EQ(query.from, 3);
    EXPECT_EQ(query.to, 9);
    EXPECT_EQ(query.attempt, 2);
    EXPECT_EQ(query.generation, 4);
    EXPECT_EQ(query.limit, 7U);
    EXPECT_EQ(query.cursor, "MS4yLjM=");
    const auto& plain = control_.samples_queries.back();
    EXPECT_FALSE(plain.from || plain.to || plain.attempt || plain.generation);
    EXPECT_EQ(plain.limit, 10'000U);
    const auto bad = get(of_job("/samples?ranks=0-256&from=x&attempt=-1&limit=65537"));
    EXPECT_EQ(bad.status, 400);
    EXPECT_EQ(pointers(bad), (std::vector<std::string>{"?from", "?attempt", "?limit", "?ranks"}));
    const auto cursor = get(of_job("/samples?cursor=bad"));
    EXPECT_EQ(cursor.status, 400);
    EXPECT_EQ(pointers(cursor), std::vector<std::string>{"?cursor"});
}

}  // namespace
}  // namespace lockstep
