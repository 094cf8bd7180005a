// User A's job is nobody's business: every route of the table is tried with user B's token. A route
// that is new fails here until it is said how it keeps users apart.
#include "daemon/http/server/event_feed.hpp"
#include "job/model/wire/wire.hpp"
#include "tests/unit/access/access_fixture.hpp"

#include <fstream>
#include <map>
#include <set>

namespace lockstep {
namespace {

constexpr const char* kNoJob = "ls-01ARZ3NDEKTSV4RRFFQ69G5FAV";
constexpr const char* kSpec = R"({"name":"t","framework":"command","command":["x"])";

class IsolationTest : public AccessTest {
  protected:
    void SetUp() override {
        AccessTest::SetUp();
        // So that every route has something to tell to whom it may.
        scheduler_.machines.nodes.push_back({});
        scheduler_.machines.nodes.back().name = "n0";
        id_ = start_job_with(first_, second_);
        first_.session->on_binary(batch(1, 0, 1));
        until([&] { return first_.peer->last<wire::Ack>() != nullptr; }, "ACK");
        const std::filesystem::path run = scheduler_.last.directory;
        std::ofstream{run / slurm::kBatchFileName} << "#!/bin/bash\n";
        std::ofstream{run / wire::rank_log_name(0)} << "step 1\n";
        std::filesystem::create_directories(run / "evidence/gen-1/rank-00000");
        std::ofstream{run / "evidence/gen-1/rank-00000/state.txt"} << "asleep\n";
        std::filesystem::create_directories(run / "profile/gen-1/take-1/rank-00000");
        std::ofstream{run / "profile/gen-1/take-1/rank-00000/stacks.txt"} << "main 7\n";
        owner_ = secret_of(root_, R"({"name":"o","user":"ada"})");
        EXPECT_EQ(call(owner_, "POST /v1/jobs/" + id_ + "/profiles").status, 202);
        until([&] { return second_.peer->last<wire::Profile>() != nullptr; }, "PROFILE");
        first_.say(wire::Profiled{1, 1, {}});
        second_.say(wire::Profiled{1, 1, {}});
        const auto taken = [&] {
            const auto list = call(owner_, "GET /v1/jobs/" + id_ + "/profiles");
            return list.text().find("\"profile\":1") != std::string::npos;
        };
        until(taken, "profile_taken");
    }
    static std::string line(const Route& route, const std::string& id) {
        std::string path = route.path;
        if (const auto at = path.find("{id}"); at != std::string::npos) {
            path.replace(at, 4, id);
        }
        if (const auto at = path.find("{name}"); at != std::string::npos) {
            const bool profile = path.find("/profiles/") != std::string::npos;
            path.replace(at, 6, profile ? "stacks.txt" : "state.txt");
        }
        if (route.operation == "searchJobLogs") {
            path += "?q=x";
        }
        return std::string{to_string(route.method)} + " " + path;
    }
    static bool of_a_job(const Route& route) {
        return route.path.find("{id}") != std::string::npos &&
               !route.path.starts_with("/v1/tokens/");
    }
    static std::string renamed(std::string_view text, const std::string& from) {
        std::string out{text};
        for (auto at = out.find(from); at != std::string::npos; at = out.find(from)) {
            out.replace(at, from.size(), "ID");
        }
        return out;
    }
    // What a stream has sent when all of `wanted` has come; without any, when all that is ready is
    // read.
    std::string read_stream(BodyStream& stream, const std::vector<std::string>& wanted) {
        std::string out;
        const auto all_there = [&] {
            return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& one) {
                return out.find(one) != std::string::npos;
            });
        };
        auto run = [&]() -> Task<void> {
            while (!all_there()) {
                auto piece = co_await stream.next();
                if (!piece) {
                    break;
                }
                out += *piece;
            }
        };
        bool done = false;
        auto all = [&]() -> Task<void> {
            auto task = run();
            co_await std::move(task);
            done = true;
        };
        net::co_spawn(*io_, all(), net::detached);
        until([&] { return done; }, "all that is wanted of the stream");
        stream.close();
        return out;
    }

    TestAgent first_, second_;
    std::string id_;
    std::string owner_;  // ada's, role user
};

TEST_F(IsolationTest, EveryRouteOfAJobAnswersOthersAsIfItWereNotThere) {
    std::size_t walked = 0;
    for (const Route& route : router_->routes()) {
        if (!of_a_job(route)) {
            continue;
        }
        const auto foreign = call(eve_, line(route, id_));
        const auto unknown = call(eve_, line(route, kNoJob));
        EXPECT_EQ(foreign.status, 404) << route.operation;
        EXPECT_FALSE(foreign.stream) << route.operation;
        EXPECT_EQ(unknown.status, 404) << route.operation;
        EXPECT_EQ(renamed(foreign.text(), id_), renamed(unknown.text(), kNoJob)) << route.operation;
        // The owner gets an answer, so the 404 is not for another reason.
        if (route.method == Method::get) {
            EXPECT_EQ(call(owner_, line(route, id_)).status, 200) << route.operation;
            EXPECT_EQ(call(vic_, line(route, id_)).status, 200) << route.operation;
        } else {
            EXPECT_EQ(call(vic_, line(route, id_)).status, 403) << route.operation;
        }
        ++walked;
    }
    EXPECT_GE(walked, 9U);
    EXPECT_EQ(call(eve_, "GET /v1/jobs/" + id_ + "/logs?follow=true").status, 404);
    EXPECT_EQ(call(eve_, "GET /v1/jobs/" + id_ + "/logs?rank=99").text().find("rank"),
              std::string::npos);
    EXPECT_EQ(state(id_), "running");
    EXPECT_EQ(call(owner_, "POST /v1/jobs/" + id_ + "/cancel").status, 200);
    EXPECT_NE(first_.peer->last<wire::Stop>(), nullptr);
}

TEST_F(IsolationTest, AFinishedJobThatOnlyTheStoreHasIsAsHidden) {
    first_.say(exit(1, 0, 0));
    second_.say(exit(1, 1, 0));
    until([&] { return state(id_) == "succeeded"; }, "succeeded");
    restart_daemon();
    for (const Route& route : router_->routes()) {
        if (of_a_job(route)) {
            const auto foreign = call(eve_, line(route, id_));
            EXPECT_EQ(foreign.status, 404) << route.operation;
            const auto unknown = call(eve_, line(route, kNoJob));
            EXPECT_EQ(renamed(foreign.text(), id_), renamed(unknown.text(), kNoJob));
        }
    }
    // Now it is in memory again.
    EXPECT_EQ(call(owner_, "GET /v1/jobs/" + id_).status, 200);
    EXPECT_EQ(call(eve_, "GET /v1/jobs/" + id_).status, 404);
    EXPECT_EQ(call(eve_, "POST /v1/jobs/" + id_ + "/cancel").status, 404);
    EXPECT_EQ(call(eve_, "POST /v1/jobs/" + id_ + "/restart").status, 404);
    EXPECT_EQ(call(eve_, "POST /v1/jobs/" + id_ + "/checkpoint").status, 404);
}

// Routes without a job in their path, each with what there is to say of it.
TEST_F(IsolationTest, EveryOtherRouteIsKnownAndNamesNoForeignJob) {
    enum class Kind { lists_jobs, tells_no_jobs, tested_elsewhere, no_user };
    const std::map<std::string, Kind> kinds{
        {"listJobs", Kind::lists_jobs},
        {"listNodes", Kind::lists_jobs},
        {"getNode", Kind::tested_elsewhere},  // below
        {"listScrapeTargets", Kind::lists_jobs},
        {"getCluster", Kind::tells_no_jobs},
        {"whoAmI", Kind::tells_no_jobs},
        {"listTokens", Kind::tells_no_jobs},
        {"listSecrets", Kind::tells_no_jobs},
        {"putSecret", Kind::tested_elsewhere},         // below
        {"removeSecret", Kind::tested_elsewhere},      // below
        {"putSlurmToken", Kind::tested_elsewhere},     // identity_routes_test.cpp
        {"forgetSlurmToken", Kind::tested_elsewhere},  // identity_routes_test.cpp
        {"createToken", Kind::tested_elsewhere},       // token_routes_test.cpp
        {"revokeToken", Kind::tested_elsewhere},       // token_routes_test.cpp
        {"submitJob", Kind::tested_elsewhere},         // below
        {"renderJob", Kind::tested_elsewhere},         // below
        {"streamEvents", Kind::tested_elsewhere},      // below
        {"connectAgent", Kind::no_user},               // a job's ticket, by its hash
        {"getMetrics", Kind::tested_elsewhere},        // below
        {"getHealth", Kind::no_user},
        {"getReadiness", Kind::no_user},
        {"createSignInCode", Kind::tested_elsewhere},  // page_sessions_test.cpp
        {"signIn", Kind::tested_elsewhere},            // page_sessions_test.cpp
        {"signOut", Kind::tested_elsewhere},           // page_sessions_test.cpp
        {"getPage", Kind::no_user},
        {"getPageAsset", Kind::no_user},
        {"getOpenApi", Kind::no_user}};
    for (const Route& route : router_->routes()) {
        if (of_a_job(route)) {
            continue;
        }
        const auto kind = kinds.find(route.operation);
        ASSERT_NE(kind, kinds.end()) << route.operation << " is new: how does it keep users apart?";
        if (kind->second == Kind::lists_jobs || kind->second == Kind::tells_no_jobs) {
            const auto others = call(eve_, line(route, ""));
            EXPECT_EQ(others.status, 200) << route.operation;
            EXPECT_EQ(others.text().find(id_), std::string::npos) << route.operation;
        }
        if (kind->second == Kind::lists_jobs) {
            for (const std::string& secret : {owner_, vic_, admin_}) {
                EXPECT_NE(call(secret, line(route, "")).text().find(id_), std::string::npos)
                    << route.operation;
            }
        }
    }
}

// A caller without a token was a viewer, who reads everybody's jobs, and a user read them too.
TEST_F(IsolationTest, MetricsTellOfAJobWhoMaySeeIt) {
    const auto body = [](const HttpResponse& response) {
        EXPECT_EQ(response.status, 200);
        std::string out{response.text()};
        if (response.make) {
            response.make([&out](std::string piece) {
                out += piece;
                return piece;
            });
        }
        return out;
    };
    for (const std::string& secret : {owner_, vic_, admin_}) {
        EXPECT_NE(body(call(secret, "GET /metrics")).find(id_), std::string::npos);
    }
    EXPECT_EQ(body(call(eve_, "GET /metrics")).find(id_), std::string::npos);
    for (const char* line : {"GET /metrics", "GET /metrics?jobs=all"}) {
        const std::string own = body(call_as(Principal{}, line));  // as a Session lets it through
        EXPECT_EQ(own.find(id_), std::string::npos) << line;
        EXPECT_NE(own.find("lockstep_build_info"), std::string::npos) << line;
    }
    for (const Route& route : router_->routes()) {
        EXPECT_EQ(route.without_token, route.operation == "getMetrics") << route.operation;
    }
}

// Each principal has their own, whatever it is called; nobody, an admin neither, has another's.
TEST_F(IsolationTest, SecretsAreEachUsersOwn) {
    const std::string narrowed =
        secret_of(who(owner_), R"({"name":"n","scopes":["read","write","metrics"]})");
    EXPECT_EQ(call(owner_, "PUT /v1/secrets/KEY", R"({"value":"of ada"})").status, 200);
    for (const std::string& secret : {eve_, uma_, admin_}) {
        const bool ada = secret == admin_;  // her other token
        EXPECT_EQ(json(call(secret, "GET /v1/secrets"))["items"].size(), ada ? 1U : 0U);
        EXPECT_EQ(call(secret, "DELETE /v1/secrets/OTHER").status, 404);
    }
    EXPECT_EQ(call(eve_, "DELETE /v1/secrets/KEY").status, 404);
    EXPECT_EQ(call(eve_, "PUT /v1/secrets/KEY", R"({"value":"of eve"})").status, 200);
    EXPECT_EQ(secrets_->values("ada", {"KEY"}).at("KEY"), "of ada");
    EXPECT_EQ(secrets_->values("eve", {"KEY"}).at("KEY"), "of eve");
    for (const std::string& secret : {narrowed, vic_}) {
        EXPECT_EQ(call(secret, "PUT /v1/secrets/KEY", R"({"value":"x"})").status, 403);
        EXPECT_EQ(call(secret, "DELETE /v1/secrets/KEY").status, 403);
    }
    EXPECT_EQ(call(narrowed, "GET /v1/secrets").text().find("of ada"), std::string::npos);
}

TEST_F(IsolationTest, OfANodesFaultsOthersSeeOnlyThatTheyWere) {
    wire::GpuXid xid;
    xid.event = 1;
    xid.gpu = 3;
    xid.xid = 79;
    xid.time = clock_.wall();
    first_.say(xid);
    until([&] { return json(call(owner_, "GET /v1/nodes/n0"))["faults"].size() == 1; }, "a fault");
    for (const std::string& secret : {owner_, vic_, admin_}) {
        const Json seen = json(call(secret, "GET /v1/nodes/n0"));
        EXPECT_EQ(seen["jobs"], Json::array({id_}));
        EXPECT_EQ(seen["faults"][0]["kind"], "gpu_xid");
        EXPECT_EQ(seen["faults"][0]["job"], id_);
        EXPECT_EQ(seen["faults"][0]["user"], "ada");
        EXPECT_EQ(seen["faults"][0]["gpu"], 3);
    }
    const Json foreign = json(call(eve_, "GET /v1/nodes/n0"));
    EXPECT_EQ(foreign["history"]["faults_7d"], 1);
    EXPECT_EQ(foreign["jobs"], Json::array());
    ASSERT_EQ(foreign["faults"].size(), 1U);
    EXPECT_EQ(foreign["faults"][0].size(), 2U) << foreign.dump();
    EXPECT_EQ(foreign["faults"][0]["kind"], "gpu_xid");
    EXPECT_EQ(call(eve_, "GET /v1/nodes/n7").status, 404);
}

TEST_F(IsolationTest, ListFiltersFindNoForeignJob) {
    const std::string empty{call(eve_, "GET /v1/jobs").text()};
    for (const std::string& filter :
         {std::string{"?user=ada"}, std::string{"?name=t"}, std::string{"?state=running"},
          "?sweep=" + id_, "?q=" + id_, std::string{"?q=native"},
          std::string{"?state=running,queued,accepted,failed,succeeded"},
          std::string{"?limit=1000"}}) {
        EXPECT_EQ(call(eve_, "GET /v1/jobs" + filter).text(), empty) << filter;
    }
    EXPECT_NE(call(vic_, "GET /v1/jobs?user=ada").text().find(id_), std::string::npos);
}

TEST_F(IsolationTest, TheEventStreamTellsOnlyOfOnesOwnJobs) {
    const std::string topics =
        "/v1/events?topics=jobs,job." + id_ + ",ranks." + id_ + "&last_event_id=0";
    const auto open = [&](const std::string& secret) {
        const auto response = call(secret, "GET " + topics);
        EXPECT_EQ(response.status, 200);
        return response.stream;
    };
    // Of a job of hers: what was to come before it has come.
    const auto publish_mark = [&] {
        StreamMessage event;
        event.seq = control_->stream().last_seq() + 1;
        event.topic = "job.ls-01J00000000000000000000EVE";
        event.event = "mark";
        event.data = std::make_shared<const std::string>("{}");
        event.user = "eve";
        context_->bus.publish(event);
    };
    const auto hers = open(eve_);
    publish_mark();
    EXPECT_EQ(read_stream(*hers, {"event: mark"}).find(id_), std::string::npos);
    for (const std::string& secret : {owner_, vic_, admin_}) {
        EXPECT_NE(read_stream(*open(secret), {id_}).find(id_), std::string::npos);
    }
    // And what happens from now on, snapshots of the ranks among it.
    const auto live = [&](const std::string& secret, const std::vector<std::string>& wanted) {
        const auto response = call(secret, "GET /v1/events?topics=jobs,ranks." + id_);
        StreamMessage event;
        event.seq = control_->stream().last_seq() + 1;
        event.topic = "job." + id_;
        event.event = "placed";
        event.data = std::make_shared<const std::string>("{\"job\":\"" + id_ + "\"}");
        event.user = "ada";
        context_->bus.publish(event);
        event.seq = 0;
        event.topic = "ranks." + id_;
        event.event = "ranks";
        context_->bus.publish(event);
        publish_mark();
        return read_stream(*response.stream, wanted);
    };
    EXPECT_EQ(live(eve_, {"event: mark"}).find(id_), std::string::npos);
    const std::string own = live(owner_, {"event: placed", "event: ranks"});
    EXPECT_NE(own.find("event: placed"), std::string::npos) << own;
    EXPECT_NE(own.find("event: ranks"), std::string::npos) << own;
}

TEST_F(IsolationTest, AJobIsItsTokensUsersWhateverTheBodySays) {
    const auto forged = call(eve_, "POST /v1/jobs", std::string{kSpec} + R"(,"user":"ada"})");
    EXPECT_EQ(forged.status, 400);
    const Json made = json(call(eve_, "POST /v1/jobs", std::string{kSpec} + "}"));
    EXPECT_EQ(made["user"], "eve");
    EXPECT_EQ(call(owner_, "GET /v1/jobs/" + made["id"].get<std::string>()).status, 404);
    EXPECT_EQ(call(vic_, "POST /v1/jobs", std::string{kSpec} + "}").status, 403);
    EXPECT_EQ(call(vic_, "POST /v1/jobs/render", std::string{kSpec} + "}").status, 403);
}

TEST_F(IsolationTest, ForeignJobsCannotBeWaitedForOrTold) {
    const auto after = [&](const std::string& secret, const std::string& id) {
        return call(secret, "POST /v1/jobs", std::string{kSpec} + R"(,"after":[")" + id + "\"]}");
    };
    const auto foreign = after(eve_, id_);
    EXPECT_EQ(foreign.status, 400);
    EXPECT_EQ(renamed(foreign.text(), id_), renamed(after(eve_, kNoJob).text(), kNoJob));
    EXPECT_EQ(after(owner_, id_).status, 201);
}

TEST_F(IsolationTest, IdempotencyKeysAreEachUsersOwn) {
    const std::string body = std::string{kSpec} + "}";
    const std::string key = "Idempotency-Key: nightly\r\n";
    const Json of_uma = json(call(uma_, "POST /v1/jobs", body, key));
    const auto of_eve = call(eve_, "POST /v1/jobs", body, key);
    EXPECT_EQ(of_eve.status, 201);
    EXPECT_NE(json(of_eve)["id"], of_uma["id"]);
    EXPECT_EQ(json(of_eve)["user"], "eve");
    // Another body is a conflict with one's own key only.
    const auto other = call(eve_, "POST /v1/jobs", std::string{kSpec} + R"(,"labels":{}})", key);
    EXPECT_EQ(other.status, 422);
    EXPECT_EQ(other.text().find(of_uma["id"].get<std::string>()), std::string::npos);
    EXPECT_EQ(json(call(uma_, "POST /v1/jobs", body, key))["id"], of_uma["id"]);
}

TEST_F(IsolationTest, ASweepIsCancelledByItsOwnerOnly) {
    const auto made =
        json(call(uma_, "POST /v1/jobs",
                  std::string{kSpec} + R"(,"sweep":{"parameters":{"labels.a":["1","2"]}}})"));
    const std::string id = made["id"];
    EXPECT_EQ(call(eve_, "POST /v1/sweeps/" + id + "/cancel").status, 404);
    EXPECT_EQ(call(eve_, "GET /v1/jobs?sweep=" + id).text().find(id), std::string::npos);
    EXPECT_EQ(json(call(uma_, "POST /v1/sweeps/" + id + "/cancel"))["cancelled"], 2);
}

}  // namespace
}  // namespace lockstep
