// Where NCCL's Inspector plugin is found, and what comes of what it posts.
#include "job/agent/nccl/inspector_watch.hpp"

#include "job/agent/nccl/inspector_table.hpp"
#include "job/async/asio.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/spec/own_variables.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/agent/inspector_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

namespace lockstep::test {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;
using namespace std::chrono_literals;

// Posts to the place that a rank was told.
std::string post(const NcclInspector& to, const std::string& body) {
    const auto colon = to.endpoint.rfind(':');
    const auto port = static_cast<std::uint16_t>(std::stoi(to.endpoint.substr(colon + 1)));
    const Poster poster{port};
    poster.send(request(to.token, body));
    return poster.answer();
}

// The same, while `io` has the receiver.
std::string answered(net::io_context& io, const NcclInspector& to, const std::string& body) {
    auto answer = std::async(std::launch::async, [&] { return post(to, body); });
    while (answer.wait_for(0s) != std::future_status::ready) {
        io.run_for(1ms);
    }
    return answer.get();
}

TEST(InspectorWatch, ARankHasARowEachTenSecondsAtTheMostAndLosesNothing) {
    net::io_context io{1};
    TaskGroup tasks{io};
    std::chrono::steady_clock::time_point now{100s};
    std::vector<std::pair<std::int32_t, RankReport>> rows;
    InspectorWatch::Handlers handlers;
    handlers.seen = [&](std::int32_t rank, const RankReport& row) { rows.emplace_back(rank, row); };
    auto watch = std::make_unique<InspectorWatch>(tasks, handlers, [&] { return now; });
    watch->expect("/lib/plugin.so", 4, 2);
    const NcclInspector first = watch->place_of(0);
    const NcclInspector second = watch->place_of(1);
    EXPECT_EQ(first.plugin, "/lib/plugin.so");
    EXPECT_NE(first.token, second.token);
    EXPECT_EQ(watch->place_of(2).plugin, "");
    EXPECT_EQ(watch->words_of(5), "");
    const std::string whole = fixture("aggregated.json");
    const auto ask = [&](const NcclInspector& to, const std::string& body) {
        std::string answer;
        std::thread client{[&] { answer = post(to, body); }};
        while (answer.empty()) {
            io.run_for(1ms);
        }
        client.join();
        return answer;
    };
    EXPECT_THAT(ask(second, whole), StartsWith("HTTP/1.1 200 "));
    // The first row is at once; what comes then waits for the next.
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_EQ(rows[0].first, 5);
    EXPECT_EQ(rows[0].second.step, -1);
    EXPECT_EQ(rows[0].second.metrics.size(), 4U);
    EXPECT_EQ(rows[0].second.metrics[0].first, "nccl_bus_bandwidth_all_reduce_many");
    now += 9s;
    ask(second, replaced(whole, "AllReduce", "Reduce"));
    EXPECT_EQ(rows.size(), 1U);
    EXPECT_THAT(ask(first, "{\"resourceMetrics\":7}"), StartsWith("HTTP/1.1 400 "));
    now += 1s;
    ask(second, "{}");
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[1].second.metrics.size(), 4U);
    EXPECT_EQ(rows[1].second.metrics[3].first, "nccl_bus_bandwidth_reduce_many");
    EXPECT_THAT(watch->words_of(5), HasSubstr("all_reduce"));
    EXPECT_THAT(watch->words_of(5), HasSubstr("25.166 GB/s bus bandwidth, 4 ranks"));
    EXPECT_THAT(watch->words_of(5), HasSubstr("10 s ago"));
    EXPECT_EQ(watch->words_of(4), "");
    watch->expect("/lib/plugin.so", 0, 2);
    EXPECT_EQ(watch->place_of(1).token, second.token) << "a warm standby was told it already";
    EXPECT_EQ(watch->words_of(1), "") << "of the generation before";
    watch.reset();
    io.run();
}

// A post that has only the small operations of a kind does not hide the large ones of another.
TEST(InspectorWatch, ARowHasTheLargestOperationsOfAllPostsSinceTheOneBefore) {
    net::io_context io{1};
    TaskGroup tasks{io};
    std::chrono::steady_clock::time_point now{100s};
    std::vector<RankReport> rows;
    InspectorWatch::Handlers handlers;
    handlers.seen = [&](std::int32_t, const RankReport& row) { rows.push_back(row); };
    std::vector<std::string> warnings;
    handlers.warn = [&](std::string message) { warnings.push_back(std::move(message)); };
    auto watch = std::make_unique<InspectorWatch>(tasks, handlers, [&] { return now; });
    watch->expect("/lib/plugin.so", 0, 1);
    const auto ask = [&](const std::string& body) {
        return answered(io, watch->place_of(0), body);
    };
    const auto one = [](const std::string& size, const std::string& gbs) {
        return R"({"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"nccl_bus_bandwidth_gbs",
            "gauge":{"dataPoints":[{"asDouble":)" +
               gbs + R"(,"attributes":[{"key":"collective","value":{"stringValue":"AllReduce"}},
            {"key":"n_nodes","value":{"stringValue":"1"}},
            {"key":"message_size","value":{"stringValue":")" +
               size + R"("}}]}]}}]}]}]})";
    };
    ask(one("16-17KB", "0.5"));
    ASSERT_EQ(rows.size(), 1U);
    now += 2s;
    ask(one("64-65MB", "40"));
    now += 2s;
    ask(one("64-65MB", "30"));
    now += 6s;
    ask(one("16-17KB", "0.1"));
    ASSERT_EQ(rows.size(), 2U);
    ASSERT_EQ(rows[1].metrics.size(), 1U);
    EXPECT_DOUBLE_EQ(rows[1].metrics[0].second, 30e9) << "of the largest the slowest";
    EXPECT_THAT(ask(std::string(300U << 10U, ' ')), StartsWith("HTTP/1.1 413 "));
    ask(std::string(300U << 10U, ' '));
    EXPECT_THAT(warnings, testing::ElementsAre(HasSubstr("more than 256 KiB")));
    watch.reset();
    io.run();
}

// The largest messages of an operation first, and what each has reached over all posts.
TEST(InspectorTable, HasALineForEachCommunicatorOperationSizeAndAlgorithm) {
    InspectorTable table;
    EXPECT_EQ(table.text(), "");
    const InspectorVisit take = [&](const InspectorPoint& point) { table.take(point); };
    const std::string whole = fixture("aggregated.json");
    ASSERT_TRUE(parse_inspector_post(whole, take));
    ASSERT_TRUE(
        parse_inspector_post(replaced(whole, "25.165824000000004", "5.165824000000004"), take));
    const auto lines = split(table.text(), '\n');
    ASSERT_EQ(lines.size(), 7U) << table.text();
    EXPECT_THAT(lines[0], StartsWith("operation "));
    EXPECT_THAT(lines[1],
                MatchesRegex("all_reduce +67108864 +4 +2 +15.166 +5.166 +4000.0 +4000.0 +2 .*"));
    EXPECT_THAT(lines[2], StartsWith("all_reduce          1048576 "));
    EXPECT_THAT(lines[2], HasSubstr(" RING_"));
    EXPECT_THAT(table.text(), HasSubstr("world\n"));
    EXPECT_THAT(lines[5], StartsWith("broadcast "));
    EXPECT_EQ(lines[6], "");
}

// Cut to a column's width they were one, with the mean of both.
TEST(InspectorTable, KeepsCommunicatorsApartWhoseNamesBeginAlike) {
    InspectorTable table;
    InspectorPoint point{InspectorQuantity::bandwidth, 1e9, 0, 1, 2, 8, "", "RING_SIMPLE"};
    point.communicator = "TENSOR_AND_DATA_PARALLEL_GROUP";
    table.take(point);
    point.communicator = "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP\nall_reduce\t9";
    point.value = 3e9;
    table.take(point);
    const auto lines = split(table.text(), '\n');
    ASSERT_EQ(lines.size(), 4U) << table.text();
    EXPECT_THAT(lines[1], MatchesRegex(".* 1\\.000 .*TENSOR_AND_DATA_PARALLEL_GROUP"));
    EXPECT_THAT(lines[2], MatchesRegex(".* 3\\.000 .*GROUP_WITH_CP all_reduce 9"));
}

TEST(InspectorTable, IsBoundedAndSaysWhatItLeavesOut) {
    InspectorTable table;
    InspectorPoint point{InspectorQuantity::bandwidth, 1e9, 0, 1, 2, 0, "", "\x1b[2J"};
    for (std::uint64_t bytes = 1; bytes <= limits::kInspectorTableRows + 3; ++bytes) {
        point.bytes = bytes;
        table.take(point);
    }
    const std::string text = table.text();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'),
              static_cast<std::ptrdiff_t>(limits::kInspectorTableRows) + 2);
    EXPECT_THAT(text, HasSubstr("\n3 values of other kinds are left out\n"));
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_THAT(text, HasSubstr(" -\n")) << "no communicator's name";
}

TEST(InspectorWatch, ATableHasWhatWasPostedFromItsBeginToItsEnd) {
    net::io_context io{1};
    TaskGroup tasks{io};
    std::chrono::steady_clock::time_point now{100s};
    InspectorWatch::Handlers handlers;
    handlers.seen = [](std::int32_t, const RankReport&) {};
    auto watch = std::make_unique<InspectorWatch>(tasks, handlers, [&] { return now; });
    EXPECT_FALSE(watch->begin_tables({0})) << "no plugin";
    EXPECT_EQ(watch->end_table(0), std::nullopt);
    watch->expect("/lib/plugin.so", 4, 2);
    const auto ask = [&](std::int32_t local, const std::string& body) {
        return answered(io, watch->place_of(local), body);
    };
    const std::string whole = fixture("aggregated.json");
    ask(1, replaced(whole, "AllReduce", "Reduce"));
    EXPECT_TRUE(watch->begin_tables({4, 5, 6}));
    ask(1, whole);
    // What is not understood is not in it, nor what came of it before it was not understood.
    EXPECT_THAT(ask(1, replaced(replaced(whole, "\"asDouble\":3.2768000000000002", "\"asInt\":3"),
                                "AllReduce", "Send")),
                StartsWith("HTTP/1.1 400 "));
    now += 7s;
    EXPECT_EQ(watch->end_table(4), "") << "nothing was posted of it";
    EXPECT_EQ(watch->end_table(6), std::nullopt) << "of another node";
    const auto table = watch->end_table(5);
    ASSERT_TRUE(table);
    EXPECT_THAT(*table, StartsWith("What NCCL's Inspector posted of rank 5 in 7 s. "));
    EXPECT_THAT(*table, HasSubstr("\nall_reduce "));
    EXPECT_THAT(*table, Not(HasSubstr("\nreduce ")));
    EXPECT_THAT(*table, Not(HasSubstr("\nsend ")));
    EXPECT_EQ(watch->end_table(5), std::nullopt) << "it is over";
    watch.reset();
    io.run();
}

class FindInspector : public testing::Test {
  protected:
    std::filesystem::path write(const std::string& name, const std::string& content) const {
        const auto path = folder_.path() / name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream{path} << content;
        return path;
    }
    std::string find() {
        problem_.clear();
        return find_inspector(spec_, inherited_, folder_.path() / "own", problem_);
    }
    TemporaryFolder folder_;
    JobSpec spec_ = [] {
        JobSpec spec;
        spec.resources.gpus_per_node = 1;
        return spec;
    }();
    std::map<std::string, std::string> inherited_;
    std::string problem_;
};

TEST_F(FindInspector, WhereItIsNamedThenBesideLockstepThenWhereTheLinkerLooks) {
    EXPECT_EQ(find(), "");
    EXPECT_EQ(problem_, "");
    const std::string good = "…NCCL_INSPECTOR_OTEL_EXPORT…";
    const auto linked = write(std::string{"linked/"} + kInspectorFile, good);
    write(std::string{"old/"} + kInspectorFile, "NCCL_INSPECTOR_ENABLE");
    inherited_["LD_LIBRARY_PATH"] =
        ":" + (folder_.path() / "old").string() + ":" + (folder_.path() / "linked").string() + ":";
    EXPECT_EQ(find(), linked.string());
    const auto own = write(std::string{"own/"} + kInspectorFile, good);
    EXPECT_EQ(find(), own.string());
    const auto named = write("named.so", good);
    inherited_[std::string{kNcclInspector}] = named.string();
    EXPECT_EQ(find(), named.string());
    inherited_[std::string{kNcclInspector}] = "off";
    EXPECT_EQ(find(), "");
    spec_.environment[std::string{kNcclInspector}] = own.string();
    EXPECT_EQ(find(), own.string()) << "the job's word goes before the site's";
    spec_.environment[std::string{kNcclInspector}] =
        (folder_.path() / "old" / kInspectorFile).string();
    EXPECT_EQ(find(), "");
    EXPECT_THAT(problem_, HasSubstr("is not an Inspector that sends OTLP"));
    spec_.environment[std::string{kNcclInspector}] = "/no/such/file.so";
    EXPECT_EQ(find(), "");
    EXPECT_THAT(problem_, HasSubstr("/no/such/file.so"));
    const auto fifo = folder_.path() / "fifo";
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    spec_.environment[std::string{kNcclInspector}] = fifo.string();
    EXPECT_EQ(find(), "") << "and it does not wait for whoever may write there";
    EXPECT_THAT(problem_, HasSubstr("no regular file"));
}

TEST_F(FindInspector, OnlyOfJobsWhoseRanksCanUseIt) {
    const auto own = write(std::string{"own/"} + kInspectorFile, "NCCL_INSPECTOR_OTEL_EXPORT");
    EXPECT_EQ(find(), own.string());
    spec_.launch = Launch::node;
    EXPECT_EQ(find(), "");
    spec_.launch = Launch::rank;
    spec_.container.runtime = ContainerRuntime::apptainer;
    EXPECT_EQ(find(), "");
    spec_.container.runtime = ContainerRuntime::none;
    spec_.resources.gpus_per_node = 0;
    EXPECT_EQ(find(), "");
    spec_.environment[std::string{kNcclInspector}] = own.string();
    EXPECT_EQ(find(), own.string()) << "who names it means it";
}

}  // namespace
}  // namespace lockstep::test
