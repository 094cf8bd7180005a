// What a signature is good for as it ages: to submit for max-days, to say where lockstepd is for as
// long as its job may be there. munge dates a credential, so these are dated back here.
#include "scheduler-integration/exec/exec_limits.hpp"
#include "scheduler-integration/exec/signature.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

namespace lockstep::exec {
namespace {

constexpr std::int64_t kDay = 86'400;
constexpr std::int64_t kMade = 20'000 * kDay + 3600;

class ExecSignature : public testing::Test {
  protected:
    void SetUp() override {
        std::string folder = "/tmp/lockstep-exec-state-XXXXXX";
        if (::geteuid() != 0 || ::mkdtemp(folder.data()) == nullptr) {
            GTEST_SKIP() << "the folder of the counts is root's";
        }
        config_.state = folder;
        signature_.made_at = kMade;
        signature_.hash = std::string(64, 'a');
        name(*order_, "ls-01ARZ3NDEKTSV4RRFFQ69G5FAV");
        name(*other_job_, "ls-01ARZ3NDEKTSV4RRFFQ69G5FAW");
    }
    void TearDown() override {
        if (!config_.state.empty()) {
            std::filesystem::remove_all(config_.state);
        }
    }
    static void name(Order& order, const char* job) {
        std::strncpy(order.job, job, sizeof order.job - 1);
    }
    // As the helper that runs sbatch; "" or why not.
    std::string use(const Signature& signature, std::int64_t now) {
        int count = -1;
        std::string problem = count_use(config_, *order_, signature, now, count);
        if (count >= 0) {
            ::close(count);
        }
        return problem;
    }

    Config config_;
    Signature signature_;
    std::unique_ptr<Order> order_ = std::make_unique<Order>();  // too large for the stack
    std::unique_ptr<Order> other_job_ = std::make_unique<Order>();
};

TEST_F(ExecSignature, SubmitsForSoManyDays) {
    EXPECT_EQ(check_age(config_, kMade, kMade + 30 * kDay), "");
    EXPECT_EQ(check_age(config_, kMade, kMade + 30 * kDay + 1),
              "the signature is older than 30 days");
    EXPECT_EQ(check_age(config_, kMade, kMade - 200), "") << "clocks differ";
    EXPECT_EQ(check_age(config_, kMade, kMade - 400), "the signature is of the future");
    EXPECT_EQ(use(signature_, kMade + 31 * kDay), "the signature is older than 30 days");
    EXPECT_EQ(use(signature_, kMade + 30 * kDay), "");
}

// Any of the user's signatures wrote a file into any attempt, one that was never submitted as well.
TEST_F(ExecSignature, IsOfTheJobThatWasSubmittedWithIt) {
    EXPECT_EQ(find_use(config_, *order_, signature_), "no job was submitted with the signature");
    EXPECT_EQ(use(signature_, kMade), "");
    EXPECT_EQ(find_use(config_, *order_, signature_), "");
    EXPECT_EQ(find_use(config_, *other_job_, signature_), "the signature is another job's");
    order_->point = 1;
    EXPECT_EQ(find_use(config_, *order_, signature_), "no job was submitted with the signature")
        << "another one of the sweep";
}

TEST_F(ExecSignature, IsNoneOfAJobThatSlurmHasNotTaken) {
    int count = -1;
    EXPECT_EQ(count_use(config_, *order_, signature_, kMade, count), "");
    take_back(count, order_->job);
    ::close(count);
    EXPECT_EQ(find_use(config_, *order_, signature_), "no job was submitted with the signature");
}

TEST_F(ExecSignature, IsKnownForAsLongAsItsJobMayBeThere) {
    EXPECT_EQ(use(signature_, kMade), "");
    Signature later = signature_;
    later.hash = std::string(64, 'b');
    const std::int64_t last = config_.max_days + limits::kExecCountsKept;
    for (const std::int64_t days : {std::int64_t{40}, last}) {
        later.made_at = kMade + days * kDay;
        EXPECT_EQ(use(later, later.made_at), "");
        EXPECT_EQ(find_use(config_, *order_, signature_), "") << days;
    }
    later.made_at += kDay;
    EXPECT_EQ(use(later, later.made_at), "");
    EXPECT_EQ(find_use(config_, *order_, signature_), "no job was submitted with the signature");
}

}  // namespace
}  // namespace lockstep::exec
