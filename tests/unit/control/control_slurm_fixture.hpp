// What control does with a scheduler that may take an attempt without our hearing of it.
#pragma once

#include "tests/unit/control/control_fixture.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep {

class ControlSlurmTest : public ControlTest {
  protected:
    void SetUp() override {
        ControlTest::SetUp();
        scheduler_.needs_intent = true;
        scheduler_.handover.id = "17";
        scheduler_.seen.id = "17";
    }
    std::vector<std::string> kinds(const std::string& id) {
        std::vector<std::string> out;
        auto run = [&]() -> Task<void> {
            const auto page = co_await control_->events(ada_, id, first_events(100));
            const Json json = *parse_json(page.value());
            for (const auto& item : json["items"]) {
                out.push_back(item["kind"]);
            }
        };
        wait(run());
        return out;
    }
    bool happened(const std::string& id, const std::string& kind) {
        const auto all = kinds(id);
        return std::find(all.begin(), all.end(), kind) != all.end();
    }
    // Whether an event has these words.
    bool told(const std::string& id, const std::string& words) {
        std::string page;
        auto run = [&]() -> Task<void> {
            const auto events = co_await control_->events(ada_, id, first_events(100));
            page = events.value();
        };
        wait(run());
        return page.find(words) != std::string::npos;
    }
    // What the newest attempt shows as its number in the scheduler; "" before there is one.
    std::string scheduler_id(const std::string& id) {
        const Json job = show(id);
        return job["attempts"].empty() ? "" : job["attempts"].back().value("scheduler_id", "");
    }
    TestAgent hello_from(std::int32_t node, const std::string& allocation) {
        TestAgent agent = connect();
        wire::Hello hello;
        hello.node_rank = node;
        hello.node = "n" + std::to_string(node);
        hello.incarnation = allocation + "-" + std::to_string(node);
        hello.allocation = allocation;
        agent.say(hello);
        return agent;
    }
    // A job whose two ranks run in allocation 17.
    std::string running(std::vector<TestAgent>& agents, const std::string& extra = "") {
        const std::string id = submit("", "body", extra)->id;
        until([&] { return scheduler_.submissions == 1; }, "handed over");
        for (std::int32_t node = 0; node < 2; ++node) {
            agents.push_back(hello_from(node, "17"));
            wire::Join join;
            join.address = "127.0.0.1";
            join.port = 5000;
            agents.back().say(join);
        }
        for (std::int32_t node = 0; node < 2; ++node) {
            TestAgent& agent = agents[static_cast<std::size_t>(node)];
            until([&] { return agent.peer->last<wire::World>() != nullptr; }, "WORLD");
            agent.say(wire::Ready{1});
        }
        for (std::int32_t node = 0; node < 2; ++node) {
            TestAgent& agent = agents[static_cast<std::size_t>(node)];
            until([&] { return agent.peer->last<wire::Start>() != nullptr; }, "START");
            wire::Started started;
            started.generation = 1;
            started.ranks.push_back({node, 100 + node});
            agent.say(started);
        }
        until([&] { return state(id) == "running"; }, "running");
        return id;
    }
    void ended(CauseClass kind, const std::string& message) {
        scheduler_.seen.state = AllocationState::ended;
        scheduler_.seen.cause.kind = kind;
        scheduler_.seen.cause.message = message;
    }
};

}  // namespace lockstep
