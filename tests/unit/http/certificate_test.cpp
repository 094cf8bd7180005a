// The certificate that lockstepd makes for itself or is given: kept, private, a pair or refused.
#include "daemon/http/auth/certificate.hpp"

#include "job/base/files.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <memory>

namespace lockstep {
namespace {

using test::TemporaryFolder;
using testing::HasSubstr;

constexpr UnixMillis kNow = 1'800'000'000'000;
constexpr UnixMillis kYear = 365LL * 86'400'000;
const std::vector<std::string> kNames{"localhost", "127.0.0.1", "fd00::7", "node-1.example"};

unsigned mode_of(const std::filesystem::path& path) {
    struct stat info{};
    return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 07777U : 0U;
}

TEST(Certificate, TheFirstStartMakesAPrivatePairAndTheSecondKeepsIt) {
    const TemporaryFolder folder;
    const auto first = keep_certificate(folder / "tls", kNames, kNow);
    ASSERT_TRUE(first) << first.error().text();
    EXPECT_EQ(mode_of(folder / "tls"), 0700U);
    EXPECT_EQ(mode_of(folder.path() / "tls/key.pem"), 0600U);
    EXPECT_EQ(mode_of(folder.path() / "tls/certificate.pem"), 0600U);
    EXPECT_TRUE(first->fingerprint.starts_with("sha256:"));
    EXPECT_EQ(first->fingerprint.size(), 7U + 64U);
    EXPECT_GT(first->not_after, kNow + 9 * kYear);
    const auto second = keep_certificate(folder / "tls", {"other"}, kNow + 20 * kYear);
    ASSERT_TRUE(second) << second.error().text();
    EXPECT_EQ(second->fingerprint, first->fingerprint);
    EXPECT_LT(second->not_after, kNow + 20 * kYear);  // who starts us says that it has expired
}

TEST(Certificate, NamesEveryAddressAndHost) {
    const auto made = make_certificate(kNames, kNow, kNow + kYear);
    ASSERT_TRUE(made);
    const std::unique_ptr<BIO, decltype(&BIO_free_all)> in{
        BIO_new_mem_buf(made->certificate.data(), static_cast<int>(made->certificate.size())),
        BIO_free_all};
    const std::unique_ptr<X509, decltype(&X509_free)> leaf{
        PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr), X509_free};
    ASSERT_TRUE(leaf);
    EXPECT_EQ(X509_check_host(leaf.get(), "node-1.example", 0, 0, nullptr), 1);
    EXPECT_EQ(X509_check_ip_asc(leaf.get(), "127.0.0.1", 0), 1);
    EXPECT_EQ(X509_check_ip_asc(leaf.get(), "fd00::7", 0), 1);
    EXPECT_NE(X509_check_host(leaf.get(), "example", 0, 0, nullptr), 1);
    EXPECT_NE(X509_check_ip_asc(leaf.get(), "127.0.0.2", 0), 1);
    EXPECT_EQ(made->not_after, kNow + kYear);
}

TEST(Certificate, AStartThatDiedBetweenTheFilesIsMadeUpFor) {
    const TemporaryFolder folder;
    ASSERT_TRUE(keep_certificate(folder / "tls", kNames, kNow));
    std::filesystem::remove(folder.path() / "tls/certificate.pem");
    const auto again = keep_certificate(folder / "tls", kNames, kNow);
    ASSERT_TRUE(again) << again.error().text();
    EXPECT_TRUE(
        read_certificate(folder.path() / "tls/certificate.pem", folder.path() / "tls/key.pem"));
}

TEST(Certificate, WhatIsThereButBrokenIsNotReplaced) {
    const TemporaryFolder folder;
    ASSERT_TRUE(keep_certificate(folder / "tls", kNames, kNow));
    ASSERT_TRUE(write_file_atomic(folder.path() / "tls/certificate.pem", "rubbish", 0600));
    const auto again = keep_certificate(folder / "tls", kNames, kNow);
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().code, Errc::corrupt);
    EXPECT_EQ(test::text_of(folder.path() / "tls/certificate.pem"), "rubbish");
}

TEST(Certificate, AConfiguredOneIsAReadablePairOrRefusedByFile) {
    const TemporaryFolder folder;
    const auto one = make_certificate(kNames, kNow, kNow + kYear);
    const auto other = make_certificate(kNames, kNow, kNow + kYear);
    ASSERT_TRUE(one && other);
    EXPECT_NE(one->fingerprint, other->fingerprint);
    ASSERT_TRUE(write_file_atomic(folder / "c", one->certificate));
    ASSERT_TRUE(write_file_atomic(folder / "k", one->key));
    ASSERT_TRUE(write_file_atomic(folder / "other", other->key));
    const auto good = read_certificate(folder / "c", folder / "k");
    ASSERT_TRUE(good) << good.error().text();
    EXPECT_EQ(good->fingerprint, one->fingerprint);
    const auto refused = [&](const char* certificate, const char* key) {
        const auto read = read_certificate(folder / certificate, folder / key);
        EXPECT_FALSE(read);
        EXPECT_TRUE(read || read.error().code == Errc::invalid);
        return read ? "accepted" : read.error().message;
    };
    EXPECT_THAT(refused("c", "other"), HasSubstr("the key is not the certificate's"));
    EXPECT_THAT(refused("none", "k"), HasSubstr((folder / "none").string()));
    EXPECT_THAT(refused("c", "none"), HasSubstr((folder / "none").string()));
    EXPECT_THAT(refused("k", "k"), HasSubstr("the certificate is not good"));
    EXPECT_THAT(refused("c", "c"), HasSubstr("the key is not good"));
}

}  // namespace
}  // namespace lockstep
