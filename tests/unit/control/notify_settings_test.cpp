// What of `notify` is taken and refused, who sees it, and that what is to be told is stored with
// the events.
#include "daemon/control/base/notify_settings.hpp"

#include "daemon/store/notice_records.hpp"
#include "tests/unit/control/control_fixture.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(NotifySettings, AreReadFromTheSettings) {
    EXPECT_TRUE(plan_notify("any", "none")->webhooks);
    EXPECT_TRUE(plan_notify("any", "none")->hosts.empty());
    EXPECT_EQ(plan_notify("any", "none")->sendmail, "");
    EXPECT_FALSE(plan_notify("none", "none")->webhooks);
    EXPECT_EQ(plan_notify("A.example.org, *.B.org,::1", "none")->hosts,
              (std::vector<std::string>{"a.example.org", "*.b.org", "::1"}));
    EXPECT_EQ(plan_notify("any", "/bin/sh")->sendmail, "/bin/sh");
    for (const char* bad : {"", "a,,b", "https://a", "a:80", "*", "*.", "a b", "a/b", "[::1]"}) {
        EXPECT_FALSE(plan_notify(bad, "none").has_value()) << bad;
    }
    for (const char* bad : {"sendmail", "/no/such/program", "/etc/passwd"}) {
        EXPECT_FALSE(plan_notify("any", bad).has_value()) << bad;
    }
}

TEST(NotifySettings, AListedHostIsThatAndNothingAround) {
    const auto settings = plan_notify("hooks.example.org,*.b.org", "none");
    const auto why = [&](const std::string& host) {
        return why_not_notified(*parse_notify_target("webhook:https://" + host + "/"), "ada",
                                *settings);
    };
    EXPECT_EQ(why("hooks.example.org"), "");
    EXPECT_EQ(why("Hooks.Example.org"), "");
    EXPECT_EQ(why("a.b.org"), "");
    EXPECT_EQ(why("x.a.b.org"), "");
    for (const char* other : {"b.org", "xb.org", "example.org", "x.hooks.example.org",
                              "hooks.example.org.evil.net", "127.0.0.1"}) {
        EXPECT_NE(why(other), "") << other;
    }
}

TEST(NotifySettings, KnowTheAddressesOfThisMachine) {
    for (const char* own : {"127.0.0.1",
                            "127.8.9.1",
                            "0.0.0.0",
                            "0.1.2.3",
                            "169.254.169.254",
                            "224.0.0.1",
                            "255.255.255.255",
                            "::1",
                            "::",
                            "fe80::1",
                            "ff02::1",
                            "::ffff:127.0.0.1",
                            "::ffff:169.254.169.254",
                            "::127.0.0.1",
                            "64:ff9b::7f00:1",
                            "fd00:ec2::254",
                            "fd20:ce::254",
                            "168.63.129.16",
                            "100.100.100.200",
                            "192.0.0.192"}) {
        EXPECT_TRUE(is_own_address(net::ip::make_address(own))) << own;
    }
    for (const char* other : {"192.0.2.1", "10.0.0.1", "8.8.8.8", "2001:db8::1", "fd00::1",
                              "::ffff:192.0.2.1", "64:ff9b::808:808"}) {
        EXPECT_FALSE(is_own_address(net::ip::make_address(other))) << other;
    }
}

TEST(NotifySettings, WhatCannotBeSentIsRefusedByItsPlace) {
    JobSpec spec;
    spec.notify = {"webhook:https://example.org/", "mail", "mail:a@b", "webhook:http://127.0.0.1/"};
    const auto pointers = [&](const NotifySettings& settings, const std::string& user) {
        std::string out;
        const Status checked = check_notify(spec, user, settings);
        for (const FieldError& field :
             checked ? std::vector<FieldError>{} : checked.error().fields) {
            out += (out.empty() ? "" : " ") + field.pointer;
        }
        return out;
    };
    NotifySettings settings;
    EXPECT_EQ(pointers(settings, "ada"), "/notify/1 /notify/2 /notify/3") << "no sendmail";
    settings.sendmail = "/bin/true";
    EXPECT_EQ(pointers(settings, "ada"), "/notify/3");
    EXPECT_EQ(pointers(settings, "ada lovelace"), "/notify/1 /notify/3");
    settings.hosts = {"127.0.0.1"};
    EXPECT_EQ(pointers(settings, "ada"), "/notify/0");
    settings.webhooks = false;
    EXPECT_EQ(pointers(settings, "ada"), "/notify/0 /notify/3");
}

// The whole way: from a submission to what is in the store with the events.
class NotifyControlTest : public ControlTest {
  protected:
    SubmitResult<Submitted> submit_with(const Json& targets) {
        Json json = *parse_json(R"({"name":"t","framework":"command","command":["x"]})");
        json["notify"] = targets;
        SubmitRequest request;
        request.spec = parse_spec(json).value();
        SubmitResult<Submitted> out = fail(Errc::internal, "not run");
        auto run = [&]() -> Task<void> {
            SubmitRequest copy = request;
            Caller caller = ada_;
            out = co_await control_->submit(std::move(caller), std::move(copy));
        };
        wait(run());
        return out;
    }
    std::string spec_for(const Caller& who, const std::string& id) {
        std::string out;
        auto run = [&]() -> Task<void> {
            Caller caller = who;
            const auto shown = co_await control_->spec(std::move(caller), id);
            out = shown ? *shown : shown.error().message;
        };
        wait(run());
        return out;
    }
    std::string events_of(const std::string& id) {
        std::string out;
        auto run = [&]() -> Task<void> {
            EventsQuery query = first_events(100);
            Caller caller = ada_;
            const auto shown = co_await control_->events(std::move(caller), id, query);
            out = shown ? *shown : shown.error().message;
        };
        wait(run());
        return out;
    }
};

TEST_F(NotifyControlTest, WhatCannotBeSentIsRefusedWhenItIsSubmitted) {
    const auto refused = submit_with(Json::array({"webhook:https://example.org/", "mail"}));
    ASSERT_FALSE(refused.has_value());
    ASSERT_EQ(refused.error().fields.size(), 1U);
    EXPECT_EQ(refused.error().fields[0].pointer, "/notify/1");
    EXPECT_THAT(refused.error().fields[0].message, HasSubstr("--sendmail"));
}

TEST_F(NotifyControlTest, OnlyTheOwnerSeesTheWholeTarget) {
    const auto job = submit_with(Json::array({"webhook:https://example.org/SECRET"}));
    ASSERT_TRUE(job.has_value());
    EXPECT_THAT(spec_for(ada_, job->id), HasSubstr("https://example.org/SECRET"));
    const Caller admin{"root", true, true};
    const std::string shown = spec_for(admin, job->id);
    EXPECT_THAT(shown, HasSubstr("https://example.org/***"));
    EXPECT_EQ(shown.find("SECRET"), std::string::npos);
    EXPECT_EQ(events_of(job->id).find("SECRET"), std::string::npos);
    EXPECT_EQ(dump_json(show(job->id)).find("SECRET"), std::string::npos);
}

TEST_F(NotifyControlTest, AnEndIsStoredWithItsNotices) {
    // Nobody answers there: RFC 5737 keeps these addresses for documents.
    const auto job = submit_with(Json::array({"webhook:http://192.0.2.1:9/SECRET"}));
    ASSERT_TRUE(job.has_value());
    until([&] { return scheduler_.submissions > 0; }, "the attempt reaches the scheduler");
    TestAgent agent = hello(0);
    until([&] { return agent.peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
    EXPECT_FALSE(agent.peer->last<wire::Welcome>()->spec.contains("notify"))
        << "the nodes need not know it";
    auto cancel = [&]() -> Task<void> {
        Caller caller = ada_;
        const auto done = co_await control_->commands().cancel(std::move(caller), job->id);
        EXPECT_TRUE(done.has_value());
    };
    wait(cancel());
    clock_.advance(limits::kStopGrace + std::chrono::seconds{6});  // the agent does not obey
    until([&] { return state(job->id) == "cancelled"; }, "cancelled");
    NoticeQueue found;
    auto look = [&]() -> Task<void> {
        NoticeQuery query;
        query.now = clock_.wall();
        query.latest = query.now + 1'000'000'000;
        query.of_lane = 10;
        query.most = 10;
        const std::function<Result<NoticeQueue>(Database&)> read = [query](Database& db) {
            return NoticeRecords{db}.queue(query);
        };
        found = (co_await store_->read<NoticeQueue>(read)).value();
    };
    wait(look());
    EXPECT_EQ(found.waiting["ada"], 1U);
}

}  // namespace
}  // namespace lockstep
