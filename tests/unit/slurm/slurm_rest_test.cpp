// size: one test for each failure of server, network and token
// The slurmrestd driver against a server that does what real ones and networks do.
#include "scheduler-integration/slurm/slurm_rest.hpp"

#include "job/base/text.hpp"
#include "scheduler-integration/slurm/rest_job.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/slurm/fake_restd.hpp"
#include "tests/unit/slurm/fixtures.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <optional>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Kind = SubmitReply::Kind;

std::string token_until(std::int64_t expires, const std::string& user = "demo") {
    std::string claims =
        base64_encode(R"({"exp":)" + std::to_string(expires) + R"(,"iat":)" +
                      std::to_string(expires - 900) + R"(,"sun":")" + user + R"("})");
    std::replace(claims.begin(), claims.end(), '+', '-');
    std::replace(claims.begin(), claims.end(), '/', '_');
    std::erase(claims, '=');
    return "eyJhbGciOiJIUzI1NiJ9." + claims + ".c2lnbmF0dXJl";
}

std::int64_t now() {
    return SystemClock{}.wall() / 1000;
}

const std::string kNoRoute = http(404, "Unable find requested URL.", "text/plain");

// slurmrestd 22.05: v0.0.38 and before, and `answer` for all but pings.
FakeRestd::Answer restd(FakeRestd::Answer answer, const std::string& version = "v0.0.38") {
    return [answer = std::move(answer), version](const RestRequest& request) {
        if (request.target.find(version) == std::string::npos) {
            return std::optional{kNoRoute};
        }
        if (request.target.ends_with("/ping")) {
            return std::optional{http(200, slurm_fixture("22.05/rest_ping.json"))};
        }
        return answer(request);
    };
}
FakeRestd::Answer always(const std::string& bytes) {
    return [bytes](const RestRequest&) { return std::optional{bytes}; };
}
std::optional<std::string> silent(const RestRequest&) {
    return std::nullopt;
}

const std::string kScript =
    "#!/bin/bash -p\n#SBATCH --job-name=a-1\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n"
    "#SBATCH --cpus-per-task=3\ntrue\n";

class SlurmRestTest : public testing::Test {
  protected:
    SlurmRestTest() { options_.user = "demo"; }

    void serve(FakeRestd::Answer answer) { server_.emplace(std::move(answer)); }

    SlurmRest& rest() {
        if (!rest_) {
            options_.address = *parse_rest_address(server_ ? server_->url() : url_);
            options_.token = [this] { return token_; };
            rest_.emplace(io_, clock_, options_, [this](std::string_view route, bool good, double) {
                called_.push_back(std::string{route} + (good ? " good" : " bad"));
            });
        }
        return *rest_;
    }

    template <class T>
    T run(Task<T> task) {
        std::optional<T> result;
        start(std::move(task), result);
        io_.restart();
        io_.run();
        return std::move(*result);
    }
    template <class T>
    void start(Task<T> task, std::optional<T>& result) {
        net::co_spawn(io_, into_result(std::move(task), result),
                      [](const std::exception_ptr& error) {
                          if (error) {
                              std::rethrow_exception(error);
                          }
                      });
    }
    template <class T>
    static Task<void> into_result(Task<T> task, std::optional<T>& result) {
        result.emplace(co_await std::move(task));
    }

    SubmitReply submit(const std::string& script = kScript) {
        const std::string path = folder_.path() / "batch.sh";
        std::ofstream{path} << script;
        return run(rest().submit(path));
    }

    // Requests but the search for the version.
    std::vector<std::string> asked() const {
        std::vector<std::string> out;
        for (const RestRequest& request : server_->requests()) {
            if (!request.target.ends_with("/ping")) {
                out.push_back(request.method + " " + request.target);
            }
        }
        return out;
    }

    test::TemporaryFolder folder_;
    net::io_context io_{1};
    SystemClock clock_;
    std::string token_ = token_until(now() + 1000);
    std::string url_ = "http://127.0.0.1:1";
    std::int64_t expires_ = 0;
    SlurmRest::Options options_;
    std::vector<std::string> called_;
    std::optional<FakeRestd> server_;
    std::optional<SlurmRest> rest_;
};

TEST_F(SlurmRestTest, HandsInAScriptAsTheUser) {
    serve(restd(always(http(200, R"({"errors":[],"job_id":17,"step_id":"BATCH"})"))));
    const SubmitReply reply = submit();
    EXPECT_EQ(reply.kind, Kind::accepted) << reply.message;
    EXPECT_EQ(reply.id, 17);
    EXPECT_EQ(rest().parser(), 38);
    const RestRequest request = server_->requests().back();
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.target, "/slurm/v0.0.38/job/submit");
    EXPECT_EQ(request.header("X-SLURM-USER-NAME"), "demo");
    EXPECT_EQ(request.header("X-SLURM-USER-TOKEN"), token_);
    EXPECT_EQ(request.header("Content-Type"), "application/json");
    const auto body = parse_json(request.body);
    ASSERT_TRUE(body);
    EXPECT_EQ((*body)["script"], kScript);
    EXPECT_EQ((*body)["job"]["name"], "a-1");
    EXPECT_EQ(called_.back(), "job/submit good");
}

TEST_F(SlurmRestTest, TakesTheNewestVersionItKnows) {
    serve(restd(always(http(200, R"({"jobs":[]})")), "v0.0.41"));
    ASSERT_TRUE(run(rest().jobs()));
    EXPECT_EQ(rest().parser(), 41);
    EXPECT_THAT(asked(), ElementsAre("GET /slurm/v0.0.41/jobs"));
}

TEST_F(SlurmRestTest, FindsTheNewVersionAfterAnUpgrade) {
    std::atomic<bool> upgraded{false};
    serve([&](const RestRequest& request) {
        const auto one =
            restd(always(http(200, R"({"jobs":[]})")), upgraded ? "v0.0.40" : "v0.0.38");
        return one(request);
    });
    ASSERT_TRUE(run(rest().jobs()));
    upgraded = true;
    EXPECT_FALSE(run(rest().jobs()));
    EXPECT_TRUE(run(rest().jobs()));
    EXPECT_EQ(rest().parser(), 40);
}

TEST_F(SlurmRestTest, SaysSoWhenThereIsNoVersionItKnows) {
    serve(always(kNoRoute));
    const auto facts = run(rest().probe());
    ASSERT_FALSE(facts);
    EXPECT_EQ(facts.error().code, Errc::invalid);
    EXPECT_THAT(facts.error().message, HasSubstr("v0.0.38 to v0.0.45"));
    EXPECT_EQ(submit().kind, Kind::not_submitted);
}

TEST_F(SlurmRestTest, NothingIsSubmittedWhereNobodyListens) {
    const SubmitReply reply = submit();
    EXPECT_EQ(reply.kind, Kind::not_submitted);
    EXPECT_THAT(reply.message, HasSubstr("Connection refused"));
    EXPECT_EQ(run(rest().jobs()).error().code, Errc::unavailable);
}

// What may have been read may have been done.
TEST_F(SlurmRestTest, ALostConnectionIsInDoubt) {
    serve(restd(always("")));
    EXPECT_EQ(submit().kind, Kind::ambiguous);
    const auto jobs = run(rest().jobs());
    ASSERT_FALSE(jobs);
    EXPECT_EQ(jobs.error().code, Errc::unavailable);
    EXPECT_THAT(jobs.error().message, HasSubstr("closed the connection"));
}

TEST_F(SlurmRestTest, ATornAnswerIsInDoubt) {
    const std::string whole = http(200, R"({"errors":[],"job_id":17,"step_id":"BATCH"})");
    for (const std::size_t bytes : {std::size_t{9}, whole.find("\r\n\r\n") + 4, whole.size() - 1}) {
        rest_.reset();
        serve(restd(always(whole.substr(0, bytes))));
        EXPECT_EQ(submit().kind, Kind::ambiguous) << bytes;
        EXPECT_EQ(run(rest().jobs()).error().code, Errc::unavailable) << bytes;
    }
}

TEST_F(SlurmRestTest, ASlowAnswerIsInDoubt) {
    // The connection must stand by then.
    options_.submit_timeout = 2s;
    options_.query_timeout = 2s;
    serve(restd(silent));
    const SubmitReply reply = submit();
    EXPECT_EQ(reply.kind, Kind::ambiguous);
    EXPECT_THAT(reply.message, HasSubstr("did not answer in time"));
    EXPECT_EQ(run(rest().jobs()).error().code, Errc::timed_out);
    EXPECT_EQ(called_.back(), "jobs bad");
}

TEST_F(SlurmRestTest, ASlowSearchForTheVersionSubmitsNothing) {
    options_.probe_timeout = 2s;
    serve(silent);
    EXPECT_EQ(submit().kind, Kind::not_submitted);
    EXPECT_EQ(run(rest().probe()).error().code, Errc::timed_out);
}

TEST_F(SlurmRestTest, AHugeAnswerEndsAtTheBound) {
    options_.answer_bytes = 1U << 20U;
    const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    std::string endless = chunked;
    for (int i = 0; i < 40; ++i) {
        endless += "10000\r\n" + std::string(0x10000, ' ') + "\r\n";
    }
    for (const std::string& bytes : std::vector<std::string>{
             "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{", endless}) {
        rest_.reset();
        serve(restd(always(bytes)));
        EXPECT_EQ(run(rest().jobs()).error().code, Errc::exhausted);
        EXPECT_EQ(submit().kind, Kind::ambiguous);
    }
    rest_.reset();
    serve(restd(always("HTTP/1.1 200 OK\r\nX: " + std::string(200'000, 'x') + "\r\n\r\n")));
    EXPECT_FALSE(run(rest().jobs()));
}

TEST_F(SlurmRestTest, WhatIsNoHttpIsInDoubt) {
    serve(restd(always("SSH-2.0-OpenSSH_9.2\r\n\r\n")));
    EXPECT_EQ(submit().kind, Kind::ambiguous);
    EXPECT_FALSE(run(rest().jobs()));
}

TEST_F(SlurmRestTest, ErrorsBesideStatus200AreErrors) {
    serve(restd(
        always(http(200, R"({"errors":[{"error":"Invalid qos specification"}],"jobs":[]})"))));
    EXPECT_EQ(submit().kind, Kind::rejected);
    EXPECT_FALSE(run(rest().jobs()));
    EXPECT_FALSE(run(rest().nodes()));
    EXPECT_FALSE(run(rest().history("a-1", 0)));
}

TEST_F(SlurmRestTest, AnUnknownDirectiveIsRefusedAndNotSent) {
    serve(restd(always(http(200, R"({"job_id":17})"))));
    const SubmitReply reply = submit("#SBATCH --contiguous\n" + kScript);
    EXPECT_EQ(reply.kind, Kind::rejected) << "the next try would say the same";
    EXPECT_THAT(reply.message, HasSubstr("--contiguous"));
    EXPECT_THAT(asked(), IsEmpty());
    EXPECT_EQ(run(rest().submit("/nowhere/batch.sh")).kind, Kind::not_submitted);
}

// The folder is the job's user's to write to.
TEST_F(SlurmRestTest, AScriptThatIsALinkIsNotRead) {
    serve(restd(always(http(200, R"({"job_id":17})"))));
    std::ofstream{folder_.path() / "secret"} << kScript;
    std::filesystem::create_symlink(folder_.path() / "secret", folder_.path() / "batch.sh");
    const SubmitReply reply = run(rest().submit(folder_.path() / "batch.sh"));
    EXPECT_EQ(reply.kind, Kind::not_submitted);
    EXPECT_THAT(reply.message, HasSubstr("not a regular file"));
    EXPECT_THAT(asked(), IsEmpty());
}

TEST_F(SlurmRestTest, ATokenThatCannotBeGoodIsNotSent) {
    serve(restd(always(http(200, R"({"job_id":17})"))));
    for (const auto& [token, words] : std::vector<std::pair<std::string, std::string>>{
             {"", "no Slurm token of demo"},
             {token_until(now() - 1), "the Slurm token of demo has expired"},
             {token_until(now() + 100, "bob"), "the Slurm token of demo is made out to bob"},
             {"a\r\nX-SLURM-USER-NAME: root", "the Slurm token of demo is not a JSON Web Token"}}) {
        token_ = token;
        const SubmitReply reply = submit();
        EXPECT_EQ(reply.kind, Kind::not_submitted);
        EXPECT_THAT(reply.message, HasSubstr(words));
        const auto jobs = run(rest().jobs());
        ASSERT_FALSE(jobs);
        EXPECT_EQ(jobs.error().code, Errc::denied);
        EXPECT_THAT(jobs.error().message, HasSubstr(words));
        EXPECT_EQ(run(rest().ping()).error().code, Errc::denied);
        EXPECT_EQ(run(rest().probe()).error().code, Errc::denied);
    }
    EXPECT_EQ(server_->connections(), 0);
}

TEST_F(SlurmRestTest, ARenewedTokenIsUsedAtOnce) {
    serve(restd(always(http(200, R"({"jobs":[]})"))));
    token_ = token_until(now() - 10);
    EXPECT_FALSE(run(rest().jobs()));
    token_ = token_until(now() + 500);
    EXPECT_TRUE(run(rest().jobs()));
    EXPECT_EQ(server_->requests().back().header("X-SLURM-USER-TOKEN"), token_);
}

// 22.05 says no more than "Unspecified error" of it.
TEST_F(SlurmRestTest, ATokenThatExpiresOnTheWayIsNamed) {
    serve(restd([this](const RestRequest&) {
        std::this_thread::sleep_until(
            std::chrono::system_clock::time_point{std::chrono::seconds{expires_}} + 10ms);
        return std::optional{http(500, R"({"errors":[{"error":"Unspecified error"}]})")};
    }));
    expires_ = now() + 1;
    token_ = token_until(expires_);
    const auto jobs = run(rest().jobs());
    ASSERT_FALSE(jobs);
    EXPECT_EQ(jobs.error().code, Errc::denied);
    EXPECT_THAT(jobs.error().message, HasSubstr("has expired"));
}

TEST_F(SlurmRestTest, ARefusedTokenIsNamed) {
    serve(restd(always(http(401, "Authentication failure", "text/plain"))));
    const SubmitReply reply = submit();
    EXPECT_EQ(reply.kind, Kind::not_submitted);
    EXPECT_THAT(reply.message, HasSubstr("the Slurm token of demo"));
    EXPECT_THAT(reply.message, Not(HasSubstr(token_)));
    EXPECT_EQ(run(rest().jobs()).error().code, Errc::denied);
}

TEST_F(SlurmRestTest, KeepsOnlyTheUsersOwnJobs) {
    options_.user = "root";
    token_ = token_until(now() + 100, "root");
    serve(restd(always(http(200, slurm_fixture("22.05/jobs_v0.0.38.json")))));
    const auto table = run(rest().jobs());
    ASSERT_TRUE(table) << table.error().message;
    std::vector<std::int64_t> ids;
    for (const SlurmJob& job : table->jobs) {
        ids.push_back(job.id);
    }
    EXPECT_THAT(ids, ElementsAre(1, 2, 3, 4));  // not lstest-a's
    EXPECT_EQ(table->malformed, 1U);            // the name with a newline
}

std::string one_job(const std::string& name, const std::string& user, const std::string& state,
                    int preempted = 0) {
    return http(200, R"({"errors":[],"jobs":[{"job_id":7,"name":")" + name + R"(","user_name":")" +
                         user + R"(","user_id":1000,"job_state":")" + state +
                         R"(","preempt_time":)" + std::to_string(preempted) + "}]}");
}

TEST_F(SlurmRestTest, CancelsOnlyTheJobOfThatName) {
    const auto cancel = [this](const std::string& there, const std::string& ended) {
        rest_.reset();
        serve(restd([=](const RestRequest& request) {
            return std::optional{request.method == "DELETE" ? ended : there};
        }));
        return run(rest().cancel(7, "a-1"));
    };
    const std::string good = http(200, R"({"errors":[]})");
    const std::string get = "GET /slurm/v0.0.38/job/7";
    EXPECT_TRUE(cancel(one_job("a-1", "demo", "RUNNING"), good));
    EXPECT_THAT(asked(), ElementsAre(get, "DELETE /slurm/v0.0.38/job/7"));
    EXPECT_TRUE(cancel(one_job("b-1", "demo", "RUNNING"), good));
    EXPECT_THAT(asked(), ElementsAre(get));
    EXPECT_TRUE(cancel(one_job("a-1", "mallory", "RUNNING"), good));
    EXPECT_THAT(asked(), ElementsAre(get));
    EXPECT_TRUE(cancel(one_job("a-1", "demo", "COMPLETED"), good));
    EXPECT_THAT(asked(), ElementsAre(get));
    const std::string none =
        http(500, R"({"errors":[{"error_number":2017,"error":"Invalid job id specified"}]})");
    EXPECT_TRUE(cancel(none, good));
    EXPECT_THAT(asked(), ElementsAre(get));
    EXPECT_TRUE(cancel(one_job("a-1", "demo", "RUNNING"), none));
    EXPECT_TRUE(
        cancel(one_job("a-1", "demo", "RUNNING"),
               http(500, R"({"errors":[{"error_number":2021,"error":"in other words"}]})")));
    EXPECT_TRUE(cancel(one_job("a-1", "demo", "RUNNING"),
                       http(500, R"({"errors":[{"error":"Job/step already completing or )"
                                 R"(completed"}]})")));
    EXPECT_FALSE(cancel(one_job("a-1", "demo", "RUNNING"),
                        http(500, R"({"errors":[{"error_number":2002,"error":"denied"}]})")));
    EXPECT_FALSE(cancel(one_job("a-1", "demo", "RUNNING"), http(500, "")));
    EXPECT_FALSE(cancel(http(500, ""), good));
}

TEST_F(SlurmRestTest, TellsWhetherAJobWasPreempted) {
    serve(restd(always(one_job("a-1", "demo", "FAILED", 1'795'237'990))));
    const auto yes = run(rest().detail(7, "a-1"));
    ASSERT_TRUE(yes);
    EXPECT_TRUE(yes->preempted);
    EXPECT_EQ(run(rest().detail(7, "b-1")).error().code, Errc::not_found)
        << "somebody else's by now";
    rest_.reset();
    serve(restd(always(one_job("a-1", "demo", "FAILED"))));
    EXPECT_FALSE(run(rest().detail(7, "a-1"))->preempted);
}

TEST_F(SlurmRestTest, ProbesTheCluster) {
    const auto probe = [this](const std::string& slurmdb) {
        rest_.reset();
        serve([=](const RestRequest& request) {
            if (request.target.starts_with("/slurmdb")) {
                return std::optional{slurmdb};
            }
            return restd(always(http(200, slurm_fixture("22.05/rest_partitions.json"))))(request);
        });
        return run(rest().probe());
    };
    const auto facts = probe(http(200, slurm_fixture("22.05/rest_history_none.json")));
    ASSERT_TRUE(facts) << facts.error().message;
    EXPECT_EQ(to_string(facts->version), "22.05.8");
    EXPECT_TRUE(facts->config.has_accounting());
    EXPECT_EQ(facts->config.credential_lifetime(), 900);  // exp - iat
    EXPECT_EQ(facts->config.auth_type, "auth/jwt");
    EXPECT_THAT(facts->config.controllers, ElementsAre("ctl"));
    ASSERT_NE(facts->default_partition(), nullptr);
    EXPECT_EQ(facts->default_partition()->name, "main");
    EXPECT_EQ(facts->has_pyxis, std::nullopt);
    EXPECT_FALSE(probe(kNoRoute)->config.has_accounting());
    // Away is not absent: what accounting does not know is taken for lost.
    EXPECT_TRUE(probe(http(500, R"({"errors":[{"error":"Unable to connect to database"}]})"))
                    ->config.has_accounting());
    EXPECT_TRUE(probe("")->config.has_accounting());
    // A token that does not tell: Slurm's own default.
    token_ = "eyJhbGciOiJIUzI1NiJ9.e30.c2ln";
    EXPECT_EQ(probe(kNoRoute)->config.credential_lifetime(), 1800);
}

// Slurm 23.02 to 25.11: of several partitions it is not known which is the default, and each job
// that named none was refused, "this cluster has no default partition".
TEST_F(SlurmRestTest, KnowsThatItDoesNotKnowTheDefaultPartitionOfSomeVersions) {
    const auto probe = [this](const std::string& fixture, int parser, std::size_t partitions) {
        const auto all = parse_json(slurm_fixture(fixture));
        Json listed = (*all)["partitions"];
        while (listed["partitions"].size() > partitions) {
            listed["partitions"].erase(listed["partitions"].size() - 1);
        }
        const std::string ping = http(200, dump_json((*all)["ping"]));
        const std::string bytes = http(200, dump_json(listed));
        rest_.reset();
        serve([=](const RestRequest& request) {
            if (request.target.find(rest::version_text(parser)) == std::string::npos) {
                return std::optional{kNoRoute};
            }
            return std::optional{request.target.ends_with("/ping") ? ping : bytes};
        });
        return run(rest().probe());
    };
    for (const auto& [fixture, parser] :
         {std::pair{"24.11/rest_v0.0.42.json", 42}, std::pair{"25.11/rest_v0.0.44.json", 44}}) {
        const auto several = probe(fixture, parser, 2);
        ASSERT_TRUE(several) << several.error().message;
        EXPECT_EQ(rest().parser(), parser);
        EXPECT_EQ(several->default_partition(), nullptr);
        EXPECT_TRUE(several->default_untold);
        EXPECT_EQ(several->config.cluster, "alps");
        EXPECT_TRUE(several->config.has_accounting());  // told by the ping: slurmdb was not asked
        EXPECT_THAT(asked(),
                    ElementsAre("GET /slurm/" + rest::version_text(parser) + "/partitions"));
        const auto one = probe(fixture, parser, 1);
        ASSERT_NE(one->default_partition(), nullptr);
        EXPECT_EQ(one->default_partition()->name, "main");
        EXPECT_FALSE(one->default_untold);
    }
    // One that tells, and has none.
    const auto none = probe("25.11/rest_v0.0.44.json", 45, 2);
    EXPECT_EQ(none->default_partition(), nullptr);
    EXPECT_FALSE(none->default_untold);
}

TEST_F(SlurmRestTest, AsksAccountingInTheVersionsWords) {
    serve(restd(always(http(200, slurm_fixture("22.05/rest_history.json")))));
    const auto table = run(rest().history("abc&users=root", 0));
    ASSERT_TRUE(table);
    EXPECT_EQ(table->jobs.size(), 3U);
    EXPECT_EQ(asked().back(),
              "GET /slurmdb/v0.0.38/jobs?skip_steps=true&job_name=abc%26users%3Droot");
    rest_.reset();
    serve(restd(always(http(200, R"({"jobs":[]})")), "v0.0.42"));
    ASSERT_TRUE(run(rest().history("a-1", 1'795'000'000)));
    EXPECT_EQ(asked().back(),
              "GET /slurmdb/v0.0.42/jobs?skip_steps=true&job_name=a-1&users=demo&"
              "start_time=1795000000");
}

TEST_F(SlurmRestTest, SpeaksToAUnixSocket) {
    const std::string path = folder_.path() / "socket";
    const FakeRestd server{restd(always(http(200, R"({"jobs":[]})"))), path};
    url_ = "unix:" + path;
    EXPECT_TRUE(run(rest().jobs()));
    EXPECT_TRUE(run(rest().ping()));
    EXPECT_EQ(server.requests().back().header("Host"), "localhost");
}

TEST_F(SlurmRestTest, StopEndsWhatIsInFlight) {
    serve(restd(silent));
    const std::string path = folder_.path() / "batch.sh";
    std::ofstream{path} << kScript;
    std::optional<SubmitReply> reply;
    std::optional<Result<JobTable>> jobs;
    start(rest().submit(path), reply);
    start(rest().jobs(), jobs);
    while (asked().size() < 2) {
        io_.run_one_for(20ms);
    }
    rest().stop();
    io_.run();
    ASSERT_TRUE(reply && jobs);
    EXPECT_EQ(reply->kind, Kind::ambiguous);
    EXPECT_EQ((*jobs).error().code, Errc::cancelled);
    EXPECT_EQ(run(rest().ping()).error().code, Errc::cancelled);
    EXPECT_EQ(submit().kind, Kind::not_submitted);
}

TEST(RestAddress, IsHttpHttpsOrAUnixSocket) {
    const auto tcp = parse_rest_address("http://slurm.example.org:6820");
    ASSERT_TRUE(tcp);
    EXPECT_EQ(tcp->text(), "http://slurm.example.org:6820");
    EXPECT_EQ(parse_rest_address("http://[::1]:6820")->text(), "http://[::1]:6820");
    EXPECT_EQ(parse_rest_address("unix:/run/slurmrestd.socket")->unix_path,
              "/run/slurmrestd.socket");
    EXPECT_EQ(parse_rest_address("https://slurm.example.org:6821")->text(),
              "https://slurm.example.org:6821");
    for (const char* bad : {"", "https://a", "http://a", "http://a/", "http://[::1]", "unix:socket",
                            "unix:", "ftp://a:1", "http://:6820", "http://a:0"}) {
        EXPECT_FALSE(parse_rest_address(bad)) << bad;
    }
    EXPECT_FALSE(parse_rest_address("unix:/" + std::string(200, 'a')));
}

}  // namespace
}  // namespace lockstep
