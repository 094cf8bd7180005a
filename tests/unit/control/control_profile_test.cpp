// A profile as agents and people see it: asked of the nodes of the ranks, kept with the job.
#include "job/base/text.hpp"
#include "job/model/profile.hpp"
#include "tests/unit/control/control_fixture.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class ProfileTest : public ControlTest {
  protected:
    void start() { id_ = start_job_with(agents_[0], agents_[1], ""); }
    Result<Json> take(std::vector<std::int32_t> ranks = {}, std::int64_t how_long = 3) {
        Result<Json> out = fail(Errc::internal, "not run");
        auto run = [&]() -> Task<void> {
            ProfileQuery query{ranks, how_long};
            const auto text =
                co_await control_->commands().take_profile(ada_, id_, std::move(query));
            out = text ? parse_json(*text) : Result<Json>{fail(text.error())};
        };
        wait(run());
        return out;
    }
    Json list(CapturesQuery query) {
        Json out;
        auto run = [&]() -> Task<void> {
            const auto text = co_await control_->profiles(ada_, id_, query);
            out = text ? *parse_json(*text) : Json::object();
        };
        wait(run());
        return out;
    }
    Json items() { return list({limits::kPageDefault, 0})["items"]; }
    Result<EvidencePlace> place(std::string name, std::int32_t rank, std::int32_t number) {
        Result<EvidencePlace> out = fail(Errc::internal, "not run");
        auto run = [&]() -> Task<void> {
            EvidenceQuery query;
            query.rank = rank;
            query.name = name;
            query.profile = number;
            out = co_await control_->profile_place(ada_, id_, std::move(query));
        };
        wait(run());
        return out;
    }
    const wire::Profile* asked(std::size_t node) {
        return agents_[node].peer->last<wire::Profile>();
    }

    TestAgent agents_[2];
    std::string id_;
};

TEST_F(ProfileTest, IsAskedOfTheNodesOfItsRanksAndKept) {
    start();
    const auto answer = take({1}, 3);
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ((*answer)["profile"], 1);
    EXPECT_EQ((*answer)["ranks"], Json::array({1}));
    EXPECT_EQ((*answer)["patience_seconds"], 2 * 3 + 40 + 30);
    until([&] { return asked(1) != nullptr; }, "PROFILE");
    EXPECT_EQ(asked(0), nullptr) << "none of its ranks was asked for";
    EXPECT_EQ(asked(1)->seconds, 3);
    EXPECT_EQ(asked(1)->ranks, std::vector<std::int32_t>{0});

    const auto second = take({0});
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, Errc::conflict);
    EXPECT_THAT(second.error().message, HasSubstr("under way"));

    // Of another node's rank, of no rank at all, and a file that cannot be: not believed.
    agents_[0].say(wire::Profiled{1, 1, {{1, "", {{"stacks.txt", 9}}, {}}}});
    agents_[1].say(wire::Profiled{1, 7, {{1, "", {{"stacks.txt", 9}}, {}}}});
    agents_[1].say(wire::Profiled{1,
                                  1,
                                  {{1,
                                    "",
                                    {{"stacks.txt", 17},
                                     {"2.trace.json.gz", 5},
                                     {"collectives.txt", 7},
                                     {"2.collectives.txt", 7},
                                     {"../agent.json", 6},
                                     {"operations.txt", -1}},
                                    {{"trace", "no step \x1b[2J"}}},
                                   {0, "", {{"stacks.txt", 1}}, {}}}});
    until([&] { return items().size() == 1; }, "profile_taken");
    const Json one = items()[0];
    EXPECT_EQ(one["by"], ada_.user);
    EXPECT_EQ(one["seconds"], 3);
    ASSERT_EQ(one["ranks"].size(), 1U) << dump_json(one);
    EXPECT_EQ(one["ranks"][0]["rank"], 1);
    EXPECT_EQ(one["ranks"][0]["node"], "n1");
    EXPECT_EQ(
        dump_json(one["ranks"][0]["files"]),
        R"([{"name":"stacks.txt","size":17},{"name":"2.trace.json.gz","size":5},{"name":"collectives.txt","size":7}])");
    EXPECT_EQ(one["ranks"][0]["missing"][0]["why"], "no step [2J");
    EXPECT_EQ(state(id_), "running");

    const auto where = place("2.trace.json.gz", 1, 0);
    ASSERT_TRUE(where);
    EXPECT_EQ(where->folders,
              (std::vector<std::string>{"profile", "gen-1", "take-1", "rank-00001"}));
    EXPECT_EQ(place("agent.json", 1, 0).error().code, Errc::not_found);
    EXPECT_EQ(place("stacks.txt", 1, 2).error().code, Errc::not_found);
    EXPECT_EQ(place("stacks.txt", 2, 1).error().code, Errc::not_found);

    ASSERT_TRUE(take());
    until([&] { return asked(0) != nullptr; }, "PROFILE to all");
    EXPECT_EQ(asked(1)->number, 2);

    // Of another node's rank, from one that was asked, and after that node's own word.
    agents_[1].say(wire::Profiled{1, 2, {{1, "", {{"stacks.txt", 17}}, {}}}});
    agents_[0].say(
        wire::Profiled{1, 2, {{0, "", {{"stacks.txt", 3}}, {}}, {1, "", {{"stacks.txt", 9}}, {}}}});
    until([&] { return items().size() == 2; }, "the second profile_taken");
    for (const Json& taken : items()) {
        EXPECT_EQ(taken["ranks"].back()["files"][0]["size"], 17) << dump_json(taken);
    }
    // Those beyond the newest page could not be reached.
    EXPECT_FALSE(list({2, 0}).contains("next_cursor"));
    const Json page = list({1, 0});
    ASSERT_TRUE(page.contains("next_cursor")) << dump_json(page);
    EXPECT_EQ(page["items"][0]["profile"], 2);
    const Json rest = list({1, *to_int(page["next_cursor"].get<std::string>())});
    EXPECT_EQ(rest["items"][0]["profile"], 1);
    EXPECT_FALSE(rest.contains("next_cursor"));
}

// A job of one GPU had "no collectives.txt" in the line of every profile.
TEST_F(ProfileTest, ThatNcclHasNeverPostedAnythingIsNotInItsLine) {
    start();
    const auto told = [&](std::int32_t number, std::vector<wire::EvidenceGap> missing) {
        EXPECT_TRUE(take({0}));
        until([&] { return asked(0) != nullptr && asked(0)->number == number; }, "PROFILE");
        agents_[0].say(wire::Profiled{1, number, {{0, "", {{"stacks.txt", 9}}, missing}}});
        until([&] { return items().size() == static_cast<std::size_t>(number); }, "profile_taken");
        for (const Json& item : items()) {
            if (item["profile"] == number) {
                EXPECT_EQ(item["ranks"][0]["missing"].size(), missing.size());
                return item["message"].get<std::string>();
            }
        }
        return std::string{};
    };
    const std::string name{kProfileCollectives};
    const wire::EvidenceGap never{name, std::string{kNoCollectivesEver}};
    const std::string plain = "stacks of 1 of 1 ranks, traces of 0";
    EXPECT_EQ(told(1, {never}), plain);
    EXPECT_EQ(told(2, {never, {"trace", "no torch"}}), plain + "; rank 0: no trace: no torch");
    EXPECT_EQ(told(3, {{name, "nothing now"}}),
              plain + "; rank 0: no collectives.txt: nothing now");
}

TEST_F(ProfileTest, ARankThatIsNotThereIsInvalid) {
    start();
    const auto answer = take({0, 2});
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, Errc::invalid);
    EXPECT_THAT(answer.error().message, HasSubstr("the job has 0-1"));
    EXPECT_TRUE(take({0})) << "nothing is under way";
}

TEST_F(ProfileTest, OfRanksThatEndMeanwhileWhatHasComeIsKept) {
    start();
    ASSERT_TRUE(take());
    until([&] { return asked(0) != nullptr && asked(1) != nullptr; }, "PROFILE");
    agents_[0].say(wire::Profiled{1, 1, {{0, "", {{"stacks.txt", 17}}, {}}}});
    agents_[0].say(exit(1, 0, 3));
    agents_[1].say(exit(1, 1, 3));
    until([&] { return items().size() == 1; }, "the end of the generation");
    const Json ranks = items()[0]["ranks"];
    EXPECT_EQ(ranks[0]["files"].size(), 1U);
    EXPECT_THAT(ranks[1]["missing"][0]["why"].get<std::string>(), HasSubstr("ended before"));
    const auto late = take();
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().code, Errc::conflict);
}

TEST_F(ProfileTest, WhoeverDoesNotAnswerIsNotWaitedForForever) {
    start();
    ASSERT_TRUE(take());
    until([&] { return asked(0) != nullptr; }, "PROFILE");
    agents_[0].say(wire::Profiled{1, 1, {{0, "", {{"stacks.txt", 17}}, {}}}});
    const auto pass = [&](std::chrono::seconds time) {
        clock_.advance(time);
        for (auto& agent : agents_) {
            agent.say(wire::Beat{0, 1, 0});  // alive, both
        }
        const auto polls = scheduler_.polls;
        until([&] { return scheduler_.polls > polls + 2; }, "a few looks later");
    };
    for (int i = 0; i < 15; ++i) {
        pass(std::chrono::seconds{5});
    }
    EXPECT_EQ(items().size(), 0U) << "75 s: it may still come";
    pass(std::chrono::seconds{1});
    until([&] { return items().size() == 1; }, "profile_taken");
    EXPECT_THAT(
        items()[0]["message"].get<std::string>(),
        HasSubstr("stacks of 1 of 2 ranks, traces of 0; rank 1: no all: its agent did not"));
}

TEST_F(ProfileTest, ANodeWithoutAConnectionIsNotWaitedFor) {
    start();
    agents_[1].session->on_closed();
    ASSERT_TRUE(take());
    until([&] { return asked(0) != nullptr; }, "PROFILE");
    agents_[0].say(wire::Profiled{1, 1, {{0, "", {{"stacks.txt", 17}}, {}}}});
    until([&] { return items().size() == 1; }, "profile_taken");
    EXPECT_EQ(items()[0]["ranks"][1]["missing"][0]["why"], "its agent is not connected");
}

TEST_F(ProfileTest, AnOlderAgentIsNotAskedWhatItDoesNotKnow) {
    profiles_ = false;
    start();
    ASSERT_TRUE(take());
    until([&] { return items().size() == 1; }, "profile_taken");
    EXPECT_EQ(asked(0), nullptr);
    EXPECT_THAT(items()[0]["ranks"][0]["missing"][0]["why"].get<std::string>(),
                HasSubstr("its agent is older"));
}

}  // namespace
}  // namespace lockstep
