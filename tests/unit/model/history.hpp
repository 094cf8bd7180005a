// A job's history for tests of the fold, written event by event, one second apart. Numbers that a
// test does not name are the current ones.
#pragma once

#include "job/model/job.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

inline constexpr UnixMillis kStart = 1'000'000;

// What a job needs at `now` if nobody ever sets the clock, said by a daemon that has heard of it
// from `since` on.
inline Action due(const Job& job, UnixMillis now, UnixMillis since = 0) {
    const auto past = [now](UnixMillis at) {
        return std::chrono::milliseconds{at == 0 ? 0 : now - at};
    };
    const auto heard = [&](UnixMillis at) { return past(at == 0 ? 0 : std::max(at, since)); };
    Waited waited;
    if (const Attempt* attempt = job.attempt()) {
        waited.ran = past(attempt->placed_at);
        waited.placed = heard(attempt->placed_at);
    }
    if (const Generation* newest = job.generation()) {
        waited.formed = heard(newest->started_at);
        waited.ended = heard(newest->finished_at);
        waited.failed = heard(newest->failure_heard_at);
    }
    Action out = due(job, waited);
    if (out.fault) {
        out.fault->at = now;
    }
    return out;
}

class History {
  public:
    explicit History(const std::string& spec = R"({"name":"t","framework":"command",
                        "command":["x"],"resources":{"nodes":2,"ranks_per_node":2}})") {
        event::Submitted submitted;
        submitted.user = "ada";
        submitted.spec = *parse_json(spec);
        job = *start_job(make(submitted));
    }
    Event make(EventData data) {
        Event event;
        event.seq = ++seq_;
        event.job = JobId{"ls-01J00000000000000000000000"};
        event.time = now += 1000;
        event.data = std::move(data);
        return event;
    }
    Status add(EventData data) { return apply(job, make(std::move(data))); }
    void must(EventData data) {
        const auto added = add(std::move(data));
        EXPECT_TRUE(added.has_value()) << added.error().message;
    }
    std::int32_t attempt_number() const {
        return job.attempt() == nullptr ? 0 : job.attempt()->number;
    }
    std::int32_t generation_number() const {
        return job.generation() == nullptr ? 0 : job.generation()->number;
    }

    void attempt() {
        event::AttemptCreated created;
        created.attempt = attempt_number() + 1;
        must(created);
    }
    void placed() {
        event::AttemptPlaced placed;
        placed.attempt = attempt_number();
        must(placed);
    }
    void claim(std::int32_t slot) {
        event::AgentClaimed claim;
        claim.attempt = attempt_number();
        claim.node_rank = slot;
        claim.node = "n" + std::to_string(slot);
        claim.incarnation = "i" + std::to_string(slot);
        claim.allocation = allocation;
        must(claim);
    }
    // Of every node of the allocation.
    void claims() {
        for (std::int32_t slot = 0; slot < job.spec.resources.allocated_nodes(); ++slot) {
            claim(slot);
        }
    }
    event::GenerationStarted next_generation(std::vector<std::int32_t> slots = {}) const {
        event::GenerationStarted started;
        started.attempt = attempt_number();
        started.generation = generation_number() + 1;
        started.release_told = true;
        for (std::int32_t node = 0;
             slots.empty() && job.spec.resources.spares > 0 && node < job.spec.resources.nodes;
             ++node) {
            started.slots.push_back(node);
        }
        if (!slots.empty()) {
            started.slots = std::move(slots);
        }
        return started;
    }
    void generation(std::vector<std::int32_t> slots = {}) {
        must(next_generation(std::move(slots)));
    }
    void released() { must(event::RanksReleased{attempt_number(), generation_number()}); }
    void ranks_started() { must(event::RanksStarted{attempt_number(), generation_number()}); }
    void again(std::vector<std::int32_t> slots = {}) {
        generation(std::move(slots));
        ranks_started();
    }
    // Another attempt up to its running ranks.
    void running() {
        attempt();
        placed();
        claims();
        again();
    }
    event::RankExited exit(std::int32_t rank, std::int32_t code, UnixMillis at = 0) const {
        event::RankExited out;
        out.attempt = attempt_number();
        out.generation = generation_number();
        out.rank = rank;
        out.node = "n" + std::to_string(rank / 2);
        out.exit_code = code;
        out.at = at;
        return out;
    }
    // Of the live generation, or of a node (slot) of the allocation.
    event::FaultSeen fault(CauseClass kind, std::int32_t slot = -1) const {
        event::FaultSeen out;
        out.attempt = attempt_number();
        out.generation = generation_number();
        out.slot = slot;
        out.node = slot < 0 ? "" : "n" + std::to_string(slot);
        out.cause_class = kind;
        out.message = "it failed";
        out.at = now;
        return out;
    }
    event::FaultSeen attempt_fault(CauseClass kind) const {
        event::FaultSeen out = fault(kind);
        out.generation = 0;
        return out;
    }
    event::GenerationEnded end_of_generation(CauseClass kind, std::int64_t step = -1) const {
        event::GenerationEnded out;
        out.attempt = attempt_number();
        out.generation = generation_number();
        out.cause.kind = kind;
        out.cause.message = "it failed";
        out.step = step;
        return out;
    }
    // The live generation fails and ends.
    void fails(CauseClass kind, std::int64_t step) {
        must(fault(kind));
        must(end_of_generation(kind, step));
    }
    void attempt_ends(CauseClass kind) {
        event::AttemptEnded ended;
        ended.attempt = attempt_number();
        ended.cause.kind = kind;
        must(ended);
    }

    Job job;
    UnixMillis now = kStart;
    std::string allocation;  // of the claims from now on

  private:
    Seq seq_ = 0;
};

}  // namespace lockstep
