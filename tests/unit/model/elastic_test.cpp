// Jobs that may go on with fewer nodes (resources.min_nodes): what is refused, and the fold.
#include "job/model/invariants.hpp"
#include "job/model/job_view.hpp"
#include "job/model/recovery.hpp"
#include "tests/unit/model/history.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::string job(const std::string& resources, const std::string& more = R"(,"recovery":{})") {
    return R"({"name":"t","framework":"command","command":["x"],"resources":{)" + resources + "}" +
           more + "}";
}

std::vector<std::string> mistakes(const std::string& text) {
    const auto spec = parse_spec(*parse_json(text));
    std::vector<std::string> out;
    if (!spec) {
        for (const auto& field : spec.error().fields) {
            out.push_back(field.pointer + ": " + field.message);
        }
    }
    return out;
}

using Mistakes = std::vector<std::string>;

TEST(ElasticSpec, IsReadAndWrittenBack) {
    const auto spec = parse_spec(
        *parse_json(job(R"("nodes":4,"min_nodes":2)", R"(,"recovery":{"grow_after_seconds":60})")));
    ASSERT_TRUE(spec.has_value());
    EXPECT_TRUE(spec->resources.is_elastic());
    EXPECT_EQ(spec->resources.least_nodes(), 2);
    EXPECT_EQ(spec->resources.allocated_nodes(), 4);
    EXPECT_EQ(spec->recovery.grow_after_seconds, 60);
    const Json out = to_json(*spec);
    EXPECT_EQ(out["resources"]["min_nodes"], 2);
    EXPECT_EQ(out["recovery"]["grow_after_seconds"], 60);
    EXPECT_EQ(dump_json(to_json(*parse_spec(out))), dump_json(out));
}

TEST(ElasticSpec, AsManyAsThereAreIsTheSameAsNone) {
    const auto spec = parse_spec(*parse_json(job(R"("nodes":4,"min_nodes":4)", "")));
    ASSERT_TRUE(spec.has_value()) << "needs no recovery";
    EXPECT_FALSE(spec->resources.is_elastic());
    EXPECT_EQ(spec->resources.least_nodes(), 4);
    EXPECT_FALSE(to_json(*spec)["resources"].contains("min_nodes"));
}

TEST(ElasticSpec, WhatCannotShrinkIsRefusedWithTheReason) {
    EXPECT_EQ(mistakes(job(R"("nodes":2,"min_nodes":3)")),
              Mistakes{"/resources/min_nodes: must be at most nodes, 2"});
    EXPECT_EQ(mistakes(job(R"("nodes":2,"min_nodes":0)")),
              Mistakes{"/resources/min_nodes: must be in 1..16384"});
    EXPECT_EQ(
        mistakes(job(R"("nodes":2,"min_nodes":1)", R"(,"launch":"task","recovery":{})")),
        Mistakes{"/resources/min_nodes: with launch task srun starts one MPI world, which "
                 "cannot be made again with fewer nodes: use launch rank or node, or leave it "
                 "out"});
    EXPECT_EQ(mistakes(job(R"("nodes":2,"min_nodes":1)",
                           R"(,"roles":[{"name":"ps","count":1},{"name":"worker","count":1}],)"
                           R"("recovery":{})")),
              Mistakes{"/resources/min_nodes: with roles the ranks of a lost node have duties that "
                       "no other has: leave it out"});
    EXPECT_EQ(mistakes(R"({"name":"t","framework":"native","train":{"strategy":"pipeline"},)"
                       R"("resources":{"nodes":2,"min_nodes":1},"recovery":{}})"),
              Mistakes{"/resources/min_nodes: strategy pipeline cuts the model over a fixed number "
                       "of ranks: use data_parallel, or leave it out"});
    const Mistakes needs{
        "/resources/min_nodes: needs /recovery with node_failure: fewer nodes are what ranks that "
        "start again from their checkpoint go on with"};
    EXPECT_EQ(mistakes(job(R"("nodes":2,"min_nodes":1)", "")), needs);
    EXPECT_EQ(mistakes(job(R"("nodes":2,"min_nodes":1)", R"(,"recovery":{"on":["hang"]})")), needs);
    EXPECT_EQ(mistakes(job(R"("nodes":2)", R"(,"recovery":{"grow_after_seconds":60})")),
              Mistakes{"/recovery/grow_after_seconds: has no effect without /resources/min_nodes "
                       "below nodes"});
    EXPECT_EQ(mistakes(R"({"name":"t","framework":"pytorch","launch":"node","command":["torchrun",)"
                       R"("--nnodes=2","t.py"],"resources":{"nodes":2,"min_nodes":1},)"
                       R"("recovery":{}})"),
              Mistakes{"/command/1: would keep the number of nodes when /resources/min_nodes lets "
                       "it change: leave it out, torchrun finds it in PET_NNODES"});
    const auto accelerate = [](const std::string& machines) {
        return mistakes(
            R"({"name":"t","framework":"accelerate","launch":"node","command":["accelerate",)"
            R"("launch",)" +
            machines + R"(,"t.py"],"resources":{"nodes":2,"min_nodes":1},"recovery":{}})");
    };
    EXPECT_EQ(accelerate(R"("--num_machines","2")"),
              Mistakes{"/command/2: would keep the number of nodes when /resources/min_nodes lets "
                       "it change: its value must be {num_nodes}"});
    EXPECT_EQ(accelerate(R"("--num_machines","{num_nodes}")"), Mistakes{});
    EXPECT_EQ(accelerate(R"("--num-machines={num_nodes}")"), Mistakes{});
}

// Three nodes with two ranks each, two of which are enough.
History elastic(const std::string& more = R"(,"recovery":{})") {
    History h{job(R"("nodes":3,"ranks_per_node":2,"min_nodes":2)", more)};
    h.attempt();
    h.placed();
    h.claims();
    h.again({0, 1, 2});
    return h;
}

event::FaultSeen silent(const History& h, std::int32_t slot) {
    event::FaultSeen out = h.fault(CauseClass::node_lost, slot);
    out.may_return = true;
    return out;
}

event::NodeReturned back(const History& h, std::int32_t slot, const std::string& incarnation) {
    return {h.attempt_number(), slot, "n" + std::to_string(slot), incarnation, 7};
}

ActionKind due_now(const History& h) {
    return due(h.job, h.now).kind;
}

TEST(Elastic, ALostNodeIsAGenerationOfTheOthers) {
    History h = elastic();
    EXPECT_EQ(h.job.world_size(), 6);
    h.must(silent(h, 1));
    EXPECT_EQ(due_now(h), ActionKind::restart);
    h.must(h.end_of_generation(CauseClass::node_lost, 5));
    EXPECT_EQ(due_now(h), ActionKind::gather);
    EXPECT_FALSE(h.add(h.next_generation({0})).has_value()) << "one is too few";
    EXPECT_FALSE(h.add(h.next_generation({0, 1})).has_value()) << "it is lost";
    h.again({0, 2});
    EXPECT_EQ(h.job.nodes(), 2);
    EXPECT_EQ(h.job.world_size(), 4);
    EXPECT_EQ(h.job.claim_of_node(1)->node, "n2") << "renumbered";
    EXPECT_FALSE(h.add(h.exit(4, 0)).has_value()) << "there is no such rank any more";
    EXPECT_EQ(rank_json(h.job, 3)["node"], "n2");
    EXPECT_EQ(rank_json(h.job, 4)["state"], "gone");
    for (int rank = 0; rank < 4; ++rank) {
        h.must(h.exit(rank, 0));
    }
    EXPECT_EQ(due_now(h), ActionKind::conclude);
    EXPECT_EQ(outcome(h.job).state, JobState::succeeded);
    const Json view = job_json(h.job, {});
    EXPECT_EQ(view["resources"]["min_nodes"], 2);
    const Json& generations = view["attempts"][0]["generations"];
    EXPECT_EQ(generations[0]["nodes"], 3);
    EXPECT_EQ(generations[0]["world_size"], 6);
    EXPECT_EQ(generations[1]["nodes"], 2);
    EXPECT_EQ(generations[1]["world_size"], 4);
}

TEST(Elastic, WithFewerThanTheLeastAnotherAttemptFollows) {
    History h = elastic();
    h.must(silent(h, 0));
    h.must(silent(h, 2));
    EXPECT_EQ(due_now(h), ActionKind::next_attempt);
    History between = elastic();
    between.must(silent(between, 0));
    between.must(between.end_of_generation(CauseClass::node_lost, 5));
    between.must(silent(between, 2));
    EXPECT_EQ(due_now(between), ActionKind::next_attempt);
}

TEST(Elastic, AShrinkIsARestartLikeAnyOther) {
    History h = elastic(R"(,"recovery":{"max_restarts":0,"max_attempts":1})");
    h.must(silent(h, 1));
    EXPECT_EQ(due_now(h), ActionKind::stop);
    EXPECT_EQ(outcome(h.job).state, JobState::failed);
}

TEST(Elastic, ANodeThatWasOnlySilentComesBackOnce) {
    History h = elastic();
    h.must(silent(h, 1));
    h.must(h.end_of_generation(CauseClass::node_lost, 5));
    h.again({0, 2});
    EXPECT_TRUE(h.job.attempt()->may_return(1));
    EXPECT_EQ(usable_nodes(h.job), 2);
    EXPECT_FALSE(h.add(back(h, 2, "i2")).has_value()) << "it was not lost";
    h.must(back(h, 1, "j1"));
    EXPECT_EQ(usable_nodes(h.job), 3);
    EXPECT_EQ(h.job.attempt()->claims.at(1).incarnation, "j1");
    EXPECT_EQ(h.job.attempt()->claims.at(1).pid, 7);
    EXPECT_EQ(job_json(h.job, {})["attempts"][0].contains("lost_nodes"), false);
    EXPECT_EQ(due_now(h), ActionKind::watch) << "it waits for the next generation";
    event::RestartRequested grow{1, 2, "lockstep", "n1 is there"};
    h.must(grow);
    EXPECT_EQ(due_now(h), ActionKind::restart);
    EXPECT_EQ(due(h.job, h.now).cause.kind, CauseClass::node_returned);
    EXPECT_EQ(due(h.job, h.now).cause.message, "n1 is there");
    h.must(h.end_of_generation(CauseClass::node_returned, 9));
    EXPECT_EQ(restarts_used(h.job), 1) << "growing is not counted";
    EXPECT_EQ(due_now(h), ActionKind::gather) << "asked for once";
    h.again({0, 2, 1});
    EXPECT_EQ(h.job.world_size(), 6);
    EXPECT_EQ(h.job.claim_of_node(1)->node, "n2") << "who stayed keeps its ranks";
    h.must(silent(h, 1));
    EXPECT_FALSE(h.job.attempt()->may_return(1));
    EXPECT_FALSE(h.add(back(h, 1, "k1")).has_value()) << "the second time it stays out";
}

TEST(Elastic, ANodeThatWasGivenUpForGoodDoesNotComeBack) {
    History h = elastic();
    h.must(h.fault(CauseClass::node_lost, 1));
    EXPECT_FALSE(h.add(back(h, 1, "j1")).has_value());
    History rigid{job(R"("nodes":3,"ranks_per_node":2)")};
    rigid.running();
    rigid.must(silent(rigid, 1));
    EXPECT_FALSE(rigid.add(back(rigid, 1, "j1")).has_value()) << "only of an elastic job";
}

TEST(Elastic, TheFirstGenerationMayHaveTheLeast) {
    History h{job(R"("nodes":3,"ranks_per_node":2,"min_nodes":2)")};
    h.attempt();
    h.placed();
    h.claim(0);
    EXPECT_TRUE(broken_by(h.job, EventData{h.next_generation({0, 2})}).has_value());
    h.claim(2);
    EXPECT_FALSE(broken_by(h.job, EventData{h.next_generation({0, 2})}).has_value());
    h.again({0, 2});
    EXPECT_EQ(h.job.world_size(), 4);
    h.claim(1);
    EXPECT_EQ(h.job.state, JobState::running) << "it comes late, and waits";
}

TEST(Elastic, WhoNeverComesIsNotMissedForEver) {
    History h{job(R"("nodes":3,"ranks_per_node":2,"min_nodes":2)")};
    h.attempt();
    h.placed();
    h.claim(0);
    h.now += 400'000;
    const Action action = due(h.job, h.now);
    ASSERT_TRUE(action.fault.has_value());
    EXPECT_EQ(action.fault->message, "1 of 2 nodes called in within 300 s; missing: node 1 node 2");
}

TEST(Elastic, TheEventSaysHowManyThereAre) {
    Event event;
    event::GenerationStarted started;
    started.attempt = 1;
    started.generation = 2;
    started.slots = {0, 2};
    started.nodes = 2;
    started.world_size = 4;
    started.message = "goes on with 2 of 3 nodes: n1 is lost";
    event.data = started;
    const Json json = to_json(event);
    EXPECT_EQ(json["data"]["nodes"], 2);
    EXPECT_EQ(json["data"]["world_size"], 4);
    EXPECT_EQ(json["data"]["message"], started.message);
    const auto again =
        decode_event_data(EventKind::generation_started, encode_event_data(EventData{started}));
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(std::get<event::GenerationStarted>(*again).message, started.message);
}

}  // namespace
}  // namespace lockstep
