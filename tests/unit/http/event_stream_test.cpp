#include "daemon/http/server/event_stream.hpp"

#include "daemon/http/server/event_feed.hpp"
#include "tests/unit/http/fake_control.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// Runs next() to its end on the io_context.
std::optional<std::string> next_of(net::io_context& io, BodyStream& stream) {
    std::optional<std::string> out;
    net::co_spawn(io, stream.next(),
                  [&out](const std::exception_ptr&, std::optional<std::string> text) {
                      out = std::move(text);
                  });
    io.restart();
    io.run();
    return out;
}

TEST(EventFormat, FollowsTheStandard) {
    EXPECT_EQ(format_event(7, "running", "{}"), "id: 7\nevent: running\ndata: {}\n\n");
    EXPECT_EQ(format_event(0, "", "a"), "data: a\n\n");
    EXPECT_EQ(format_event(0, "x", "a\nb\r\nc\rd"),
              "event: x\ndata: a\ndata: b\ndata: c\ndata: d\n\n");
}

TEST(EventStream, GivesWhatIsQueuedInOnePiece) {
    net::io_context io;
    EventStream stream{io, {}};
    stream.push(1, "a", "x");
    stream.push(2, "b", "y");
    EXPECT_EQ(next_of(io, stream), "id: 1\nevent: a\ndata: x\n\nid: 2\nevent: b\ndata: y\n\n");
}

TEST(EventStream, WakesTheReader) {
    net::io_context io;
    EventStream stream{io, {}};
    net::post(io, [&] { stream.push(1, "a", "x"); });
    EXPECT_EQ(next_of(io, stream), "id: 1\nevent: a\ndata: x\n\n");
}

TEST(EventStream, SendsACommentWhenItIsQuiet) {
    net::io_context io;
    EventStream stream{io, {10, 1ms}};
    EXPECT_EQ(next_of(io, stream), ":\n\n");
}

TEST(EventStream, EndsWhenTheReaderLagsBehind) {
    net::io_context io;
    EventStream stream{io, {2, 15s}};
    EXPECT_TRUE(stream.push(1, "a", "x"));
    EXPECT_TRUE(stream.push(2, "a", "x"));
    EXPECT_FALSE(stream.push(3, "a", "x"));
    EXPECT_TRUE(stream.lagged());
    // What was queued is still good, then it is over.
    EXPECT_TRUE(next_of(io, stream));
    EXPECT_EQ(next_of(io, stream), std::nullopt);
}

TEST(EventStream, ASlowReaderMissesTheOldestStepsAndNothingElse) {
    net::io_context io;
    EventStream stream{io, {4, 15s}};
    const std::string step(100'000, 's');
    for (int i = 0; i < 200; ++i) {
        EXPECT_TRUE(stream.push_latest("steps", std::to_string(i) + step));
    }
    EXPECT_TRUE(stream.push(7, "a", "x"));
    const auto text = next_of(io, stream);
    ASSERT_TRUE(text);
    EXPECT_LT(text->size(), 1'200'000U);
    EXPECT_TRUE(text->starts_with("id: 7\nevent: a\ndata: x\n\n"));
    EXPECT_NE(text->find("data: 199s"), std::string::npos) << "the newest is there";
    EXPECT_EQ(text->find("data: 150s"), std::string::npos);
    EXPECT_FALSE(stream.lagged());
    EXPECT_TRUE(stream.push_latest("steps", "one"));
    EXPECT_EQ(next_of(io, stream), "event: steps\ndata: one\n\n");
}

TEST(EventStream, CloseEndsAWaitingReader) {
    net::io_context io;
    EventStream stream{io, {}};
    net::post(io, [&] { stream.close(); });
    EXPECT_EQ(next_of(io, stream), std::nullopt);
    EXPECT_FALSE(stream.lagged());
}

TEST(Topics, AreParsedStrictly) {
    const std::string id = kJob;
    const auto topics = TopicSet::parse("jobs,ranks." + id);
    ASSERT_TRUE(topics);
    EXPECT_TRUE(topics->wants("job." + id));
    EXPECT_TRUE(topics->wants("ranks." + id));
    EXPECT_FALSE(topics->wants("ranks.other"));
    const auto one = TopicSet::parse("job." + id);
    EXPECT_TRUE(one->wants("job." + id));
    EXPECT_FALSE(one->wants("job.ls-01ARZ3NDEKTSV4RRFFQ69G5FAW"));
    for (const char* bad : {"", "job", "job.", "job.x", "everything", "jobs,,jobs", "steps"}) {
        EXPECT_FALSE(TopicSet::parse(bad)) << bad;
    }
    const auto steps = TopicSet::parse("jobs,steps." + id + ".loss+busy_seconds,ranks." + id);
    ASSERT_TRUE(steps);
    EXPECT_TRUE(steps->wants("steps." + id + ".loss"));
    EXPECT_TRUE(steps->wants("steps." + id + ".busy_seconds"));
    EXPECT_FALSE(steps->wants("steps." + id + ".tokens"));
    EXPECT_EQ(steps->followed(),
              (std::vector<std::string>{"ranks." + id, "steps." + id + ".busy_seconds",
                                        "steps." + id + ".loss"}));
    for (const std::string& bad : {"steps." + id, "steps." + id + ".", "steps." + id + ".Loss",
                                   "steps." + id + ".loss+", std::string{"steps.x.loss"}}) {
        EXPECT_FALSE(TopicSet::parse(bad)) << bad;
    }
}

TEST(Topics, MetricsOfStepsCountToo) {
    std::string text = "steps." + std::string{kJob} + ".m0";
    for (int i = 1; i < 256; ++i) {
        text += "+m" + std::to_string(i);
    }
    EXPECT_TRUE(TopicSet::parse(text));
    EXPECT_FALSE(TopicSet::parse(text + "+m256"));
    EXPECT_FALSE(TopicSet::parse(text + ",jobs,ranks." + kJob));
}

class EventFeedTest : public testing::Test {
  protected:
    std::shared_ptr<EventFeed> start(std::optional<std::int64_t> after,
                                     EventStream::Settings settings = {}) {
        return EventFeed::start(io_, control_, metrics_, caller_, *TopicSet::parse("jobs"), after,
                                settings);
    }
    StreamMessage message(std::int64_t seq, std::string user = "uma") {
        return FakeControl::message(seq, "job." + std::string{kJob}, std::move(user));
    }
    std::string text(std::int64_t seq) {
        const auto n = std::to_string(seq);
        return "id: " + n + "\nevent: submitted\ndata: {\"seq\":" + n + "}\n\n";
    }
    net::io_context io_;
    FakeControl control_;
    telemetry::DaemonMetrics metrics_;
    Caller caller_{"uma", false, true};
};

TEST_F(EventFeedTest, WithoutAnIdOnlyWhatComes) {
    control_.stored = {message(1), message(2)};
    const auto feed = start(std::nullopt);
    EXPECT_EQ(next_of(io_, *feed), "retry: 2000\nid: 2\n\n");
    control_.publish(message(3));
    EXPECT_EQ(next_of(io_, *feed), text(3));
}

TEST_F(EventFeedTest, ResumesBehindTheLastIdWithoutGapOrRepeat) {
    control_.stored = {message(1), message(2), message(3)};
    const auto feed = start(1);
    // Stored and published while the replay is under way: told once, by the replay or live.
    bool once = true;
    control_.during_replay = [&] {
        if (std::exchange(once, false)) {
            control_.publish(message(3));
            control_.stored.push_back(message(4));
            control_.publish(message(4));
        }
    };
    EXPECT_EQ(next_of(io_, *feed), "retry: 2000\n\n");
    EXPECT_EQ(next_of(io_, *feed), text(2) + text(3));
    EXPECT_EQ(next_of(io_, *feed), text(4));
    control_.publish(message(3));  // late news of what was replayed
    control_.publish(message(5));
    EXPECT_EQ(next_of(io_, *feed), text(5));
}

TEST_F(EventFeedTest, ReplaysManyPages) {
    for (std::int64_t seq = 1; seq <= 1200; ++seq) {
        control_.stored.push_back(message(seq));
    }
    const auto feed = start(0);
    next_of(io_, *feed);
    std::string all;
    for (int i = 0; i < 3; ++i) {
        all += next_of(io_, *feed).value_or("");
    }
    std::string expected;
    for (std::int64_t seq = 1; seq <= 1200; ++seq) {
        expected += text(seq);
    }
    EXPECT_EQ(all, expected);
}

TEST_F(EventFeedTest, ShowsOthersJobsToAdminsOnly) {
    const auto mine = start(std::nullopt);
    caller_ = {"ada", true, true};
    const auto all = start(std::nullopt);
    next_of(io_, *mine);
    next_of(io_, *all);
    control_.publish(message(1, "vic"));
    control_.publish(message(2, "uma"));
    EXPECT_EQ(next_of(io_, *mine), text(2));
    EXPECT_EQ(next_of(io_, *all), text(1) + text(2));
}

TEST_F(EventFeedTest, ASlowReaderIsEndedAndComesBack) {
    const auto feed = start(std::nullopt, {2, 15s});
    next_of(io_, *feed);
    for (std::int64_t seq = 1; seq <= 3; ++seq) {
        control_.publish(message(seq));
    }
    EXPECT_TRUE(feed->lagged());
    EXPECT_EQ(next_of(io_, *feed), text(1) + text(2));
    EXPECT_EQ(next_of(io_, *feed), std::nullopt);
}

TEST_F(EventFeedTest, CloseUnsubscribes) {
    const auto feed = start(std::nullopt);
    EXPECT_EQ(control_.sinks.size(), 1U);
    feed->close();
    EXPECT_TRUE(control_.sinks.empty());
}

}  // namespace
}  // namespace lockstep
