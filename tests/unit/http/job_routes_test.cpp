// The routes of jobs: they are submitted, shown and listed.
#include "tests/unit/http/routes_fixture.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr const char* kSpec = R"({"name":"first","framework":"command","command":["true"]})";

TEST_F(RoutesTest, SubmitHandsOverTheSpecAndAnswers201) {
    const auto response = call("POST", "/v1/jobs", "user-token", kSpec,
                               {{"Idempotency-Key", "key-1"}, {"If-Match", "\"abc\""}});
    EXPECT_EQ(response.status, 201);
    EXPECT_EQ(response.header("Location"), "/v1/jobs/" + std::string{kJob});
    EXPECT_EQ(response.body, R"({"id":"x"})");
    ASSERT_EQ(control_.submissions.size(), 1U);
    const auto& submission = control_.submissions.front();
    EXPECT_EQ(submission.spec.name, "first");
    EXPECT_EQ(submission.idempotency_key, "key-1");
    EXPECT_EQ(submission.if_match, "abc");
    EXPECT_EQ(submission.body_sha256, sha256_hex(kSpec));
    EXPECT_EQ(control_.callers.front().user, "uma");
    EXPECT_FALSE(control_.callers.front().admin);
}

TEST_F(RoutesTest, SubmitTellsARepeat) {
    control_.repeated = true;
    EXPECT_EQ(call("POST", "/v1/jobs", "user-token", kSpec).header("Idempotency-Replayed"), "true");
}

TEST_F(RoutesTest, SubmitRefusalsHaveTheirStatus) {
    const std::vector<std::pair<SubmitError, int>> table{
        {Error{Errc::invalid, "x", {{"/resources/nodes", "too many"}}}, 400},
        {{SubmitFailure::key_in_flight, Errc::conflict, "being stored"}, 409},
        {{SubmitFailure::key_reused, Errc::conflict, "the key had another body"}, 422},
        {{SubmitFailure::job_removed, Errc::conflict, "its job was removed"}, 422},
        {{SubmitFailure::render_changed, Errc::conflict, "changed"}, 412},
        {Error{Errc::exhausted, "disk full"}, 507},
        {{SubmitFailure::too_many_jobs, Errc::exhausted, "20000 jobs"}, 503},
        {Error{Errc::conflict, "reused: words do not matter"}, 409},
        {Error{Errc::exhausted, "limit: words do not matter"}, 507},
        {Error{Errc::unavailable, "stopping"}, 503}};
    for (const auto& [error, status] : table) {
        control_.submit_error = error;
        const auto response = call("POST", "/v1/jobs", "user-token", kSpec);
        EXPECT_EQ(response.status, status) << error.message;
        EXPECT_EQ(response.header("Content-Type"), "application/problem+json");
    }
}

TEST_F(RoutesTest, SubmitRefusesBadDocumentsAndHeaders) {
    EXPECT_EQ(call("POST", "/v1/jobs", "user-token", "{").status, 400);
    EXPECT_EQ(call("POST", "/v1/jobs", "user-token").status, 400);
    const auto unknown = call("POST", "/v1/jobs", "user-token",
                              R"({"name":"a","framework":"command","command":["x"],"nodez":1})");
    EXPECT_EQ(unknown.status, 400);
    EXPECT_EQ(pointers(unknown), std::vector<std::string>{"/nodez"});
    EXPECT_EQ(call("POST", "/v1/jobs", "user-token", std::string(100, '[')).status, 400);
    for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{
             {"Idempotency-Key", "has space"},
             {"Idempotency-Key", std::string(256, 'k')},
             {"Idempotency-Key", ""},
             {"If-Match", "unquoted"},
             {"If-Match", "\"\""},
             {"If-Match", "*"}}) {
        EXPECT_EQ(call("POST", "/v1/jobs", "user-token", kSpec, {{name, value}}).status, 400)
            << name << ": " << value;
    }
    EXPECT_TRUE(control_.submissions.empty());
}

TEST_F(RoutesTest, RenderGivesTheHashAsETag) {
    const auto response = call("POST", "/v1/jobs/render", "user-token", kSpec);
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.header("ETag"), "\"abc\"");
}

TEST_F(RoutesTest, ShowAsksTheStoreOnlyWhenItMust) {
    EXPECT_EQ(get(of_job("")).body, R"({"id":"y"})");
    EXPECT_EQ(control_.shown, 0);
    control_.in_memory = false;
    EXPECT_EQ(get(of_job("")).body, R"({"id":"y"})");
    EXPECT_EQ(control_.shown, 1);
    EXPECT_EQ(get("/v1/jobs/ls-other").status, 404);
    EXPECT_EQ(pointers(get(of_job("?x=1"))), std::vector<std::string>{"?x"});
}

TEST_F(RoutesTest, ListPassesItsFiltersOn) {
    EXPECT_EQ(get("/v1/"
                  "jobs?state=running,queued,running&q=Llama%20%20team:vis&user=uma&name=n&label="
                  "team:vision&limit=7&cursor=c")
                  .status,
              200);
    ASSERT_EQ(control_.queries.size(), 1U);
    const auto& query = control_.queries.front();
    EXPECT_EQ(query.states, (std::vector<JobState>{JobState::running, JobState::queued}));
    EXPECT_EQ(query.words, (std::vector<std::string>{"Llama", "team:vis"}));
    EXPECT_EQ(query.user, "uma");
    EXPECT_EQ(query.name, "n");
    EXPECT_EQ(query.label_name, "team");
    EXPECT_EQ(query.label_value, "vision");
    EXPECT_EQ(query.limit, 7U);
    EXPECT_EQ(query.cursor, "c");
}

TEST_F(RoutesTest, ListNamesTheParameterThatIsWrong) {
    const std::vector<std::pair<std::string, std::string>> table{
        {"limit=0", "?limit"},
        {"limit=1001", "?limit"},
        {"limit=x", "?limit"},
        {"state=done", "?state"},
        {"state=running,", "?state"},
        {"q=1%202%203%204%205%206%207%208%209%200%201%202%203%204%205%206%207", "?q"},
        {"label=team", "?label"},
        {"cursor=bad", "?cursor"},
        {"order=up", "?order"}};
    for (const auto& [query, pointer] : table) {
        const auto response = get("/v1/jobs?" + query);
        EXPECT_EQ(response.status, 400) << query;
        EXPECT_EQ(pointers(response), std::vector<std::string>{pointer}) << query;
    }
}

TEST_F(RoutesTest, ACommandHandsOverItsKeyAndSaysIfItHadBeenDone) {
    for (const std::string command : {"restart", "checkpoint"}) {
        const std::string target = of_job("/" + command);
        control_.repeated = false;
        const auto done = call("POST", target, "user-token", "", {{"Idempotency-Key", "key-1"}});
        EXPECT_EQ(done.status, 200);
        EXPECT_EQ(done.body, R"({"asked":")" + std::string{kJob} + "\"}");
        EXPECT_EQ(done.header("Idempotency-Replayed"), "");
        control_.repeated = true;
        const auto again = call("POST", target, "user-token", "", {{"Idempotency-Key", "key-1"}});
        EXPECT_EQ(again.status, 200);
        EXPECT_EQ(again.body, R"({"asked":")" + std::string{kJob} + R"(","already_done":true})");
        EXPECT_EQ(again.header("Idempotency-Replayed"), "true");
        EXPECT_EQ(call("POST", target).status, 200) << "without one";
        EXPECT_EQ(
            control_.commands_given,
            (std::vector<std::string>{command + " key-1", command + " key-1", command + " "}));
        control_.commands_given.clear();
    }
}

TEST_F(RoutesTest, ACommandsKeyIsRefusedAsThatOfASubmission) {
    for (const std::string command : {"restart", "checkpoint"}) {
        for (const std::string& key :
             {std::string{"has space"}, std::string(256, 'k'), std::string{}}) {
            EXPECT_EQ(
                call("POST", of_job("/" + command), "user-token", "", {{"Idempotency-Key", key}})
                    .status,
                400)
                << key;
        }
        EXPECT_TRUE(control_.commands_given.empty());
        const std::vector<std::pair<SubmitError, int>> table{
            {{SubmitFailure::key_reused, Errc::conflict, "reused: it was another command's"}, 422},
            {Error{Errc::conflict, "nothing runs"}, 409},
            {Error{Errc::exhausted, "disk full"}, 507},
            {Error{Errc::unavailable, "stopping"}, 503}};
        for (const auto& [error, status] : table) {
            control_.submit_error = error;
            EXPECT_EQ(
                call("POST", of_job("/" + command), "user-token", "", {{"Idempotency-Key", "k"}})
                    .status,
                status)
                << error.message;
        }
        control_.submit_error.reset();
        control_.commands_given.clear();
    }
}

TEST_F(RoutesTest, ScriptIsNotThereWithTheLocalScheduler) {
    EXPECT_EQ(get(of_job("/script")).status, 404);
}

TEST_F(RoutesTest, ScriptIsPlainText) {
    control_.script_text = "#!/bin/bash\nexit 0\n";
    const auto response = get(of_job("/script"));
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, control_.script_text);
    EXPECT_EQ(response.header("Content-Type"), "text/plain; charset=utf-8");
}

}  // namespace
}  // namespace lockstep
