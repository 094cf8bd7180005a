// size: evidence and a hang, a test of each way
// A hang as the agents and people see it: asked first, kept with the job, ended afterwards.
#include "daemon/control/machine/rank_findings.hpp"
#include "tests/unit/control/control_fixture.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EvidenceTest : public ControlTest {
  protected:
    // Ends a hang, without a restart.
    void start(const std::string& extra =
                   R"(},"recovery":{"max_restarts":0,"on":["hang"]},"watch":{"hang_seconds":3)") {
        id_ = start_job_with(agents_[0], agents_[1], extra);
    }
    // Both ranks report; rank 1 is two steps behind.
    void steps() {
        say_step(0, 1, 7);
        say_step(1, 1, 5);
    }
    void say_step(std::size_t node, std::uint64_t seq, std::int64_t step) {
        agents_[node].session->on_binary(batch(seq, static_cast<std::uint32_t>(node), step));
        until(
            [&] {
                const auto* ack = agents_[node].peer->last<wire::Ack>();
                return ack != nullptr && ack->batch >= seq;
            },
            "ACK");
    }
    // The daemon's; the ranks run on, and their agents come back.
    void restart() {
        for (TestAgent& agent : agents_) {
            agent.session->on_closed();
        }
        shut_down();
        boot();
        agents_[0] = hello(0, "i0", true);
        agents_[1] = hello(1, "i1", true);
        for (const TestAgent& agent : agents_) {
            until([&] { return agent.peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
        }
    }
    void hang() {
        stand_still();
        until([&] { return examined(0) && examined(1); }, "EXAMINE");
    }
    void stand_still() {
        // The watch looks now and then: it must have seen the steps before they stop.
        clock_.advance(std::chrono::milliseconds{300});
        agents_[0].say(wire::Beat{0, 1, 0});
        const auto polls = scheduler_.polls;
        until([&] { return scheduler_.polls > polls + 2; }, "it was looked at");
        clock_.advance(std::chrono::seconds{3});
        agents_[0].say(wire::Beat{0, 1, 0});
        agents_[1].say(wire::Beat{0, 1, 0});
    }
    // What both agents say of their ranks; `frame` tells one look from another.
    void tell_all(const std::string& frame) {
        for (const std::size_t node : {0U, 1U}) {
            tell_state(node, "R");
            tell_saved(node, {0, frame, {{"state.txt", 5}}, {}});
        }
    }
    std::string frame() {
        const Json all = list();
        return all["items"].empty() ? "" : all["items"][0]["ranks"][0].value("frame", "");
    }
    bool examined(std::size_t node) const {
        return agents_[node].peer->last<wire::Examine>() != nullptr;
    }
    void tell_state(std::size_t node, const std::string& state) {
        const auto rank = static_cast<std::int32_t>(node);
        agents_[node].say(wire::Examined{1, {{rank, 100 + rank, state, "do_wait"}}});
    }
    void tell_saved(std::size_t node, wire::RankEvidence evidence) {
        evidence.rank = static_cast<std::int32_t>(node);
        agents_[node].say(wire::EvidenceSaved{1, {std::move(evidence)}});
    }
    std::size_t items() { return list()["items"].size(); }
    Json list() {
        Json out;
        auto run = [&]() -> Task<void> {
            const CapturesQuery query{limits::kPageDefault, 0};
            const auto text = co_await control_->evidence(ada_, id_, query);
            if (text) {
                out = *parse_json(*text);
            }
        };
        wait(run());
        return out;
    }
    Status take() {
        Status out;
        auto run = [&]() -> Task<void> {
            const auto text = co_await control_->commands().take_evidence(ada_, id_);
            out = text ? Status{} : Status{fail(text.error())};
        };
        wait(run());
        return out;
    }
    Result<EvidencePlace> place(const EvidenceQuery& query) {
        Result<EvidencePlace> out = fail(Errc::internal, "not run");
        auto run = [&]() -> Task<void> {
            EvidenceQuery copy = query;
            out = co_await control_->evidence_place(ada_, id_, std::move(copy));
        };
        wait(run());
        return out;
    }
    bool stopped() const { return agents_[0].peer->last<wire::Stop>() != nullptr; }

    TestAgent agents_[2];
    std::string id_;
};

TEST_F(EvidenceTest, NothingIsEndedBeforeTheEvidenceIsIn) {
    start();
    steps();
    hang();
    EXPECT_EQ(agents_[0].peer->last<wire::Examine>()->first, std::vector<std::int32_t>{});
    EXPECT_EQ(agents_[1].peer->last<wire::Examine>()->first, std::vector<std::int32_t>{0});
    tell_state(0, "S");
    tell_state(1, "T");
    tell_saved(0, {0, "all_reduce (ddp.py:7)", {{"python.txt", 90}, {"state.txt", 5}}, {}});
    const auto polls = scheduler_.polls;
    until([&] { return scheduler_.polls > polls + 2; }, "a few looks later");
    EXPECT_FALSE(stopped()) << "one node has not said that its evidence is written";
    EXPECT_EQ(state(id_), "running");
    EXPECT_EQ(items(), 0U);
    tell_saved(1, {1,
                   "",
                   {{"state.txt", 6}, {"../agent.json", 6}, {"ras.txt", -1}},
                   {{"native", "it is stopped \x1b[2J"}}});
    until([&] { return stopped(); }, "STOP");
    const Json all = list();
    ASSERT_EQ(all["items"].size(), 1U);
    const Json& item = all["items"][0];
    EXPECT_EQ(item["generation"], 1);
    EXPECT_EQ(item["step"], 7);
    EXPECT_THAT(item["message"].get<std::string>(),
                HasSubstr("had: the state of all 2 ranks, Python stacks of rank 0"));
    EXPECT_THAT(item["message"].get<std::string>(),
                HasSubstr("Not had: rank 1: native: it is stop"));
    ASSERT_EQ(item["ranks"].size(), 2U);
    const Json& lagging = item["ranks"][0];
    EXPECT_EQ(lagging["rank"], 1);
    EXPECT_EQ(lagging["behind"], true);
    EXPECT_EQ(lagging["step"], 5);
    EXPECT_EQ(lagging["state"], "T");
    EXPECT_EQ(lagging["node"], "n1");
    ASSERT_EQ(lagging["files"].size(), 1U) << "no names that are none, no sizes that cannot be";
    EXPECT_EQ(lagging["files"][0]["name"], "state.txt");
    EXPECT_EQ(lagging["missing"][0]["why"], "it is stopped [2J");
    EXPECT_EQ(item["ranks"][1]["frame"], "all_reduce (ddp.py:7)");
}

// Nobody asked for anything: it is told, with what costs the ranks nothing, and taken back.
TEST_F(EvidenceTest, AHangIsToldWhateverRecoverySaysAndEndsNothing) {
    start(R"(},"watch":{"hang_seconds":3)");
    say_step(0, 1, 7);
    say_step(1, 1, 7);
    EXPECT_THAT(metrics_text(), HasSubstr("\nlockstep_job_hang{job_id=\"" + id_ + "\"} 0\n"));
    hang();
    EXPECT_TRUE(agents_[0].peer->last<wire::Examine>()->gentle);
    tell_state(0, "S");
    tell_state(1, "S");
    wire::RankEvidence waits{0, "train.py:39 main", {}, {}};
    waits.stack = "~ torch/_tensor.py:488 backward\ntrain.py:39 main";
    tell_saved(0, waits);
    wire::RankEvidence alone{1, "train.py:37 load", {}, {}};
    alone.stack = "train.py:37 load\ntrain.py:38 main";
    tell_saved(1, alone);
    const auto hang = [&] { return show(id_)["hang"]; };
    const auto gauge = [&](const char* value) {
        return "\nlockstep_job_hang{job_id=\"" + id_ + "\"} " + value + "\n";
    };
    until([&] { return hang().is_object(); }, "it is told");
    EXPECT_THAT(metrics_text(), HasSubstr(gauge("1")));
    EXPECT_EQ(hang()["rank"], 1);
    EXPECT_EQ(hang()["node"], "n1");
    EXPECT_EQ(hang()["step"], 7);
    EXPECT_THAT(hang()["message"].get<std::string>(),
                HasSubstr("rank 1 alone is in train.py:37 load; rank 0 waits in backward"));
    EXPECT_EQ(list()["items"][0]["ranks"][0]["rank"], 1) << "the culprit comes first";
    EXPECT_FALSE(stopped());
    EXPECT_EQ(state(id_), "running");
    // The next steps take it back; the next hang is told again.
    say_step(0, 2, 8);
    say_step(1, 2, 8);
    clock_.advance(std::chrono::milliseconds{300});
    agents_[0].say(wire::Beat{0, 1, 0});
    until([&] { return hang().is_null(); }, "it is taken back");
    EXPECT_THAT(metrics_text(), HasSubstr(gauge("0")));
    EXPECT_EQ(show(id_)["anomalies"]["hang"], 1);
    EXPECT_FALSE(stopped());
}

// A checkpoint that took long.
TEST_F(EvidenceTest, RanksThatGoOnWhileTheyAreAskedDoNotHang) {
    start();
    steps();
    hang();
    say_step(0, 2, 8);
    say_step(1, 2, 8);
    tell_all("train.py:3 save");
    until([&] { return items() == 1; }, "what they did is kept all the same");
    const auto polls = scheduler_.polls;
    until([&] { return scheduler_.polls > polls + 2; }, "a few looks later");
    EXPECT_FALSE(stopped());
    EXPECT_TRUE(show(id_)["hang"].is_null());
}

// An evaluation of more than a minute was a hang, the job was ended in it, went on from the
// checkpoint before, and was ended in it again.
TEST_F(EvidenceTest, ARankThatSaysThatItEvaluatesIsNotEndedForTheStepsItDoesNotMake) {
    start(R"(},"recovery":{"max_restarts":0,"on":["hang"])");
    const auto say = [this](std::uint64_t seq, const char* metric, double value) {
        Batch rows;
        rows.seq = seq;
        rows.generation = 1;
        const bool step = std::string{metric} == "loss";
        rows.add_row(0, step ? static_cast<std::int64_t>(seq) : -1,
                     1'700'000'000.0 + static_cast<double>(seq));
        rows.set(metric, value);
        agents_[0].session->on_binary(encode_batch(rows));
    };
    const auto pass = [this](int quarters) {  // of a minute
        for (int i = 0; i < quarters; ++i) {
            clock_.advance(std::chrono::seconds{15});
            agents_[0].say(wire::Beat{0, 1, 0});
            agents_[1].say(wire::Beat{0, 1, 0});
            const auto polls = scheduler_.polls;
            until([&] { return scheduler_.polls > polls + 2; }, "it was looked at");
        }
    };
    say(1, "loss", 1.0);
    say(2, "loss", 1.0);
    say(3, "phase_code", 2);
    pass(8);
    EXPECT_FALSE(examined(0)) << "two minutes";
    say(4, "phase_code", 1);
    pass(3);
    EXPECT_FALSE(examined(0)) << "it trains again for 45 s";
    pass(2);
    until([&] { return examined(0); }, "EXAMINE");
}

TEST_F(EvidenceTest, ARankThatEndsWhileItIsAskedIsNoHang) {
    start();
    steps();
    hang();
    agents_[1].say(exit(1, 1, 0));
    tell_all("train.py:9 end");
    until([&] { return items() == 1; }, "what they did is kept all the same");
    const auto polls = scheduler_.polls;
    until([&] { return scheduler_.polls > polls + 2; }, "a few looks later");
    EXPECT_FALSE(stopped()) << "the other one has its last step to make";
    EXPECT_TRUE(show(id_)["hang"].is_null());
}

TEST_F(EvidenceTest, AnAgentThatGathersForeverIsNotWaitedForForever) {
    start();
    steps();
    hang();
    tell_state(0, "S");
    tell_saved(0, {0, "f", {{"state.txt", 5}}, {}});
    clock_.advance(limits::kEvidencePatience);
    until(
        [&] {
            for (auto& agent : agents_) {
                agent.say(wire::Beat{0, 1, 0});  // alive, both
            }
            return stopped();
        },
        "STOP");
    const Json all = list();
    ASSERT_EQ(all["items"].size(), 1U);
    EXPECT_EQ(all["items"][0]["ranks"][0]["rank"], 1);
    EXPECT_THAT(all["items"][0]["message"].get<std::string>(),
                HasSubstr("rank 1: their agent did not answer in time"));
}

// That ranks had made steps is known from what is stored; else nobody would wait for the next one.
TEST_F(EvidenceTest, ARestartOfTheDaemonDoesNotHideAHang) {
    start();
    steps();
    restart();
    hang();
}

TEST_F(EvidenceTest, ARestartOfTheDaemonDoesNotHideAHangIfTheStepsAreInHistory) {
    open_samples_ = 1;  // every batch is put away
    shut_down();
    boot();
    start();
    steps();
    restart();
    hang();
}

TEST_F(EvidenceTest, AskedForNothingIsStopped) {
    start("");
    steps();
    ASSERT_TRUE(take());
    until([&] { return examined(0) && examined(1); }, "EXAMINE");
    for (const std::size_t node : {0U, 1U}) {
        tell_state(node, "R");
        tell_saved(node, {0, "f", {{"state.txt", 5}}, {}});
    }
    until([&] { return items() == 1; }, "it is kept");
    EXPECT_EQ(state(id_), "running");
    EXPECT_FALSE(stopped());
    EXPECT_EQ(list()["items"][0]["reason"], "asked for by ada");
    // Again: the newer look takes the place of the one before.
    ASSERT_TRUE(take());
    const std::string before = list()["items"][0]["time"];
    clock_.advance(std::chrono::seconds{1});
    for (const std::size_t node : {0U, 1U}) {
        tell_state(node, "R");
        tell_saved(node, {0, "g", {}, {}});
    }
    until([&] { return list()["items"][0]["ranks"][0]["frame"] == "g"; }, "the newer one");
    EXPECT_EQ(items(), 1U);
    EXPECT_NE(list()["items"][0]["time"], before);
}

// Who has the ranks looked at again and again used to hide that they hang.
TEST_F(EvidenceTest, APersonsLookDoesNotHideAHang) {
    start();
    steps();
    ASSERT_TRUE(take());
    until([&] { return examined(0) && examined(1); }, "EXAMINE");
    stand_still();
    tell_all("f");
    until([&] { return stopped(); }, "STOP");
    ASSERT_EQ(items(), 1U) << "what was asked for anyway is the hang's evidence";
    EXPECT_EQ(list()["items"][0]["reason"], "no rank has made a step");
    EXPECT_EQ(list()["items"][0]["ranks"][0]["rank"], 1) << "who lags is the hang's matter";
    EXPECT_THAT(agents_[0].peer->last<wire::Stop>()->reason,
                HasSubstr("no rank has made a step for 3 s; rank 1 on n1"));
}

// Each look is up to half a megabyte in the log.
TEST_F(EvidenceTest, TheRanksOfAGenerationAreLookedAtOnlySoOftenAndOnceMoreForAHang) {
    start();
    steps();
    for (std::int32_t look = 1; look < limits::kEvidenceEvents; ++look) {
        const auto before = agents_[1].peer->count<wire::Examine>();
        ASSERT_TRUE(take()) << look;
        until([&] { return agents_[1].peer->count<wire::Examine>() > before; }, "EXAMINE");
        tell_all("look " + std::to_string(look));
        until([&] { return frame() == "look " + std::to_string(look); }, "it is kept");
    }
    const Status refused = take();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::conflict);
    EXPECT_THAT(refused.error().message, HasSubstr("looked at 63 times"));
    const auto before = agents_[1].peer->count<wire::Examine>();
    stand_still();
    until([&] { return agents_[1].peer->count<wire::Examine>() > before; }, "EXAMINE");
    tell_all("the hang");
    until([&] { return stopped(); }, "STOP");
    EXPECT_EQ(frame(), "the hang");
}

TEST_F(EvidenceTest, OfAJobThatDoesNotRunThereIsNothingToLookAt) {
    id_ = submit()->id;
    until([&] { return scheduler_.submissions > 0; }, "the attempt reaches the scheduler");
    EXPECT_EQ(take().error().code, Errc::conflict);
    EXPECT_EQ(items(), 0U);
}

TEST_F(EvidenceTest, FilesHaveOnlyTheirOwnNames) {
    start("");
    const auto found = place({0, 0, 1, "python.txt"});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->directory, scheduler_.last.directory);
    EXPECT_EQ(found->folders, (std::vector<std::string>{"evidence", "gen-1", "rank-00001"}));
    ASSERT_TRUE(place({1, 1, 0, "state.txt"}));
    EXPECT_EQ(place({0, 0, 0, "agent.json"}).error().code, Errc::not_found);
    EXPECT_EQ(place({0, 0, 0, "../../agent.json"}).error().code, Errc::not_found);
    EXPECT_EQ(place({0, 0, 2, "state.txt"}).error().code, Errc::not_found);
    EXPECT_EQ(place({0, 2, 0, "state.txt"}).error().code, Errc::not_found);
    EXPECT_EQ(place({2, 0, 0, "state.txt"}).error().code, Errc::not_found);
}

TEST(EvidenceOrder, TheOneFurthestBehindComesFirstThenWhoDoesNotRun) {
    std::vector<RankFinding> ranks(5);
    for (std::int32_t rank = 0; rank < 5; ++rank) {
        RankFinding& one = ranks[static_cast<std::size_t>(rank)];
        one.rank = rank;
        one.step = 9;
        one.told = true;
        one.process.state = "S";
    }
    ranks[1].process.state = "D";
    ranks[2].behind = true;
    ranks[2].step = 8;
    ranks[3].behind = true;
    ranks[3].step = 4;
    EXPECT_THAT(lagging_first(ranks), ElementsAre(3, 2, 1, 0, 4));
}

TEST(EvidenceOrder, TheOnlyOneThatComputesComesBeforeThoseThatWaitForIt) {
    std::vector<RankFinding> ranks(4);
    for (std::int32_t rank = 0; rank < 4; ++rank) {
        RankFinding& one = ranks[static_cast<std::size_t>(rank)];
        one.rank = rank;
        one.told = true;
        one.process.state = rank == 2 ? "R" : "S";
    }
    EXPECT_THAT(lagging_first(ranks), ElementsAre(2, 0, 1, 3));
    ranks[2].process.state = "S";
    ranks[2].told = false;  // nobody has told of it
    EXPECT_THAT(lagging_first(ranks), ElementsAre(0, 1, 2, 3));
}

// Of 98,304 ranks nobody reads, nor sorts, more than the first.
TEST(EvidenceOrder, OfAHugeJobTheEventHoldsTheLaggards) {
    std::vector<RankFinding> ranks(limits::kEvidenceRanks + 100);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        ranks[i].rank = static_cast<std::int32_t>(i);
        ranks[i].behind = i >= ranks.size() - 2;
    }
    const auto order = lagging_first(ranks);
    ASSERT_EQ(order.size(), limits::kEvidenceRanks);
    EXPECT_EQ(order[0], ranks.size() - 2);
    EXPECT_EQ(order[1], ranks.size() - 1);
    EXPECT_EQ(order[2], 0U);
    EXPECT_EQ(order.back(), limits::kEvidenceRanks - 3);
    const Json items = findings_json(ranks, order);
    EXPECT_EQ(items.size(), limits::kEvidenceRanks);
    EXPECT_EQ(items[0]["rank"], static_cast<std::int32_t>(ranks.size() - 2));
    EXPECT_LT(findings_words(ranks).size(), 1000U);
}

TEST(EvidenceOrder, ANodeIsToldWhichOfItsOwnRanksLag) {
    const std::vector<std::int32_t> behind{0, 7, 8, 15, 16, 40};
    EXPECT_THAT(local_ranks(behind, 0, 8), ElementsAre(0, 7));
    EXPECT_THAT(local_ranks(behind, 8, 8), ElementsAre(0, 7));
    EXPECT_THAT(local_ranks(behind, 16, 8), ElementsAre(0));
    EXPECT_THAT(local_ranks(behind, 24, 8), ElementsAre());
    EXPECT_THAT(local_ranks({}, 0, 8), ElementsAre());
}

// Whoever watches lockstep_job_hang was not told of the ninth: its gauge stayed 0.
TEST_F(EvidenceTest, AHangIsShownAlsoWhenSoManyWereToldThatItIsNoEvent) {
    start(R"(},"watch":{"hang_seconds":3)");
    const auto shown = [&](int hangs) {
        return metrics_text().find("\nlockstep_job_hang{job_id=\"" + id_ + "\"} " +
                                   std::to_string(hangs) + "\n") != std::string::npos;
    };
    std::uint64_t seq = 0;
    const auto step = [&] {
        ++seq;
        for (const std::size_t node : {0U, 1U}) {
            say_step(node, seq, static_cast<std::int64_t>(seq));
        }
        until([&] { return shown(0); }, "they make steps");
    };
    for (std::size_t told = 1; told <= limits::kAnomalyEvents; ++told) {
        step();
        stand_still();
        for (const TestAgent& agent : agents_) {
            until([&] { return agent.peer->count<wire::Examine>() == told; }, "EXAMINE");
        }
        tell_all("hang " + std::to_string(told));
        until([&] { return shown(1); }, "told");
    }
    step();
    stand_still();
    until([&] { return shown(1); }, "the ninth");
    EXPECT_EQ(show(id_)["anomalies"]["hang"], limits::kAnomalyEvents);
    EXPECT_EQ(agents_[0].peer->count<wire::Examine>(), std::size_t{limits::kAnomalyEvents});
    step();
}

}  // namespace
}  // namespace lockstep
