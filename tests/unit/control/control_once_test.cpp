// A restart or checkpoint whose answer was lost is asked for again under its Idempotency-Key, and
// is done once.
#include "tests/unit/control/control_fixture.hpp"

#include <gmock/gmock.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class OnceTest : public ControlTest {
  protected:
    using Answer = SubmitResult<CommandDone>;

    void start(const std::string& extra = "") {
        id_ = start_job_with(agents_[0], agents_[1], extra);
    }
    // What will be answered; it stays when the test has gone on.
    std::shared_ptr<std::optional<Answer>> ask(Command command, const std::string& key,
                                               const Caller& caller) {
        auto out = std::make_shared<std::optional<Answer>>();
        net::co_spawn(*io_, asking(command, caller, key, out), net::detached);
        return out;
    }
    Task<void> asking(Command command, Caller caller, std::string key,
                      std::shared_ptr<std::optional<Answer>> out) {
        std::string id = id_;
        Answer done = fail(Errc::internal, "not asked");
        if (command == Command::restart) {
            done = co_await control_->commands().restart(std::move(caller), std::move(id),
                                                         std::move(key));
        } else {
            done = co_await control_->commands().checkpoint(std::move(caller), std::move(id),
                                                            std::move(key));
        }
        *out = std::move(done);
    }
    Answer answered(const std::shared_ptr<std::optional<Answer>>& asked) {
        until([&] { return asked->has_value(); }, "the answer");
        return **asked;
    }
    Answer restart(const std::string& key) { return answered(ask(Command::restart, key, ada_)); }
    Answer checkpoint(const std::string& key) {
        return answered(ask(Command::checkpoint, key, ada_));
    }
    // "now", "already", or why not.
    static std::string told(const Answer& answer) {
        if (!answer) {
            return answer.error().why == SubmitFailure::key_reused ? "reused"
                                                                   : answer.error().message;
        }
        return answer->already ? "already" : "now";
    }
    template <class M>
    M last_of(std::size_t node) const {
        const M* found = agents_[node].peer->last<M>();
        return found != nullptr ? *found : M{};
    }
    // The ranks of this one end as they are told to.
    void stop_ranks(std::int32_t generation) {
        for (const std::size_t node : {0U, 1U}) {
            until([&] { return last_of<wire::Abort>(node).generation == generation; }, "ABORT");
            wire::Exited out = exit(++events_, static_cast<std::int32_t>(node), 143);
            out.generation = generation;
            out.stopped = true;
            agents_[node].say(out);
        }
    }
    void begin_after(std::int32_t generation) {
        const std::int32_t next = generation + 1;
        for (TestAgent& agent : agents_) {
            wire::Join join;
            join.address = "127.0.0.1";
            join.port = 5000;
            join.generation = generation;
            agent.say(join);
        }
        for (const std::size_t node : {0U, 1U}) {
            until([&] { return last_of<wire::World>(node).generation == next; }, "WORLD");
            agents_[node].say(wire::Ready{next});
        }
        for (const std::size_t node : {0U, 1U}) {
            until([&] { return last_of<wire::Start>(node).generation == next; }, "START");
            wire::Started started;
            started.generation = next;
            started.ranks.push_back({static_cast<std::int32_t>(node), 100});
            agents_[node].say(started);
        }
        until([&] { return state(id_) == "running"; }, "running again");
    }
    void end(std::int32_t generation) {
        for (const std::size_t node : {0U, 1U}) {
            wire::Exited out = exit(++events_, static_cast<std::int32_t>(node), 0);
            out.generation = generation;
            agents_[node].say(out);
        }
        until([&] { return state(id_) == "succeeded"; }, "succeeded");
    }
    std::size_t generations() { return show(id_)["attempts"].back()["generations"].size(); }
    std::vector<std::string> keys_of(const std::string& kind) {
        std::vector<std::string> out;
        auto run = [&]() -> Task<void> {
            const auto text = co_await control_->events(ada_, id_, first_events(1000));
            const Json page = text ? *parse_json(*text) : Json::object();
            for (const Json& event : page["items"]) {
                if (event["kind"] == kind) {
                    out.push_back(event["data"].value("key", ""));
                }
            }
        };
        wait(run());
        return out;
    }
    std::size_t signals() const {
        return agents_[0].peer->count<wire::Save>() + agents_[1].peer->count<wire::Save>();
    }

    const Caller bob_{"bob", true, true};
    std::array<TestAgent, 2> agents_;
    std::string id_;
    std::uint64_t events_ = 0;
};

TEST_F(OnceTest, ARestartAskedForAgainUnderItsKeyDoesNotEndTheNewGeneration) {
    start();
    const auto first = ask(Command::restart, "k", ada_);
    const auto at_once = ask(Command::restart, "k", ada_);
    EXPECT_EQ(told(answered(first)), "now");
    EXPECT_EQ(told(answered(at_once)), "already");
    stop_ranks(1);
    begin_after(1);
    const Answer again = restart("k");
    EXPECT_EQ(told(again), "already");
    EXPECT_EQ((*parse_json(again->job_json))["id"], id_);
    EXPECT_EQ(generations(), 2U);
    EXPECT_EQ(state(id_), "running");
    EXPECT_EQ(keys_of("restart_requested"), std::vector<std::string>{"k"});
    EXPECT_EQ(told(checkpoint("k")), "reused") << "it was a restart's";
    EXPECT_EQ(signals(), 0U);
    EXPECT_EQ(told(answered(ask(Command::restart, "k", bob_))), "now") << "bob's own key";
    stop_ranks(2);
    begin_after(2);
    EXPECT_EQ(generations(), 3U);
}

// It was answered as done, and its key kept, while the job was ending.
TEST_F(OnceTest, ARestartBehindACancelIsNotPromised) {
    start();
    EXPECT_EQ(told(restart("first")), "now");
    stop_ranks(1);
    until([&] { return state(id_) == "restarting"; }, "restarting");
    scheduler_.obeys = false;  // the allocation stays, so that the job does not end at once
    auto cancel = [&]() -> Task<void> { co_await control_->commands().cancel(ada_, id_); };
    wait(cancel());
    EXPECT_FALSE(restart("late").has_value());
    EXPECT_EQ(keys_of("restart_requested"), std::vector<std::string>{"first"});
}

TEST_F(OnceTest, KeysThatJoinARestartAreKnownInTheNextGenerationAndBounded) {
    start();
    EXPECT_EQ(told(restart("first")), "now");
    EXPECT_EQ(told(restart("")), "now") << "as without keys";
    EXPECT_EQ(told(restart("second")), "now");
    stop_ranks(1);
    until([&] { return state(id_) == "restarting"; }, "between two generations");
    EXPECT_EQ(told(restart("third")), "now");
    for (std::size_t joined = 2; joined < limits::kCommandKeysJoining; ++joined) {
        EXPECT_EQ(told(restart("more-" + std::to_string(joined))), "now");
    }
    const Answer too_many = restart("one too many");
    ASSERT_FALSE(too_many.has_value());
    EXPECT_EQ(too_many.error().code, Errc::conflict);
    EXPECT_THAT(too_many.error().message, HasSubstr("nothing was done"));
    EXPECT_EQ(told(restart("first")), "already");
    begin_after(1);
    for (const char* key : {"first", "second", "third"}) {
        EXPECT_EQ(told(restart(key)), "already") << key;
    }
    EXPECT_EQ(generations(), 2U);
    EXPECT_EQ(keys_of("restart_requested").size(), limits::kCommandKeysJoining + 1);
    EXPECT_EQ(told(restart("one too many")), "now") << "it was not done";
    stop_ranks(2);
    begin_after(2);
}

TEST_F(OnceTest, AKeyIsKnownToTheNextDaemonAndWhenTheJobIsOver) {
    start();
    EXPECT_EQ(told(restart("k")), "now");
    shut_down();  // its answer does not arrive
    boot();
    EXPECT_EQ(told(restart("k")), "already");
    EXPECT_EQ(keys_of("restart_requested").size(), 1U);
    for (const std::size_t node : {0U, 1U}) {
        agents_[node] = hello(static_cast<std::int32_t>(node), "", true);
        until([&] { return agents_[node].peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
    }
    stop_ranks(1);
    begin_after(1);
    end(2);
    const Answer over = restart("k");
    EXPECT_EQ(told(over), "already");
    EXPECT_EQ((*parse_json(over->job_json))["state"], "succeeded");
    EXPECT_EQ(told(restart("another")), "the job is over");
    EXPECT_EQ(told(restart("")), "the job is over");
    EXPECT_EQ(told(checkpoint("k")), "reused");
    shut_down();
    boot();
    EXPECT_EQ(told(restart("k")), "already");
    EXPECT_EQ(told(answered(ask(Command::restart, "k", bob_))), "the job is over");
}

TEST_F(OnceTest, ACheckpointAskedForAgainUnderItsKeyIsOneSignal) {
    start(R"(},"checkpoint":{"signal":"USR2")");
    EXPECT_EQ(told(checkpoint("k")), "now");
    EXPECT_EQ(told(checkpoint("k")), "already");
    EXPECT_EQ(signals(), 2U) << "one each";
    EXPECT_EQ(keys_of("checkpoint_requested"), std::vector<std::string>{"k"});
    EXPECT_EQ(told(restart("k")), "reused");
    EXPECT_EQ(generations(), 1U);
}

TEST_F(OnceTest, KeysThatAskWhileTheAgentsAreAskedShareTheSignalAndAreBounded) {
    start();
    std::vector<std::shared_ptr<std::optional<Answer>>> asked;
    for (std::size_t i = 0; i <= limits::kCommandKeysJoining; ++i) {
        asked.push_back(ask(Command::checkpoint, "k" + std::to_string(i), ada_));
    }
    const auto again = ask(Command::checkpoint, "k0", ada_);
    const auto without = ask(Command::checkpoint, "", ada_);
    const auto too_many = ask(Command::checkpoint, "one too many", ada_);
    EXPECT_THAT(told(answered(too_many)), HasSubstr("nothing was done"));
    for (TestAgent& agent : agents_) {
        until([&] { return agent.peer->last<wire::AskSave>() != nullptr; }, "ASK_SAVE");
        agent.say(wire::CanSave{1, agent.peer->last<wire::AskSave>()->round, -1, ""});
    }
    for (const auto& one : asked) {
        EXPECT_EQ(told(answered(one)), "now");
    }
    EXPECT_EQ(told(answered(again)), "already");
    EXPECT_EQ(told(answered(without)), "now");
    EXPECT_EQ(signals(), 2U);
    EXPECT_EQ(keys_of("checkpoint_requested").size(), limits::kCommandKeysJoining + 1);
    EXPECT_EQ(told(checkpoint("k3")), "already");
    EXPECT_EQ(signals(), 2U);
}

// The key would have been both commands', and the later one never asked for again.
TEST_F(OnceTest, TheKeyOfACheckpointThatIsAskedForIsNoRestartsKey) {
    start();
    const auto asked = ask(Command::checkpoint, "k", ada_);
    until([&] { return agents_[1].peer->last<wire::AskSave>() != nullptr; }, "ASK_SAVE");
    EXPECT_THAT(told(restart("k")), HasSubstr("belongs to a checkpoint of this job"));
    EXPECT_EQ(told(answered(ask(Command::restart, "k", bob_))), "now") << "bob's own key";
    stop_ranks(1);
    EXPECT_FALSE(answered(asked).has_value()) << "its ranks are stopped";
    EXPECT_EQ(keys_of("checkpoint_requested"), std::vector<std::string>{});
}

// A refusal has done nothing: the same key may do it later.
TEST_F(OnceTest, ARefusedCheckpointIsNotDoneUnderItsKey) {
    start();
    const auto refused = ask(Command::checkpoint, "k", ada_);
    until([&] { return agents_[1].peer->last<wire::AskSave>() != nullptr; }, "ASK_SAVE");
    const std::int32_t round = agents_[1].peer->last<wire::AskSave>()->round;
    agents_[1].say(wire::CanSave{1, round, 1, "does not catch SIGUSR2"});
    EXPECT_FALSE(answered(refused).has_value());
    const auto later = ask(Command::checkpoint, "k", ada_);
    for (TestAgent& agent : agents_) {
        until([&] { return agent.peer->last<wire::AskSave>()->round > round; }, "asked again");
        agent.say(wire::CanSave{1, agent.peer->last<wire::AskSave>()->round, -1, ""});
    }
    EXPECT_EQ(told(answered(later)), "now");
    EXPECT_EQ(signals(), 2U);
}

}  // namespace
}  // namespace lockstep
