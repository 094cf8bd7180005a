// What users sign: the specification, byte for byte, and all that Slurm is asked for.
#include "job/model/spec/signed_statement.hpp"

#include "job/base/digest.hpp"
#include "job/base/json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kNonce(kNonceBytes, '7');
const Signing kSigning{"cluster", false};

JobSpec spec_of(const std::string& fields) {
    return parse_spec(*parse_json(R"({"name":"train","framework":"command","command":["x"])" +
                                  fields + "}"))
        .value();
}

TEST(SignedStatement, FixesTheDocumentAndEveryOption) {
    const std::string document = R"({"name":"train"})";
    const auto statement = make_statement(
        kSigning, kNonce, document,
        {spec_of(R"(,"resources":{"nodes":2,"ranks_per_node":4,"time_limit":"01:00:00"})")});
    ASSERT_TRUE(statement.has_value());
    EXPECT_TRUE(statement->starts_with("lockstep-exec-1\naudience cluster\nnonce " + kNonce +
                                       "\ndocument " + sha256_hex(document) +
                                       "\njobs 0-0 4 train\n"));
    EXPECT_THAT(*statement, HasSubstr("\nsbatch nodes=2\n"));
    EXPECT_THAT(*statement, HasSubstr("\nsbatch time="));
    EXPECT_THAT(*statement, Not(HasSubstr("ls-")));
    EXPECT_EQ(signed_payload(*statement), "lockstep-exec-1 " + sha256_hex(*statement));
}

TEST(SignedStatement, JobsOfASweepThatSlurmIsAskedTheSameForAreOnePart) {
    const JobSpec one = spec_of("");
    const JobSpec two = spec_of(R"(,"resources":{"nodes":2})");
    const auto statement = make_statement(kSigning, kNonce, "{}", {one, one, two, one});
    ASSERT_TRUE(statement.has_value());
    EXPECT_THAT(*statement, HasSubstr("\njobs 0-1 1 train\n"));
    EXPECT_THAT(*statement, HasSubstr("\njobs 2-2 1 train\n"));
    EXPECT_THAT(*statement, HasSubstr("\njobs 3-3 1 train\n"));
}

TEST(SignedStatement, OneThatGrowsBeyondWhatIsTakenIsRefused) {
    std::vector<JobSpec> jobs;
    for (int nodes = 1; nodes <= 3000; ++nodes) {
        jobs.push_back(spec_of(R"(,"resources":{"nodes":)" + std::to_string(1 + nodes % 2) + "}"));
    }
    const auto statement = make_statement(kSigning, kNonce, "{}", jobs);
    ASSERT_FALSE(statement.has_value());
    EXPECT_EQ(statement.error().code, Errc::exhausted);
}

TEST(SignedStatement, AHeaderIsANonceAndACredential) {
    const auto good = read_signature(kNonce + " MUNGE:AwQF/a+b=:");
    ASSERT_TRUE(good.has_value());
    EXPECT_EQ(good->nonce, kNonce);
    EXPECT_EQ(good->credential, "MUNGE:AwQF/a+b=:");
    for (const std::string& bad :
         {std::string{}, kNonce, kNonce + " ", kNonce + " munge:a:", kNonce + " MUNGE:a",
          kNonce + " MUNGE:a b:", kNonce.substr(1) + " MUNGE:a:",
          "G" + kNonce.substr(1) + " MUNGE:a:",
          kNonce + " MUNGE:" + std::string(kCredentialBytes, 'a') + ":"}) {
        EXPECT_FALSE(read_signature(bad).has_value()) << bad.substr(0, 60);
    }
}

TEST(SignedDocument, IsTheOneThatWasSignedAndNoOther) {
    const std::string document =
        R"({"name":"train","framework":"command","command":["/bin/echo","hi"]})";
    const std::string digest = sha256_hex(document);
    const auto spec = read_signed_document(document, digest, 0);
    ASSERT_TRUE(spec.has_value());
    EXPECT_EQ(spec->command.back(), "hi");
    std::string other = document;
    other.replace(other.find("hi"), 2, "ho");
    const auto changed = read_signed_document(other, digest, 0);
    ASSERT_FALSE(changed.has_value());
    EXPECT_EQ(changed.error().code, Errc::denied);
    EXPECT_FALSE(read_signed_document(document, digest, 1).has_value());
    EXPECT_FALSE(read_signed_document("", sha256_hex(""), 0).has_value());
}

TEST(SignedDocument, OfASweepEachJobIsItsPoint) {
    const std::string document = R"({"name":"train","framework":"command","command":["x"],)"
                                 R"("sweep":{"parameters":{"environment.LR":["0.1","0.01"]}}})";
    const std::string digest = sha256_hex(document);
    const auto second = read_signed_document(document, digest, 1);
    ASSERT_TRUE(second.has_value());
    EXPECT_EQ(second->environment.at("LR"), "0.01");
    EXPECT_FALSE(read_signed_document(document, digest, 2).has_value());
}

}  // namespace
}  // namespace lockstep
