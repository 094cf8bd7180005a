// A JobMachine by itself, at a time that the test sets.
#pragma once

#include "daemon/control/machine/job_machine.hpp"
#include "tests/unit/control/no_files.hpp"
#include "tests/unit/model/history.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class JobMachineTest : public ::testing::Test {
  protected:
    // An attempt that is placed; its agents are yet to come.
    void SetUp() override {
        History history{
            R"({"name":"t","framework":"command","command":["x"],"resources":{"nodes":2},
                "preflight":{"mode":"off"},"recovery":{"on":["rank_failure","node_failure"]}})"};
        history.attempt();
        history.placed();
        at_.steady = at_.timers = std::chrono::steady_clock::time_point{std::chrono::seconds{100}};
        at_.wall = history.now;
        at_.scheduler = "local";
        machine_ = std::make_unique<JobMachine>(
            history.job, files_, [](std::int32_t, const std::string&) { return true; });
    }
    const Job& job() const { return machine_->job(); }
    void pass(std::chrono::milliseconds time) {
        at_.steady += time;
        at_.timers += time;
        at_.wall += time.count();
    }
    // One input, stored; what is done at once, and after that.
    std::vector<Effect> take(JobInput input) {
        Draft draft = machine_->draft(at_);
        machine_->take(draft, input);
        std::vector<Effect> out = draft.at_once.take();
        for (Effect& one : machine_->stored(draft, at_).take()) {
            out.push_back(std::move(one));
        }
        return out;
    }
    AgentPtr hello(std::int32_t slot) {
        const auto link = std::make_shared<Agent>(1, "10.0.0." + std::to_string(slot));
        link->node_rank = slot;
        link->last_heard = at_.steady;
        take(AgentInput{link, said(slot)});
        return link;
    }
    static wire::Hello said(std::int32_t slot) {
        wire::Hello out;
        out.node_rank = slot;
        out.node = "n" + std::to_string(slot);
        out.incarnation = "i" + std::to_string(slot);
        return out;
    }
    static wire::Join join() {
        wire::Join out;
        out.address = "10.0.0.1";
        out.port = 5000;
        return out;
    }
    // The first generation's, whose nodes have joined.
    void run_ranks() {
        for (const AgentPtr& one : agents_) {
            take(AgentInput{one, wire::Ready{1}});
        }
        for (const AgentPtr& one : agents_) {
            wire::Started started;
            started.generation = 1;
            take(AgentInput{one, started});
        }
    }
    // Both nodes there, the first generation's ranks started.
    void start() {
        agents_ = {hello(0), hello(1)};
        for (const AgentPtr& one : agents_) {
            take(AgentInput{one, join()});
        }
        run_ranks();
        ASSERT_EQ(job().state, JobState::running);
    }
    std::vector<std::string> look() {
        Observation seen;
        seen.kind = Observation::Kind::state;
        seen.state = AllocationState::running;
        Draft draft = machine_->draft(at_);
        machine_->look(draft, seen, true);
        std::vector<std::string> out;
        for (const Event& one : draft.events) {
            out.emplace_back(to_string(one.kind()));
        }
        machine_->stored(draft, at_);
        return out;
    }
    template <class M>
    static std::vector<const M*> sent(const std::vector<Effect>& effects) {
        std::vector<const M*> out;
        for (const Effect& one : effects) {
            const auto* send = std::get_if<effect::Send>(&one);
            if (const M* message = send == nullptr ? nullptr : std::get_if<M>(&send->message)) {
                out.push_back(message);
            }
        }
        return out;
    }

    NoFiles files_;
    Surroundings at_;
    std::unique_ptr<JobMachine> machine_;
    std::vector<AgentPtr> agents_;
};

}  // namespace lockstep
