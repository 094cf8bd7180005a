#include "job/agent/ranks/rank_message.hpp"

#include "job/base/limits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

RankReport report_of(std::string_view text) {
    auto message = parse_rank_message(text, 100);
    EXPECT_TRUE(message) << message.error().reason;
    return message ? std::get<RankReport>(*message) : RankReport{};
}

TEST(RankMessage, AReportCarriesStepTimeAndEveryMetric) {
    const auto report = report_of(
        R"({"op":"report","step":12,"epoch":3,"time":5.5,"loss":0.53,"samples":64,"grad_norm":"inf"})");
    EXPECT_EQ(report.step, 12);
    EXPECT_EQ(report.time, 5.5);
    EXPECT_TRUE(report.has_loss);
    EXPECT_THAT(report.metrics, ElementsAre(Pair("epoch", 3), Pair("loss", 0.53),
                                            Pair("samples", 64), Pair("grad_norm", INFINITY)));
}

TEST(RankMessage, AReportWithoutStepAndTimeIsStampedByTheAgent) {
    const auto report = report_of(R"({"op":"report","accuracy":0.9})");
    EXPECT_EQ(report.step, -1);
    EXPECT_EQ(report.time, 100);
    EXPECT_FALSE(report.has_loss);
}

TEST(RankMessage, MicroAndEpochLossesDoNotMixWithTheStepLoss) {
    EXPECT_THAT(report_of(R"({"op":"report","kind":"micro","loss":1,"x":2})").metrics,
                ElementsAre(Pair("micro_loss", 1), Pair("x", 2)));
    EXPECT_THAT(report_of(R"({"op":"report","kind":"epoch","loss":1})").metrics,
                ElementsAre(Pair("epoch_loss", 1)));
    EXPECT_THAT(report_of(R"({"op":"report","kind":"opt","loss":1})").metrics,
                ElementsAre(Pair("loss", 1)));
}

TEST(RankMessage, BusySecondsAreStepWithoutTheWaits) {
    const auto busy = [](std::string_view text) {
        for (const auto& [name, value] : report_of(text).metrics) {
            if (name == "busy_seconds") {
                return value;
            }
        }
        return -1.0;
    };
    EXPECT_EQ(
        busy(R"({"op":"report","step_seconds":4,"comm_wait_seconds":1,"data_wait_seconds":2})"), 1);
    EXPECT_EQ(busy(R"({"op":"report","step_seconds":1,"comm_wait_seconds":2})"), 0);
    EXPECT_EQ(busy(R"({"op":"report","step_seconds":4,"comm_wait_seconds":1,"busy_seconds":3.5})"),
              3.5);
    EXPECT_EQ(busy(R"({"op":"report","step_seconds":4})"), -1) << "unknown waits are not zero";
}

struct BadCase {
    const char* text;
    const char* reason;
    std::optional<std::int64_t> id;
};

TEST(RankMessage, RefusesWithAReason) {
    const BadCase cases[] = {
        {"", "not JSON: syntax error at byte", {}},
        {"[1]", "not a JSON object", {}},
        {"{}", "op: missing", {}},
        {R"({"op":5})", "op: missing", {}},
        {R"({"op":"dance"})", "op: unknown \"dance\"", {}},
        {R"({"op":"dance","id":4})", "op: unknown \"dance\"", 4},
        {R"({"op":"report","step":1.5})", "/step", {}},
        {R"({"op":"report","step":-7})", "/step", {}},
        {R"({"op":"report","kind":"x"})", "/kind", {}},
        {R"({"op":"report","Loss":1})", "\"Loss\" is no metric name", {}},
        {R"({"op":"report","loss":"high"})", "loss: must be a number", {}},
        {R"({"op":"report","loss":null})", "loss: must be a number", {}},
        {R"({"op":"report","loss":1,"loss":2})", "appears twice", {}},
        {R"({"op":"phase","phase":"lunch"})", "/phase", {}},
        {R"({"op":"checkpoint","step":1})", "step and path must be given", {}},
        {R"({"op":"get","key":"k"})", "id: a key operation needs an integer id", {}},
        {R"({"op":"get","id":1})", "/key: missing", 1},
        {R"({"op":"get","id":1,"key":""})", "/key: must not be empty", 1},
        {R"({"op":"set","id":1,"key":"k","value":"!"})", "/value: is not base 64", 1},
        {R"({"op":"delete","id":1})", "/key: missing", 1},
        {R"({"op":"cas","id":1,"key":"k"})", "/value: missing", 1},
        {R"({"op":"cas","id":1,"key":"k","value":"","expected":"!"})", "/expected: is not base 64",
         1},
        {R"({"op":"set","id":1,"key":"k","value":"","once":1})", "/once", 1},
        {R"({"op":"multi_set","id":1,"keys":["k"],"values":[]})", "/values: one for each key", 1},
        {R"({"op":"multi_set","id":1,"keys":["k"],"values":["!"]})", "/values: is not base 64", 1},
        {R"({"op":"wait","id":1,"keys":"k"})", "/keys", 1},
        {R"({"op":"wait","id":1,"keys":["k"],"timeout_ms":-1})", "/timeout_ms", 1},
    };
    for (const auto& bad : cases) {
        const auto message = parse_rank_message(bad.text, 0);
        ASSERT_FALSE(message) << bad.text;
        EXPECT_THAT(message.error().reason, HasSubstr(bad.reason)) << bad.text;
        EXPECT_EQ(message.error().id, bad.id) << bad.text;
    }
}

TEST(RankMessage, AReportMayNotBeLargeButAValueMay) {
    const std::string pad(limits::kReportBytes, ' ');
    const auto report = parse_rank_message(R"({"op":"report","x":1)" + pad + "}", 0);
    ASSERT_FALSE(report);
    EXPECT_THAT(report.error().reason, HasSubstr("larger than 65536 bytes"));
    const std::string value(1'000'000, 'A');
    EXPECT_TRUE(parse_rank_message(R"({"op":"set","id":1,"key":"k","value":")" + value + "\"}", 0));
}

TEST(RankMessage, AValueThatIsTooLargeIsRefusedByTheNameOfItsKey) {
    const std::string value((limits::kValueBytes + 2) / 3 * 4 + 4, 'A');
    const auto message =
        parse_rank_message(R"({"op":"set","id":7,"key":"weights","value":")" + value + "\"}", 0);
    ASSERT_FALSE(message);
    EXPECT_EQ(message.error().id, 7);
    EXPECT_THAT(message.error().reason,
                HasSubstr("/value: of the key weights has more than 1048576 bytes"));
}

TEST(RankMessage, CasAndMultiSetBecomeTheWiresForm) {
    auto message =
        parse_rank_message(R"({"op":"cas","id":6,"key":"k","expected":"YQ==","value":"Yg=="})", 0);
    ASSERT_TRUE(message);
    auto request = std::get<RankKeyRequest>(*message).request;
    EXPECT_EQ(request.expected, "YQ==");
    EXPECT_EQ(request.value, "Yg==");
    message = parse_rank_message(
        R"({"op":"multi_set","id":6,"keys":["a","b"],"values":["YQ==",""],"once":true})", 0);
    ASSERT_TRUE(message);
    request = std::get<RankKeyRequest>(*message).request;
    EXPECT_THAT(request.keys, ElementsAre("a", "b"));
    EXPECT_THAT(request.values, ElementsAre("YQ==", ""));
    EXPECT_TRUE(request.once);
}

TEST(RankMessage, KeyRequestsBecomeTheWiresForm) {
    const auto message =
        parse_rank_message(R"({"op":"barrier","id":6,"name":"b","timeout_ms":9})", 0);
    ASSERT_TRUE(message);
    const auto& request = std::get<RankKeyRequest>(*message);
    EXPECT_EQ(request.id, 6);
    EXPECT_EQ(request.request.op, wire::KvOp::barrier);
    EXPECT_THAT(request.request.keys, ElementsAre("b"));
    EXPECT_EQ(request.request.timeout_ms, 9);
}

TEST(RankMessage, AWaitOfMoreThanADayIsNotRefusedAndEndsAfterOne) {
    const auto message =
        parse_rank_message(R"({"op":"wait","id":6,"keys":["a"],"timeout_ms":1000000000})", 0);
    ASSERT_TRUE(message) << message.error().reason;
    EXPECT_EQ(std::get<RankKeyRequest>(*message).request.timeout_ms, 86'400'000);
}

TEST(RankMessage, AnExceptionIsReadAsTheHooksSendIt) {
    const auto message = parse_rank_message(
        R"({"op":"exception","pid":7,"final":true,"time":1700000000.25,"type":"ValueError",
            "message":"label 17","traceback":"Traceback …","chain":[["KeyError","'w'"],
            ["ValueError","label 17"]],"thread":"","rank":2})",
        0);
    ASSERT_TRUE(message);
    const auto& note = std::get<ExceptionNote>(*message);
    EXPECT_EQ(note.pid, 7);
    EXPECT_TRUE(note.final);
    EXPECT_EQ(note.at, 1'700'000'000'250);
    EXPECT_EQ(note.type, "ValueError");
    EXPECT_EQ(note.rank, 2);
    ASSERT_EQ(note.chain.size(), 2U);
    EXPECT_EQ(note.chain[0].first, "KeyError");
    EXPECT_FALSE(parse_rank_message(R"({"op":"exception","pid":7})", 0)) << "of what?";
}

// It was refused as a whole, and the cause had neither the message's other lines nor its words.
TEST(RankMessage, OfAnExceptionWithNulOnlyThatIsLeftOut) {
    const auto message = parse_rank_message(
        R"({"op":"exception","pid":7,"final":true,"time":17,"type":"ValueError",
            "message":"before\u0000after\nlast","traceback":"Trace\u0000back","chain":[
            ["ValueError","before\u0000after"]],"thread":"","rank":2})",
        0);
    ASSERT_TRUE(message);
    const auto& note = std::get<ExceptionNote>(*message);
    EXPECT_EQ(note.message, "beforeafter\nlast");
    EXPECT_EQ(note.traceback, "Traceback");
    EXPECT_EQ(note.chain[0].second, "beforeafter");
}

TEST(RankMessage, AnswersCarryWhatTheOperationAsksFor) {
    wire::KeyReply reply;
    reply.ok = true;
    reply.value = "aGk=";
    reply.values = {"YQ=="};
    reply.number = 4;
    EXPECT_EQ(encode_rank_answer(1, wire::KvOp::set, reply), R"({"id":1,"ok":true})");
    EXPECT_EQ(encode_rank_answer(1, wire::KvOp::get, reply),
              R"({"id":1,"ok":true,"value":"aGk="})");
    EXPECT_EQ(encode_rank_answer(1, wire::KvOp::multi_get, reply),
              R"({"id":1,"ok":true,"values":["YQ=="]})");
    EXPECT_EQ(encode_rank_answer(1, wire::KvOp::add, reply), R"({"id":1,"ok":true,"value":4})");
    EXPECT_EQ(encode_rank_answer(1, wire::KvOp::erase, reply),
              R"({"id":1,"ok":true,"deleted":false})");
    EXPECT_EQ(encode_rank_answer(1, wire::KvOp::cas, reply),
              R"({"id":1,"ok":true,"swapped":false,"value":null})");
    reply.has_value = reply.swapped = true;
    EXPECT_EQ(encode_rank_answer(1, wire::KvOp::cas, reply),
              R"({"id":1,"ok":true,"swapped":true,"value":"aGk="})");
    EXPECT_EQ(encode_rank_refusal({}, "invalid", "x"),
              R"({"id":null,"ok":false,"error":"invalid","message":"x"})");
    reply.ok = false;
    reply.error = "timed_out";
    reply.message = "k is missing";
    EXPECT_EQ(encode_rank_answer(1, wire::KvOp::wait, reply),
              R"({"id":1,"ok":false,"error":"timed_out","message":"k is missing"})");
}

}  // namespace
}  // namespace lockstep
