// Who may follow what a job's ranks report.
#include "daemon/control/base/event_bus.hpp"
#include "tests/unit/control/control_fixture.hpp"

#include <algorithm>

namespace lockstep {
namespace {

class StreamHubTest : public ControlTest {
  protected:
    // What a caller holds while following; it points to nothing, so its count says whether it is.
    bool follows(const Caller& caller, const std::string& topic) {
        return control_->stream().follow(caller, topic).use_count() > 0;
    }
    TestAgent first_, second_;
};

TEST_F(StreamHubTest, AJobsRanksAndStepsAreFollowedByWhoSeesTheJobOnly) {
    const std::string id = start_job_with(first_, second_);
    const Caller viewer{"vic", false, false, true};
    const Caller admin{"root", true, true, false};
    const Caller other{"eve", false, true, false};
    const Caller nobody{"", false, false, false};
    for (const std::string& topic : {"ranks." + id, "steps." + id + ".loss"}) {
        EXPECT_TRUE(follows(ada_, topic)) << topic;
        EXPECT_TRUE(follows(viewer, topic)) << topic;
        EXPECT_TRUE(follows(admin, topic)) << topic;
        EXPECT_FALSE(follows(other, topic)) << topic;
        EXPECT_FALSE(follows(nobody, topic)) << topic;
    }
    EXPECT_FALSE(follows(admin, "ranks.ls-01ARZ3NDEKTSV4RRFFQ69G5FAV"));
}

TEST_F(StreamHubTest, ASubmissionThatAnOlderVersionStoredShowsNoSecretOfASweep) {
    Event event;
    event.job = JobId{"ls-01J00000000000000000000000"};
    event::Submitted submitted;
    submitted.spec = *parse_json(R"({"environment":{"KEY":"t0psecret"}})");
    submitted.sweep = event.job.value;
    submitted.sweep_parameters = *parse_json(R"({"environment.KEY":"t0psecret","labels.a":"b"})");
    event.data = std::move(submitted);
    const std::string text = public_text(event);
    EXPECT_EQ(text.find("t0psecret"), std::string::npos) << text;
    EXPECT_NE(text.find(R"("labels.a":"b")"), std::string::npos) << text;
}

// A stranger would cost what only followers cost, of any job.
TEST_F(StreamHubTest, NothingIsMadeForAStranger) {
    const std::string id = start_job_with(first_, second_);
    std::vector<std::string> heard;
    const auto stream = control_->stream().subscribe(
        [&](const StreamMessage& message) { heard.push_back(message.topic); });
    const auto report = [&](std::uint64_t seq) {
        clock_.advance(std::chrono::seconds{1});
        first_.session->on_binary(batch(seq, 0, static_cast<std::int64_t>(seq)));
        until(
            [&] {
                const auto* ack = first_.peer->last<wire::Ack>();
                return ack != nullptr && ack->batch >= seq;
            },
            "acknowledged");
    };
    const auto ranks = [&] { return std::count(heard.begin(), heard.end(), "ranks." + id); };
    const auto strange =
        control_->stream().follow(Caller{"eve", false, true, false}, "ranks." + id);
    report(1);
    EXPECT_EQ(ranks(), 0);
    const auto own = control_->stream().follow(ada_, "ranks." + id);
    report(2);
    until([&] { return ranks() > 0; }, "the owner's snapshot");
}

}  // namespace
}  // namespace lockstep
