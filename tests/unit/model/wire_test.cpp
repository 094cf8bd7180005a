#include "job/model/wire/wire.hpp"

#include <gtest/gtest.h>

namespace lockstep::wire {
namespace {

std::vector<AgentMessage> agent_samples() {
    Exited exited{3, 1, 2, -1, 9, true, false, 123, "tail \xff"};
    exited.step = 7;
    KeyRequest keys{1,    9,    2,      KvOp::wait, {"a", "b"},        "dmFs",      -4,
                    1000, true, "b2xk", true,       1'700'000'000'000, {"YQ==", ""}};
    Started started{1, {{0, 11, true}, {1, 12, false, true, true, 3, 0}}};
    return {Hello{1, 2, "n2", 42, "abc", "4711", "0.1.0", 3, true},
            Join{"127.0.0.1", 29500, 8, 2, 16000, {5000, 5001}, 3, {"10.0.0.1", "fd00::1"}},
            Ready{4},
            started,
            exited,
            Fault{5, 1, -1, "user_error", "why", 99},
            CheckpointSaved{6, 1, 0, 200, "/c", 99},
            Done{7, 1},
            keys,
            Beat{100, 1, 3, 1'700'000'000, -250, 90},
            Examined{4, {{0, 11, "D", "nfs_wait_bit_killable"}, {1, 12, "R", ""}}},
            GpuXid{8, 1, 2, 3, 79, 99},
            EvidenceSaved{4, {{1, "spin (a.py:3)", {{"python.txt", 77}}, {{"ras", "no answer"}}}}},
            TableRequest{4},
            Bye{8, "it was told to end (SIGTERM)"},
            Checked{*parse_json(R"({"hostname":"n2"})")},
            Probed{1, *parse_json(R"([{"slot":3}])")},
            PairTested{2, 812, "exit code 1", true, *parse_json(R"({"ranks":16})")},
            CanSave{4, 2, 1, "does not catch SIGUSR2"},
            SaveAsked{9, 4, -1, "", 99},
            Warned{10, 1, -1, "ranks train by themselves"},
            Desync{1, 2, "3 ranks wait for rank 2", 4500},
            Profiled{4, 2, {{1, "", {{"stacks.txt", 77}}, {{"trace", "no torch"}}}}}};
}

std::vector<DaemonMessage> daemon_samples() {
    Welcome welcome;
    welcome.daemon = "d";
    welcome.job_id = "ls-x";
    welcome.attempt = 1;
    welcome.spec = *parse_json(R"({"name":"x"})");
    World world{1,
                4,
                1,
                2,
                2,
                "10.0.0.1",
                29500,
                {"a", "b"},
                -1,
                {"10.0.0.1", "10.0.0.2"},
                {5000, 5001, 5002, 5003},
                2,
                "0123abcd",
                "10.0.0.2",
                {"10.0.0.1", "10.0.0.2", "fd00::1"},
                {"mlx5_0:1", "mlx5_1:1"}};
    KeyReply reply{9, true, true, "dg==", {"YQ=="}, 7, "", "", true, "1", 12};
    return {welcome,
            world,
            Start{1},
            Abort{1, "why", 500},
            Stop{"over", 10, "cancelled"},
            Ack{5, 6},
            reply,
            Fenced{2, "old"},
            Save{3},
            Examine{4, "no step for 60 s", {1, 0}},
            Table{"0123abcd", {"a", "b"}, {"10.0.0.1", "10.0.0.2"}, {5000, 5001, 5002, 5003}},
            Drain{"lockstepd is being stopped"},
            Probe{1, *parse_json(R"([{"slot":3}])")},
            PairTest{2, *parse_json(R"({"lead":true})")},
            AskSave{4, 2},
            Clock{1'700'000'000, 1'700'000'500},
            Profile{4, 2, 5, {0, 3}}};
}

TEST(Wire, AgentMessagesReadBack) {
    const auto all = agent_samples();
    ASSERT_EQ(all.size(), std::variant_size_v<AgentMessage>);
    for (std::size_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(all[i].index(), i);
        const std::string text = encode(all[i]);
        const auto again = decode_agent(text);
        ASSERT_TRUE(again.has_value()) << text << again.error().message;
        EXPECT_EQ(again->index(), i);
        EXPECT_EQ(encode(*again), text);
    }
}

// An agent from before the test with NCCL knows that in pairs.
TEST(Wire, ATestInPairsOfAnOlderAgentIsHeard) {
    Json message =
        *parse_json(wire::encode(wire::AgentMessage{wire::PairTested{2, 812, "", false, Json{}}}));
    message.erase("nccl");
    const auto read = wire::decode_agent(dump_json(message));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(std::get<wire::PairTested>(*read).ms, 812);
    EXPECT_TRUE(std::get<wire::PairTested>(*read).nccl.is_null());
}

TEST(Wire, AnAgentThatJoinsAgainSaysWhatItHasLeft) {
    const auto again = decode_agent(encode(agent_samples()[1]));
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(std::get<Join>(*again).generation, 3);
    const auto first =
        decode_agent(R"({"type":"join","address":"a","port":1,"cores":1,"gpus":0,"memory_mb":1})");
    ASSERT_TRUE(first.has_value()) << first.error().message;
    EXPECT_EQ(std::get<Join>(*first).generation, 0) << "of an agent of the version before";
}

TEST(Wire, WhatRanksAreDoingReadsBackRankByRank) {
    const auto again = decode_agent(encode(agent_samples()[10]));
    ASSERT_TRUE(again.has_value()) << again.error().message;
    const auto& examined = std::get<Examined>(*again);
    EXPECT_EQ(examined.generation, 4);
    ASSERT_EQ(examined.ranks.size(), 2U);
    EXPECT_EQ(examined.ranks[0].pid, 11);
    EXPECT_EQ(examined.ranks[0].state, "D");
    EXPECT_EQ(examined.ranks[0].wchan, "nfs_wait_bit_killable");
    EXPECT_EQ(examined.ranks[1].rank, 1);
    EXPECT_EQ(examined.ranks[1].wchan, "");
    EXPECT_FALSE(decode_agent(R"({"type":"examined","generation":1})").has_value());
    EXPECT_FALSE(
        decode_agent(R"({"type":"examined","generation":1,"ranks":[{"rank":0}]})").has_value());
}

TEST(Wire, EvidenceReadsBackRankByRank) {
    const auto again = decode_agent(encode(agent_samples()[12]));
    ASSERT_TRUE(again.has_value()) << again.error().message;
    const auto& saved = std::get<EvidenceSaved>(*again);
    ASSERT_EQ(saved.ranks.size(), 1U);
    EXPECT_EQ(saved.ranks[0].frame, "spin (a.py:3)");
    ASSERT_EQ(saved.ranks[0].files.size(), 1U);
    EXPECT_EQ(saved.ranks[0].files[0].size, 77);
    ASSERT_EQ(saved.ranks[0].missing.size(), 1U);
    EXPECT_EQ(saved.ranks[0].missing[0].why, "no answer");
    EXPECT_FALSE(
        decode_agent(R"({"type":"evidence","generation":1,"ranks":[{"rank":0,"frame":""}]})")
            .has_value());
}

TEST(Wire, TheDaemonsQuestionsReadBack) {
    const auto save = decode_daemon(encode(daemon_samples()[8]));
    ASSERT_TRUE(save.has_value());
    EXPECT_EQ(std::get<Save>(*save).generation, 3);
    const auto examine = decode_daemon(encode(daemon_samples()[9]));
    ASSERT_TRUE(examine.has_value());
    EXPECT_EQ(std::get<Examine>(*examine).generation, 4);
    EXPECT_EQ(std::get<Examine>(*examine).reason, "no step for 60 s");
    EXPECT_EQ(std::get<Examine>(*examine).first, (std::vector<std::int32_t>{1, 0}));
}

TEST(Wire, DaemonMessagesReadBack) {
    const auto all = daemon_samples();
    ASSERT_EQ(all.size(), std::variant_size_v<DaemonMessage>);
    for (std::size_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(all[i].index(), i);
        const std::string text = encode(all[i]);
        const auto again = decode_daemon(text);
        ASSERT_TRUE(again.has_value()) << text << again.error().message;
        EXPECT_EQ(encode(*again), text);
    }
}

TEST(Wire, AWelcomeWithTheSpecsTextIsTheSame) {
    const auto sample = daemon_samples().front();
    const auto& welcome = std::get<Welcome>(sample);
    EXPECT_EQ(encode_welcome(welcome, dump_json(welcome.spec)), encode(sample));
}

TEST(Wire, IgnoresFieldsOfANewerPeerButMissesItsOwn) {
    EXPECT_TRUE(decode_agent(R"({"type":"ready","generation":1,"later":true})").has_value());
    EXPECT_FALSE(decode_agent(R"({"type":"ready"})").has_value());
    EXPECT_FALSE(decode_agent(R"({"type":"ready","generation":"1"})").has_value());
    EXPECT_FALSE(decode_agent(R"({"type":"world","generation":1})").has_value());
    EXPECT_FALSE(decode_agent(R"([])").has_value());
    EXPECT_FALSE(decode_agent("").has_value());
}

TEST(Wire, KeyMessagesOfAPeerWithoutCasReadBack) {
    const auto request = decode_agent(
        R"({"type":"keys","generation":1,"id":2,"rank":0,"op":"set","keys":["k"],"value":"dg==",)"
        R"("delta":0,"timeout_ms":1,"replay":false})");
    ASSERT_TRUE(request.has_value()) << request.error().message;
    EXPECT_FALSE(std::get<KeyRequest>(*request).once);
    const auto reply = decode_daemon(
        R"({"type":"key_reply","id":2,"ok":true,"has_value":false,"value":"","values":[],)"
        R"("number":0,"error":"","message":""})");
    ASSERT_TRUE(reply.has_value()) << reply.error().message;
    EXPECT_EQ(std::get<KeyReply>(*reply).version, 0);
}

TEST(Wire, KeyOperationsHaveTheirWordsAndANewOneIsNoTornMessage) {
    for (const std::string_view word :
         {"set", "multi_set", "get", "multi_get", "wait", "add", "cas", "delete", "barrier"}) {
        EXPECT_NE(kv_op_of(word), KvOp::unknown);
        EXPECT_EQ(to_string(kv_op_of(word)), word);
    }
    const auto request = decode_agent(
        R"({"type":"keys","generation":1,"id":2,"rank":0,"op":"append","keys":["k"],"value":"",)"
        R"("delta":0,"timeout_ms":1,"replay":false})");
    ASSERT_TRUE(request.has_value()) << request.error().message;
    EXPECT_EQ(std::get<KeyRequest>(*request).op, KvOp::unknown);
}

TEST(Wire, FilesReadBack) {
    AttemptFile attempt{"http://127.0.0.1:1", "ticket", "ls-x", 1, 2};
    EXPECT_EQ(decode_attempt_file(encode_attempt_file(attempt))->ticket, "ticket");
    EXPECT_EQ(encode_attempt_file(attempt).find("fingerprint"), std::string::npos);
    attempt.fingerprint = "sha256:ab";
    EXPECT_EQ(decode_attempt_file(encode_attempt_file(attempt))->fingerprint, "sha256:ab");
    EXPECT_EQ(encode_attempt_file(attempt).find("socket"), std::string::npos);
    attempt.socket = "/data/lockstepd.sock";
    EXPECT_EQ(decode_attempt_file(encode_attempt_file(attempt))->socket, "/data/lockstepd.sock");
    ResultFile result;
    result.incarnation = "abc";
    result.generation = 1;
    result.exits.push_back(std::get<Exited>(agent_samples()[4]));
    result.faults.push_back(std::get<Fault>(agent_samples()[5]));
    const auto again = decode_result_file(encode_result_file(result));
    ASSERT_TRUE(again.has_value()) << again.error().message;
    ASSERT_EQ(again->exits.size(), 1U);
    EXPECT_EQ(again->exits[0].signal, 9);
    EXPECT_EQ(again->faults[0].message, "why");
    EXPECT_FALSE(decode_result_file("{\"incarnation\":").has_value());
    const auto words = decode_gave_up_file(encode_gave_up_file({"abc", "n1", "another clock"}));
    ASSERT_TRUE(words.has_value()) << words.error().message;
    EXPECT_EQ(words->incarnation, "abc");
    EXPECT_EQ(words->node, "n1");
    EXPECT_EQ(words->reason, "another clock");
}

}  // namespace
}  // namespace lockstep::wire
