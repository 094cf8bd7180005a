// A JobMachine by itself, at a time that the test sets.
#pragma once

#include "daemon/control/machine/job_machine.hpp"
#include "daemon/control/machine/left_behind.hpp"
#include "tests/unit/model/history.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// What agents have left in their folders: as a test says.
class SetFiles final : public LeftBehind {
  public:
    Result<std::optional<wire::ResultFile>> result(const Attempt&,
                                                   std::int32_t slot) const override {
        ++results_read;
        if (stands_still) {
            return fail(Errc::timed_out, "files there have just not been opened");
        }
        const auto found = results.find(slot);
        return found == results.end() ? std::optional<wire::ResultFile>{} : found->second;
    }
    std::optional<wire::GaveUpFile> gave_up(const Attempt&, std::int32_t,
                                            const std::string&) const override {
        return std::nullopt;
    }
    std::optional<MemoryEvidence> memory(const Attempt&, std::int32_t) const override {
        ++memory_read;
        return std::nullopt;
    }

    std::map<std::int32_t, wire::ResultFile> results{};  // by slot
    bool stands_still = false;                           // their file system
    mutable int results_read = 0;
    mutable int memory_read = 0;
};

class JobMachineTest : public ::testing::Test {
  protected:
    // An attempt that is placed; its agents are yet to come.
    void SetUp() override { place(R"({"nodes":2})"); }
    void place(const std::string& resources,
               const std::string& recovered = R"(["rank_failure","node_failure"])") {
        History history{R"({"name":"t","framework":"command","command":["x"],"resources":)" +
                        resources +
                        R"(,"preflight":{"mode":"off"},
                           "recovery":{"on":)" +
                        recovered + "}}"};
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
    AgentPtr hello(std::int32_t slot, const std::string& allocation = "") {
        const auto link = std::make_shared<Agent>(1, "10.0.0." + std::to_string(slot));
        link->node_rank = slot;
        link->last_heard = at_.steady;
        wire::Hello first = said(slot);
        first.allocation = allocation;
        take(AgentInput{link, std::move(first)});
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
    // All nodes there, the first generation's ranks started.
    void start(const std::string& allocation = "") {
        agents_.clear();
        for (std::int32_t slot = 0; slot < job().spec.resources.allocated_nodes(); ++slot) {
            agents_.push_back(hello(slot, allocation));
        }
        for (const AgentPtr& one : agents_) {
            take(AgentInput{one, join()});
        }
        run_ranks();
        ASSERT_EQ(job().state, JobState::running);
    }
    static Observation runs() {
        Observation seen;
        seen.kind = Observation::Kind::state;
        seen.state = AllocationState::running;
        return seen;
    }
    std::vector<std::string> look(const Observation& seen = runs()) {
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

    SetFiles files_;
    Surroundings at_;
    std::unique_ptr<JobMachine> machine_;
    std::vector<AgentPtr> agents_;
};

}  // namespace lockstep
