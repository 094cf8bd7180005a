#include "job/rank/client.hpp"

#include "job/base/text.hpp"
#include "job/rank/report.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// The agent's end of one connection, driven by the test.
class FakeAgent {
  public:
    FakeAgent() {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path_.data(), path_.size());
        listener_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        EXPECT_EQ(
            ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
            0);
        EXPECT_EQ(::listen(listener_.get(), 1), 0);
        Result<std::unique_ptr<RankClient>> made = RankClient::connect(path_);
        EXPECT_TRUE(made.has_value()) << made.error().text();
        client_ = std::move(*made);
        connection_.reset(::accept(listener_.get(), nullptr, nullptr));
        const timeval patience{60, 0};  // what never comes fails a test and does not hang it
        ::setsockopt(connection_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    }
    FakeAgent(const FakeAgent&) = delete;
    FakeAgent& operator=(const FakeAgent&) = delete;

    RankClient& client() { return *client_; }
    void hang_up() { connection_.reset(); }
    // What the kernel grants a socket that asks for as much as the client does (in bytes).
    static int send_buffer() {
        const UniqueFd socket{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
        int bytes = 2 << 20;
        ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
        socklen_t size = sizeof(bytes);
        ::getsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &bytes, &size);
        return bytes;
    }
    Json read() {
        // Made once: with a sanitizer 2 MiB take a millisecond, which a thousand reads have not.
        buffer_.resize(1U << 21U);
        const auto got = ::recv(connection_.get(), buffer_.data(), buffer_.size(), 0);
        const std::size_t size = got > 0 ? static_cast<std::size_t>(got) : 0;
        return parse_json(std::string_view{buffer_}.substr(0, size)).value_or(Json{});
    }
    void write(const std::string& text) {
        EXPECT_EQ(::send(connection_.get(), text.data(), text.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(text.size()));
    }
    // Reads one request and answers it with `answer`, its "id" filled in.
    std::future<Json> answer_one(Json answer) {
        return std::async(std::launch::async, [this, answer]() mutable {
            Json request = read();
            answer["id"] = request.value("id", -1);
            write(dump_json(answer));
            return request;
        });
    }

  private:
    std::string buffer_;  // of read(), which one thread calls at a time
    const test::TemporaryFolder folder_;
    const std::string path_ = (folder_ / "s").string();
    UniqueFd listener_;
    UniqueFd connection_;
    std::unique_ptr<RankClient> client_;
};

Json json(const char* text) {
    return parse_json(text).value();
}

TEST(Report, IsOneJsonObjectWithTheNumbersAsTheyAre) {
    Report report;
    report.begin(12, 1);
    report.metric("loss", 0.53);
    report.metric("samples", std::int64_t{64});
    EXPECT_EQ(report.finish(), R"({"op":"report","step":12,"epoch":1,"loss":0.53,"samples":64})");
    report.begin(13, 1);
    report.kind("epoch");
    EXPECT_EQ(report.finish(), R"({"op":"report","step":13,"epoch":1,"kind":"epoch"})");
}

TEST(Report, NumbersThatAreNotFiniteTravelAsWords) {
    Report report;
    report.begin(1, 0);
    report.metric("a", std::numeric_limits<double>::quiet_NaN());
    report.metric("b", std::numeric_limits<double>::infinity());
    report.metric("c", -std::numeric_limits<double>::infinity());
    const Json message = parse_json(report.finish()).value();
    EXPECT_EQ(message["a"], "nan");
    EXPECT_EQ(message["b"], "inf");
    EXPECT_EQ(message["c"], "-inf");
}

TEST(Report, NamesThatAreNoneAreLeftOutAndCounted) {
    Report report;
    report.begin(1, 0);
    for (const char* name : {"Loss", "", "1a", "a\"b", "op", "step"}) {
        report.metric(name, 1.0);
    }
    EXPECT_EQ(report.finish(), R"({"op":"report","step":1,"epoch":0})");
    EXPECT_EQ(report.refused(), 6);
}

TEST(RankClient, ReportsAndNoticesArriveInOrder) {
    FakeAgent agent;
    EXPECT_TRUE(agent.client().phase("train"));
    EXPECT_TRUE(agent.client().send_now(R"({"op":"report","step":1})"));
    EXPECT_TRUE(agent.client().checkpoint(200, "/c/step-200"));
    EXPECT_EQ(agent.read(), json(R"({"op":"phase","phase":"train"})"));
    EXPECT_EQ(agent.read(), json(R"({"op":"report","step":1})"));
    EXPECT_EQ(agent.read(), json(R"({"op":"checkpoint","step":200,"path":"/c/step-200"})"));
}

TEST(RankClient, WhatEndsItIsToldAsPythonRanksDo) {
    FakeAgent agent;
    EXPECT_TRUE(agent.client().exception("PeerFault", "rank 2 is \"behind\""));
    const Json told = agent.read();
    EXPECT_EQ(told.value("op", ""), "exception");
    EXPECT_EQ(told.value("pid", 0), ::getpid());
    EXPECT_TRUE(told.value("final", false));
    EXPECT_GT(told.value("time", 0.0), 1e9);
    EXPECT_EQ(told.value("type", ""), "PeerFault");
    EXPECT_EQ(told.value("message", ""), "rank 2 is \"behind\"");
}

TEST(RankClient, AReportNeverWaitsAndCountsWhatIsLost) {
    FakeAgent agent;
    int sent = 0;
    while (sent < 1'000'000 && agent.client().send_now("{}")) {
        ++sent;
    }
    EXPECT_GT(sent, 0);
    EXPECT_EQ(agent.client().dropped(), 1);
    agent.hang_up();
    EXPECT_FALSE(agent.client().send_now("{}"));
    EXPECT_EQ(agent.client().dropped(), 2);
}

// Seen with a rank that reports without a pause: what it said of its checkpoint was lost.
TEST(RankClient, ACheckpointWaitsForAnAgentThatIsBehind) {
    FakeAgent agent;
    while (agent.client().send_now("{}")) {
    }
    std::thread reader{[&] {
        while (agent.read() == json("{}")) {
        }
    }};
    EXPECT_TRUE(agent.client().checkpoint(200, "/c/step-200"));
    reader.join();
    EXPECT_EQ(agent.client().dropped(), 1);
}

TEST(RankClient, KeysTravelAsBase64) {
    FakeAgent agent;
    const std::string bytes{"\0\xff", 2};
    auto request = agent.answer_one(json(R"({"ok":true})"));
    ASSERT_TRUE(agent.client().set("k", bytes).has_value());
    EXPECT_EQ(request.get(), json(R"({"op":"set","key":"k","value":"AP8=","id":1})"));

    request = agent.answer_one(json(R"({"ok":true,"value":"AP8="})"));
    EXPECT_EQ(agent.client().get("k").value(), bytes);
    EXPECT_EQ(request.get(), json(R"({"op":"get","key":"k","id":2})"));

    request = agent.answer_one(json(R"({"ok":true,"values":["AP8=",""]})"));
    EXPECT_EQ(agent.client().multi_get({"k", "e"}).value(), (std::vector<std::string>{bytes, ""}));
    EXPECT_EQ(request.get(), json(R"({"op":"multi_get","keys":["k","e"],"id":3})"));

    request = agent.answer_one(json(R"({"ok":true,"value":7})"));
    EXPECT_EQ(agent.client().add("n", 3).value(), 7);
    EXPECT_EQ(request.get(), json(R"({"op":"add","key":"n","delta":3,"id":4})"));

    request = agent.answer_one(json(R"({"ok":true})"));
    EXPECT_TRUE(agent.client().barrier("b", 50ms).has_value());
    EXPECT_EQ(request.get(), json(R"({"op":"barrier","name":"b","timeout_ms":50,"id":5})"));
}

TEST(RankClient, CasSaysWhatStandsNow) {
    FakeAgent agent;
    auto request = agent.answer_one(json(R"({"ok":true,"swapped":true,"value":"Yg=="})"));
    const auto swap = agent.client().cas("k", "a", "b");
    ASSERT_TRUE(swap.has_value()) << swap.error().text();
    EXPECT_TRUE(swap->swapped);
    EXPECT_EQ(swap->value, "b");
    EXPECT_EQ(request.get(),
              json(R"({"op":"cas","key":"k","expected":"YQ==","value":"Yg==","id":1})"));
    request = agent.answer_one(json(R"({"ok":true,"swapped":false,"value":null})"));
    const auto none = agent.client().cas("k", "", "b");
    ASSERT_TRUE(none.has_value());
    EXPECT_FALSE(none->swapped || none->value);
    EXPECT_EQ(request.get(), json(R"({"op":"cas","key":"k","value":"Yg==","id":2})"));
}

TEST(RankClient, DeleteSaysWhetherThereWasAKey) {
    FakeAgent agent;
    auto request = agent.answer_one(json(R"({"ok":true,"deleted":true})"));
    EXPECT_TRUE(agent.client().remove("k").value());
    EXPECT_EQ(request.get(), json(R"({"op":"delete","key":"k","id":1})"));
    request = agent.answer_one(json(R"({"ok":true,"deleted":false})"));
    EXPECT_FALSE(agent.client().remove("k").value());
    request.get();
    request = agent.answer_one(json(R"({"ok":true})"));
    EXPECT_EQ(agent.client().remove("k").error().code, Errc::internal);
    request.get();
    EXPECT_EQ(agent.client().remove("").error().code, Errc::invalid);
}

TEST(RankClient, SeveralKeysAreSetWithOneMessage) {
    FakeAgent agent;
    auto request = agent.answer_one(json(R"({"ok":true})"));
    ASSERT_TRUE(
        agent.client().multi_set({{"a", "1"}, {"b", ""}}, RankClient::Write::once).has_value());
    EXPECT_EQ(
        request.get(),
        json(R"({"op":"multi_set","keys":["a","b"],"values":["MQ==",""],"once":true,"id":1})"));
    request = agent.answer_one(json(R"({"ok":false,"error":"conflict","message":"k: no"})"));
    EXPECT_EQ(agent.client().set("k", "", RankClient::Write::once).error().code, Errc::conflict);
    EXPECT_EQ(request.get(), json(R"({"op":"set","key":"k","value":"","once":true,"id":2})"));
}

// What the agent could not read has no number it could answer to.
TEST(RankClient, ARefusalWithoutANumberIsForTheRequestThatWaits) {
    FakeAgent agent;
    auto request = std::async(std::launch::async, [&] {
        agent.read();
        agent.write(R"({"id":null,"ok":false,"error":"invalid","message":"too large"})");
    });
    EXPECT_EQ(agent.client().get("k").error().message, "get k: too large");
    request.get();
}

TEST(RankClient, ErrorsOfTheAgentKeepTheirKindAndText) {
    FakeAgent agent;
    auto request =
        agent.answer_one(json(R"({"ok":false,"error":"timed_out","message":"missing: gloo/3"})"));
    const Status waited = agent.client().wait({"gloo/3"}, 10ms);
    ASSERT_FALSE(waited.has_value());
    EXPECT_EQ(waited.error().code, Errc::timed_out);
    EXPECT_EQ(waited.error().message, "wait: missing: gloo/3");
    request.get();

    request = agent.answer_one(json(R"({"ok":false,"error":"not_found","message":"no key"})"));
    EXPECT_EQ(agent.client().get("k").error().code, Errc::not_found);
    request.get();
}

TEST(RankClient, ALateAnswerToAnOlderRequestIsSkipped) {
    FakeAgent agent;
    agent.write(R"({"id":999,"ok":true,"value":"AA=="})");
    auto request = agent.answer_one(json(R"({"ok":true,"value":"AQ=="})"));
    EXPECT_EQ(agent.client().get("k").value(), std::string{"\1"});
    request.get();
}

TEST(RankClient, AnAgentThatIsGoneIsUnavailable) {
    FakeAgent agent;
    agent.hang_up();
    EXPECT_EQ(agent.client().get("k").error().code, Errc::unavailable);
    EXPECT_EQ(RankClient::connect("/nonexistent/socket").error().code, Errc::unavailable);
    EXPECT_EQ(RankClient::connect(std::string(200, 'a')).error().code, Errc::invalid);
}

// It was refused, and "for ever" is often asked for with a large number.
TEST(RankClient, AWaitOfMoreThanADayIsOneOfADay) {
    FakeAgent agent;
    auto request = agent.answer_one(json(R"({"ok":true})"));
    EXPECT_TRUE(agent.client().barrier("b", 100'000s).has_value());
    EXPECT_EQ(request.get(), json(R"({"op":"barrier","name":"b","timeout_ms":86400000,"id":1})"));
    request = agent.answer_one(json(R"({"ok":true})"));
    EXPECT_TRUE(agent.client().wait({"k"}, 100'000s).has_value());
    EXPECT_EQ(request.get(), json(R"({"op":"wait","keys":["k"],"timeout_ms":86400000,"id":2})"));
}

// The rank that had only waited was taken for the cause: by these words it is known as an echo.
TEST(RankClient, ABarrierThatNobodyAnswersSaysThatNobodyIsKnownToBeMissing) {
    FakeAgent agent;
    const auto none = -5s;  // with what the answer may be late: nothing is waited for
    for (const auto& [waited, words] :
         {std::pair{agent.client().barrier("b", none),
                    "barrier b: missing: unknown: the agent does not answer"},
          std::pair{agent.client().wait({"k"}, none),
                    "wait: missing: unknown: the agent does not answer"}}) {
        ASSERT_FALSE(waited);
        EXPECT_EQ(waited.error().code, Errc::timed_out);
        EXPECT_EQ(waited.error().message, words);
    }
}

TEST(RankClient, KeysAndValuesBeyondTheLimitsAreRefusedHere) {
    FakeAgent agent;
    EXPECT_EQ(agent.client().set(std::string(257, 'k'), "").error().code, Errc::invalid);
    EXPECT_EQ(agent.client().get("").error().code, Errc::invalid);
    const std::string huge(64U << 20U, 'v');
    const Status set = agent.client().set("weights", huge);
    ASSERT_FALSE(set.has_value());
    EXPECT_EQ(set.error().code, Errc::invalid);
    EXPECT_EQ(set.error().message,
              "set: weights: the value has 67108864 bytes, at most 1048576 are allowed");
    EXPECT_EQ(agent.client().cas("k", huge, "").error().code, Errc::invalid);
    EXPECT_EQ(agent.client().multi_set({{"k", huge}}).error().code, Errc::invalid);
    // Nothing of it was sent: the next message is the first.
    EXPECT_TRUE(agent.client().phase("train"));
    EXPECT_EQ(agent.read(), json(R"({"op":"phase","phase":"train"})"));
}

// Whether a value of 1 MiB fits one message is up to this machine's net.core.wmem_max.
TEST(RankClient, AValueOfOneMebibyteArrivesOrIsRefusedClearly) {
    FakeAgent agent;
    const std::string value(1U << 20U, 'v');
    if (agent.send_buffer() > (3 << 20)) {  // 1.4 MB of base 64, and the kernel counts its frames
        auto request = agent.answer_one(json(R"({"ok":true})"));
        const Status set = agent.client().set("k", value);
        EXPECT_TRUE(set.has_value()) << set.error().text();
        EXPECT_EQ(request.get()["value"], base64_encode(value));
        return;
    }
    const Status set = agent.client().set("k", value);
    ASSERT_FALSE(set.has_value());
    EXPECT_EQ(set.error().code, Errc::exhausted);
    EXPECT_NE(set.error().message.find("wmem_max"), std::string::npos) << set.error().message;
}

}  // namespace
}  // namespace lockstep
