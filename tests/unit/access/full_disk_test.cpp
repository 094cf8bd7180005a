// Commands while the disk is full: what the API answers, and that nothing half is accepted.
#include "tests/unit/access/access_fixture.hpp"

namespace lockstep {
namespace {

class FullDiskTest : public AccessTest {
  protected:
    // Larger than what the pages that are there have left.
    static std::string large_spec() {
        return R"({"name":"large","framework":"command","command":["x"],"environment":{"A":")" +
               std::string(16'000, 'x') + "\"}}";
    }
    std::size_t jobs_of(const std::string& secret) {
        return json(call(secret, "GET /v1/jobs?limit=1000"))["items"].size();
    }
};

TEST_F(FullDiskTest, ASubmissionIsRefusedAsAWholeAndMayComeAgainWithItsKey) {
    limit_store(1);
    const std::string key = "Idempotency-Key: nightly\r\n";
    const auto refused = call(uma_, "POST /v1/jobs", large_spec(), key);
    EXPECT_EQ(refused.status, 507) << refused.text();
    EXPECT_EQ(jobs_of(uma_), 0U);
    EXPECT_EQ(call(uma_, "POST /v1/jobs", large_spec(), key).status, 507) << "and not in flight";
    limit_store(1'000'000);
    const auto taken = call(uma_, "POST /v1/jobs", large_spec(), key);
    EXPECT_EQ(taken.status, 201) << taken.text();
    EXPECT_EQ(jobs_of(uma_), 1U);
    restart_daemon();
    EXPECT_EQ(jobs_of(uma_), 1U) << "nothing of those that were refused";
}

// The job waits for room to store what an agent has said; the command does not wait with it.
TEST_F(FullDiskTest, ACancelIsRefusedAndTheJobGoesOnAsIfNobodyHadAsked) {
    TestAgent first, second;
    const std::string id = start_job_with(first, second);
    const std::string owner = secret_of(root_, R"({"name":"o","user":"ada"})");
    const Seq before = fill_store();
    wire::Exited ended = exit(1, 0, 7);
    ended.log_tail = std::string(limits::kTextBytes, 'x');
    first.say(ended);
    until([&] { return store_->last_seq() >= before + 1; }, "a try");
    const std::string job = "/v1/jobs/" + id;
    const auto refused = call(owner, "POST " + job + "/cancel");
    EXPECT_EQ(refused.status, 507) << refused.text();
    const auto had = first.peer->count<wire::Ack>();
    limit_store(1'000'000);
    until([&] { return first.peer->count<wire::Ack>() > had; }, "what was said is heard");
    EXPECT_EQ(call(owner, "GET " + job + "/events?limit=1000").text().find("cancel"),
              std::string::npos);
    const auto taken = call(owner, "POST " + job + "/cancel");
    EXPECT_EQ(taken.status, 200) << taken.text();
    EXPECT_NE(call(owner, "GET " + job + "/events?limit=1000").text().find("cancel"),
              std::string::npos);
}

}  // namespace
}  // namespace lockstep
