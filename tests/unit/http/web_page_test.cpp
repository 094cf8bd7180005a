#include "daemon/http/routes/web_page.hpp"

#include "daemon/http/base/content_coding.hpp"
#include "daemon/http/base/request_head.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <array>
#include <fstream>

namespace lockstep {
namespace {

std::string header_of(const HttpResponse& response, std::string_view name) {
    for (const auto& [key, value] : response.headers) {
        if (key == name) {
            return value;
        }
    }
    return "";
}

HttpRequest asking(const std::string& headers = "") {
    HttpRequest request;
    const std::string head = "GET / HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n";
    EXPECT_FALSE(parse_head(head, request.head));
    return request;
}

class WebPageTest : public testing::Test {
  protected:
    const std::string script_ = gzip_bytes("let x = 1;\n").value();
    const std::array<BuiltInFile, 3> files_{{{"index.html", "<!doctype html>", false},
                                             {"assets/app-1f.js", script_, true},
                                             {"assets/icon-2e.svg", "<svg/>", false}}};
    const WebPage page_{files_};
};

TEST_F(WebPageTest, ThePageIsAskedForAgainAndItsAssetsNever) {
    const HttpResponse index = page_.answer(asking(), "index.html");
    EXPECT_EQ(index.status, 200);
    EXPECT_EQ(index.text(), "<!doctype html>");
    EXPECT_EQ(index.cache_control, "no-cache");
    EXPECT_TRUE(index.content_type.starts_with("text/html"));
    EXPECT_NE(index.security_policy.find("script-src 'self'"), std::string_view::npos);
    EXPECT_NE(index.security_policy.find("require-trusted-types-for 'script'"),
              std::string_view::npos);
    EXPECT_EQ(index.security_policy.find("unsafe"), std::string_view::npos);
    EXPECT_EQ(header_of(index, "Referrer-Policy"), "no-referrer");
    EXPECT_EQ(header_of(index, "Cross-Origin-Opener-Policy"), "same-origin");
    const HttpResponse icon = page_.answer(asking(), "assets/icon-2e.svg");
    EXPECT_NE(icon.cache_control.find("immutable"), std::string_view::npos);
    EXPECT_EQ(icon.content_type, "image/svg+xml");
    // An SVG that is opened by itself may run nothing.
    EXPECT_EQ(icon.security_policy, kApiPolicy);
}

TEST_F(WebPageTest, GzipGoesOutAsItWasBuiltInOrUnpacked) {
    const HttpResponse packed =
        page_.answer(asking("Accept-Encoding: gzip, br\r\n"), "assets/app-1f.js");
    EXPECT_EQ(packed.text(), script_);
    EXPECT_EQ(header_of(packed, "Content-Encoding"), "gzip");
    EXPECT_EQ(header_of(packed, "Vary"), "Accept-Encoding");
    const HttpResponse plain = page_.answer(asking(), "assets/app-1f.js");
    EXPECT_EQ(plain.text(), "let x = 1;\n");
    EXPECT_EQ(header_of(plain, "Content-Encoding"), "");
    EXPECT_NE(header_of(plain, "ETag"), header_of(packed, "ETag"));
}

TEST_F(WebPageTest, WhatTheBrowserHasIsNotSentAgain) {
    const std::string tag = header_of(page_.answer(asking(), "index.html"), "ETag");
    const HttpResponse same = page_.answer(asking("If-None-Match: " + tag + "\r\n"), "index.html");
    EXPECT_EQ(same.status, 304);
    EXPECT_EQ(same.text(), "");
    EXPECT_EQ(header_of(same, "ETag"), tag);
    EXPECT_EQ(page_.answer(asking("If-None-Match: \"old\"\r\n"), "index.html").status, 200);
}

TEST_F(WebPageTest, WithoutAPageTheRootSaysSo) {
    const WebPage none;
    const HttpResponse response = none.answer(asking(), "index.html");
    EXPECT_EQ(response.status, 200);
    EXPECT_NE(response.text().find("without its web page"), std::string_view::npos);
    EXPECT_EQ(none.answer(asking(), "assets/app-1f.js").status, 404);
    EXPECT_EQ(page_.answer(asking(), "assets/other.js").status, 404);
}

TEST_F(WebPageTest, AFolderIsReadAsItIsAndNothingBesideIt) {
    const test::TemporaryFolder folder;
    std::filesystem::create_directories(folder / "web/assets/deep");
    std::ofstream{folder / "web/index.html"} << "first";
    std::ofstream{folder / "web/assets/a.css"} << "a{}";
    std::ofstream{folder / "web/assets/deep/a.css"} << "a{}";
    std::ofstream{folder / "web/assets/.hidden"} << "h";
    std::ofstream{folder / "secret"} << "s";
    std::filesystem::create_symlink(folder / "secret", folder / "web/assets/link.txt");
    const auto web = folder / "web";
    EXPECT_EQ(WebPage::read(web, "index.html").text(), "first");
    std::ofstream{folder / "web/index.html"} << "second";
    EXPECT_EQ(WebPage::read(web, "index.html").text(), "second");
    EXPECT_EQ(WebPage::read(web, "index.html").cache_control, "no-store");
    EXPECT_EQ(WebPage::read(web, "assets/a.css").content_type, "text/css; charset=utf-8");
    for (const char* name : {"assets/../index.html", "assets/..", "assets/.hidden", "../secret",
                             "assets/deep/a.css", "assets/", "assets/none.js"}) {
        EXPECT_EQ(WebPage::read(web, name).status, 404) << name;
    }
    const HttpResponse link = WebPage::read(web, "assets/link.txt");
    EXPECT_GE(link.status, 400);
    EXPECT_EQ(link.text().find("s\n"), std::string_view::npos);
}

}  // namespace
}  // namespace lockstep
