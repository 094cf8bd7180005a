#include "job/model/event.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// One event of each kind with something in every field.
std::vector<EventData> samples() {
    Cause cause;
    cause.kind = CauseClass::oom;
    cause.message = "m";
    cause.rank = 1;
    cause.node = "n";
    cause.exit_code = 3;
    cause.signal = 9;
    cause.log_tail = "tail\n";
    event::RankExited exited{1, 2, 3, "n", -1, 9, true, true, 12345, "tail"};
    exited.step = 12;
    event::FaultSeen fault{1, 2, 3, "n", CauseClass::hang, "why", 99, 4, true, "check", true};
    return {event::Submitted{"ada", *parse_json(R"({"name":"x"})"), {"w"}},
            event::AttemptCreated{1, "hash", "/dir"},
            event::AttemptPlaced{1, "local-1"},
            event::AgentClaimed{1, 2, "n", "inc", 42, "17"},
            event::GenerationStarted{
                1, 2, "10.0.0.1", 29500, {"10.0.0.1", "10.0.0.2"}, 200, {5000, 5001}, {2, 0}, true},
            event::RanksStarted{1, 2},
            exited,
            fault,
            event::CheckpointSaved{1, 2, 300, "/ckpt"},
            event::GenerationEnded{1, 2, cause, 52},
            event::AttemptEnded{1, cause},
            event::CancelRequested{"ada"},
            event::Finished{JobState::failed, cause, 77},
            event::AttemptSubmitting{1, 2},
            event::AttemptSubmitted{1, "17"},
            event::Held{1, "by the administrator"},
            event::Released{1},
            event::AgentRefused{1, 2, "n", "its clock"},
            event::DependencyFailed{"ls-1", "it failed"},
            event::RestartRequested{1, 2, "ada", "more nodes", "key-1"},
            event::RanksReleased{1, 2},
            event::AnomalySeen{1, 2, 3, "n", "straggler", 40, "busy"},
            event::GpuXid{1, 2, 3, "n", 4, 79, 99},
            event::EvidenceTaken{1, 2, "a hang", "all", 7, *parse_json(R"([{"rank":1}])")},
            event::PreflightSeen{1, 2, "n", "fail", "nccl", "2.18", "2.28"},
            event::WarningGiven{1, 2, 3, "n", "look at it"},
            event::CheckpointRequested{1, 2, "time limit", "USR2", 3, "n", "it does not listen",
                                       "key-2"},
            event::NodeReturned{1, 2, "n", "i", 17},
            event::ProfileTaken{1, 2, 3, "ada", 5, "2 ranks", *parse_json(R"([{"rank":1}])")},
            event::Suspended{1, true, "it is suspended"}};
}

TEST(Events, ReadBackAsTheyWereWritten) {
    const auto all = samples();
    ASSERT_EQ(all.size(), kEventKinds);
    for (std::size_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(all[i].index(), i);
        const std::string text = encode_event_data(all[i]);
        const auto again = decode_event_data(static_cast<EventKind>(i), text);
        ASSERT_TRUE(again.has_value()) << text << again.error().message;
        EXPECT_EQ(encode_event_data(*again), text);
        EXPECT_EQ(dump_json(*parse_json(text)), text);
    }
}

template <class E>
E read_back(const E& event) {
    const EventData data{event};
    auto again = decode_event_data(static_cast<EventKind>(data.index()), encode_event_data(data));
    EXPECT_TRUE(again.has_value());
    return std::get<E>(*again);
}

TEST(Events, WhatRecoveryAddedReadsBack) {
    event::GenerationStarted started;
    started.slots = {2, 0};
    EXPECT_EQ(read_back(started).slots, started.slots);
    EXPECT_FALSE(read_back(started).release_told);
    started.release_told = true;
    EXPECT_TRUE(read_back(started).release_told);
    event::FaultSeen fault;
    fault.slot = 4;
    EXPECT_EQ(read_back(fault).slot, 4);
    fault.slot = 0;
    EXPECT_EQ(read_back(fault).slot, 0) << "the first node is one, too";
    EXPECT_FALSE(read_back(fault).unwatched);
    fault.unwatched = true;
    EXPECT_TRUE(read_back(fault).unwatched);
    EXPECT_EQ(read_back(event::GenerationEnded{1, 2, {}, 52}).step, 52);
    EXPECT_EQ(read_back(event::GenerationEnded{1, 2, {}, 0}).step, 0);
    EXPECT_EQ(read_back(event::RestartRequested{1, 2, "ada"}).by, "ada");
}

// A log of the version before has neither.
TEST(Events, WhatAnOlderVersionWroteIsRead) {
    const auto fault =
        decode_event_data(EventKind::fault, R"({"attempt":1,"generation":1,"rank":-1,"node":"n",
                              "cause_class":"hang","message":"m","at":5})");
    ASSERT_TRUE(fault.has_value()) << fault.error().message;
    EXPECT_EQ(std::get<event::FaultSeen>(*fault).slot, -1);
    EXPECT_EQ(std::get<event::FaultSeen>(*fault).cause_class, CauseClass::hang);
    const auto unknown =
        decode_event_data(EventKind::fault, R"({"attempt":1,"generation":1,"rank":-1,"node":"n",
                              "cause_class":"of_tomorrow","message":"m","at":5})");
    ASSERT_TRUE(unknown.has_value()) << unknown.error().message;
    EXPECT_EQ(std::get<event::FaultSeen>(*unknown).cause_class, CauseClass::internal);
    Json ended = *parse_json(encode_event_data(event::GenerationEnded{1, 2, {}, -1}));
    EXPECT_FALSE(ended.contains("step"));
    const auto again = decode_event_data(EventKind::generation_ended, dump_json(ended));
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(std::get<event::GenerationEnded>(*again).step, -1);
}

// Nor has one of a command without a key.
TEST(Events, ACommandOfAnOlderVersionHasNoKey) {
    const auto restart = decode_event_data(EventKind::restart_requested,
                                           R"({"attempt":1,"generation":2,"by":"ada"})");
    ASSERT_TRUE(restart.has_value()) << restart.error().message;
    EXPECT_EQ(std::get<event::RestartRequested>(*restart).key, "");
    EXPECT_EQ(encode_event_data(*restart), R"({"attempt":1,"generation":2,"by":"ada"})");
    const auto save =
        decode_event_data(EventKind::checkpoint_requested,
                          R"({"attempt":1,"generation":2,"by":"ada","signal":"USR2","rank":-1})");
    ASSERT_TRUE(save.has_value()) << save.error().message;
    EXPECT_EQ(std::get<event::CheckpointRequested>(*save).key, "");
    EXPECT_EQ(read_back(event::RestartRequested{1, 2, "ada", "", "k"}).key, "k");
    EXPECT_EQ(read_back(event::CheckpointRequested{1, 2, "ada", "USR2", -1, "", "", "k"}).key, "k");
}

TEST(Events, WhatDoesNotReadBackIsCorrupt) {
    EXPECT_EQ(decode_event_data(EventKind::finished, "{").error().code, Errc::corrupt);
    EXPECT_EQ(decode_event_data(EventKind::finished, "{}").error().code, Errc::corrupt);
    EXPECT_EQ(decode_event_data(EventKind::ranks_started, R"({"attempt":"1","generation":1})")
                  .error()
                  .code,
              Errc::corrupt);
}

TEST(Events, NeverShowATicket) {
    Event event;
    event.seq = 5;
    event.job = JobId{"ls-x"};
    event.data = event::AttemptCreated{1, "secret-hash", "/dir"};
    EXPECT_EQ(dump_json(to_json(event)).find("secret-hash"), std::string::npos);
}

TEST(Events, CarryTheContractsFields) {
    Event event;
    event.seq = 7;
    event.job = JobId{"ls-x"};
    event.time = 1000;
    event.data = samples()[static_cast<std::size_t>(EventKind::rank_exited)];
    const Json json = to_json(event);
    EXPECT_EQ(json["seq"], 7);
    EXPECT_EQ(json["kind"], "rank_exited");
    EXPECT_EQ(json["time"], "1970-01-01T00:00:01.000Z");
    EXPECT_EQ(json["attempt"], 1);
    EXPECT_EQ(json["generation"], 2);
    EXPECT_EQ(json["rank"], 3);
    EXPECT_EQ(json["node"], "n");
    EXPECT_EQ(json["data"]["signal"], 9);
}

TEST(States, WordsReadBack) {
    for (std::size_t i = 0; i < kJobStates; ++i) {
        EXPECT_EQ(parse_job_state(to_string(static_cast<JobState>(i))), static_cast<JobState>(i));
    }
    for (std::size_t i = 0; i < kEventKinds; ++i) {
        EXPECT_EQ(parse_event_kind(to_string(static_cast<EventKind>(i))),
                  static_cast<EventKind>(i));
    }
    for (std::size_t i = 0; i < kCauseClasses; ++i) {
        EXPECT_EQ(parse_cause_class(to_string(static_cast<CauseClass>(i))),
                  static_cast<CauseClass>(i));
    }
    EXPECT_FALSE(parse_job_state("done").has_value());
}

}  // namespace
}  // namespace lockstep
