// The targets of `notify`: what is taken, what is refused, and what others than the owner see.
#include "job/model/spec/notify.hpp"

#include "job/base/limits.hpp"
#include "job/model/spec/spec.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep {
namespace {

Result<JobSpec> spec_with(const Json& targets) {
    Json json = *parse_json(R"({"name":"t","framework":"command","command":["x"]})");
    json["notify"] = targets;
    return parse_spec(json);
}

TEST(Notify, ReadsWebhooks) {
    const auto plain = parse_notify_target("webhook:http://Hooks.Example.org");
    ASSERT_TRUE(plain.has_value());
    EXPECT_EQ(plain->kind, NotifyKind::webhook);
    EXPECT_FALSE(plain->tls);
    EXPECT_EQ(plain->host, "hooks.example.org");
    EXPECT_EQ(plain->port, "80");
    EXPECT_EQ(plain->path, "/");
    const auto whole = parse_notify_target("webhook:https://[2001:DB8::1]:8443/a/b?c=d");
    ASSERT_TRUE(whole.has_value());
    EXPECT_TRUE(whole->tls);
    EXPECT_EQ(whole->host, "2001:db8::1");
    EXPECT_EQ(whole->port, "8443");
    EXPECT_EQ(whole->path, "/a/b?c=d");
    const auto query = parse_notify_target("webhook:https://h?c=d");
    ASSERT_TRUE(query.has_value());
    EXPECT_EQ(query->port, "443");
    EXPECT_EQ(query->path, "/?c=d");
}

TEST(Notify, ReadsMail) {
    const auto own = parse_notify_target("mail");
    ASSERT_TRUE(own.has_value());
    EXPECT_EQ(own->kind, NotifyKind::mail);
    EXPECT_EQ(own->address, "");
    EXPECT_EQ(parse_notify_target("mail:ada.l+jobs@cs.example.org")->address,
              "ada.l+jobs@cs.example.org");
    EXPECT_EQ(parse_notify_target("mail:root")->address, "root");
}

TEST(Notify, RefusesWhatIsNoTarget) {
    for (const char* bad : {"",
                            "Mail",
                            "mail ",
                            "https://host/",
                            "webhook:",
                            "webhook:host",
                            "webhook:ftp://host/",
                            "webhook:https://",
                            "webhook:https:///path",
                            "webhook:https://user:word@host/",
                            "webhook:https://host/#part",
                            "webhook:https://host/a b",
                            "webhook:https://h\xC3\xB6st/",
                            "webhook:https://host:0/",
                            "webhook:https://host:65536/",
                            "webhook:https://host:x/",
                            "webhook:https://host:/",
                            "webhook:https://[::1/",
                            "webhook:https://[::1]x/",
                            "webhook:https://[host]/",
                            "webhook:https://-host/",
                            "webhook:https://ho_st-/",
                            "webhook:https://host/\r\nX: y",
                            "slack:https://host/"}) {
        EXPECT_FALSE(parse_notify_target(bad).has_value()) << bad;
    }
}

// Nothing that sendmail, or the system behind it, takes for an option, a program, a file or a list.
TEST(Notify, RefusesMailAddressesThatAreMore) {
    for (const char* bad : {"",
                            "-f",
                            "-bs@host",
                            "|/bin/sh",
                            "/var/spool/x",
                            ":include:/etc/passwd",
                            "\"a b\"@host",
                            "a b@host",
                            "a@b@c",
                            "a@",
                            "@host",
                            "a@-host",
                            "a@host.",
                            "a@ho st",
                            "a,b@host",
                            "a@host,b",
                            "a@host\nBcc: b",
                            "a!b@host",
                            "a@[127.0.0.1]",
                            "<a@host>"}) {
        EXPECT_FALSE(is_mail_address(bad)) << bad;
        EXPECT_FALSE(parse_notify_target("mail:" + std::string{bad}).has_value()) << bad;
    }
    EXPECT_TRUE(is_mail_address(std::string(64, 'a') + "@host"));
    EXPECT_FALSE(is_mail_address(std::string(65, 'a') + "@host"));
}

TEST(Notify, OthersSeeNoPathOfAWebhook) {
    const std::vector<std::pair<std::string, std::string>> table{
        {"webhook:https://Hooks.example.org/services/T0/SECRET",
         "webhook:https://Hooks.example.org/***"},
        {"webhook:http://h:8080?key=SECRET", "webhook:http://h:8080/***"},
        {"webhook:https://[::1]:1/SECRET", "webhook:https://[::1]:1/***"},
        {"webhook:https://h/", "webhook:https://h/"},
        {"webhook:https://h", "webhook:https://h"},
        {"mail", "mail"},
        {"mail:ada@example.org", "mail:ada@example.org"},
        {"webhook:ftp://SECRET", "***"}};
    for (const auto& [text, shown] : table) {
        EXPECT_EQ(public_notify_target(text), shown);
    }
    Json spec = to_json(*spec_with(Json::array({table[0].first, "mail"})));
    mask_notify(spec);
    EXPECT_EQ(dump_json(spec["notify"]), R"(["webhook:https://Hooks.example.org/***","mail"])");
    Json without = Json::object();
    mask_notify(without);
    EXPECT_TRUE(without.empty());
    Json odd = *parse_json(R"({"notify":[1,"mail"]})");
    mask_notify(odd);
    EXPECT_EQ(dump_json(odd), R"({"notify":["***","mail"]})");
}

TEST(Notify, WhatIsShownToOthersIsNothingToSubmit) {
    const auto spec = spec_with(Json::array({"mail", "webhook:https://h/***"}));
    ASSERT_FALSE(spec.has_value());
    ASSERT_EQ(spec.error().fields.size(), 1U);
    EXPECT_EQ(spec.error().fields[0].pointer, "/notify/1");
    EXPECT_NE(spec.error().fields[0].message.find("***"), std::string::npos);
}

TEST(Notify, TheSpecificationKeepsThemAsTheyWereGiven) {
    const Json targets = *parse_json(R"(["webhook:https://H/x?y","mail","mail:a@b"])");
    const auto spec = spec_with(targets);
    ASSERT_TRUE(spec.has_value());
    EXPECT_EQ(spec->notify.size(), 3U);
    EXPECT_EQ(dump_json(to_json(*spec)["notify"]), dump_json(targets));
    EXPECT_EQ(dump_json(to_json(*parse_spec(to_json(*spec)))), dump_json(to_json(*spec)));
    EXPECT_FALSE(to_json(*spec_with(Json::array())).contains("notify"));
}

TEST(Notify, EveryMistakeIsNamedByItsPlace) {
    const auto spec = spec_with(Json::array({"mail", "mial", "mail", "mail:-f"}));
    ASSERT_FALSE(spec.has_value());
    std::vector<std::string> pointers;
    for (const FieldError& field : spec.error().fields) {
        pointers.push_back(field.pointer);
    }
    EXPECT_EQ(pointers, (std::vector<std::string>{"/notify/1", "/notify/2", "/notify/3"}));
    Json many = Json::array();
    for (std::size_t i = 0; i <= limits::kNotifyTargets; ++i) {
        many.push_back("mail:a" + std::to_string(i));
    }
    EXPECT_FALSE(spec_with(many).has_value());
    many.erase(many.size() - 1);
    EXPECT_TRUE(spec_with(many).has_value());
    const std::string url = "webhook:https://h/";
    EXPECT_TRUE(
        spec_with(Json::array({url + std::string(limits::kNotifyTargetBytes - url.size(), 'a')}))
            .has_value());
    EXPECT_FALSE(
        spec_with(Json::array({url + std::string(limits::kNotifyTargetBytes, 'a')})).has_value());
}

}  // namespace
}  // namespace lockstep
