// Which files of an attempt lockstep-exec opens: all that lockstepd reads there.
#include "job/model/evidence.hpp"
#include "job/model/profile.hpp"
#include "job/model/wire/wire.hpp"
#include "scheduler-integration/exec/order.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace lockstep {
namespace {

const char* why_not_opened(const std::string& file) {
    auto order = std::make_unique<exec::Order>();
    order->verb = static_cast<std::uint32_t>(exec::Verb::open_log);
    order->attempt = 1;
    std::strncpy(order->job, "ls-01ARZ3NDEKTSV4RRFFQ69G5FAV", sizeof order->job - 1);
    std::strncpy(order->file, file.c_str(), sizeof order->file - 1);
    std::strncpy(order->credential, "MUNGE:AwQFAAB:", sizeof order->credential - 1);
    std::strncpy(order->statement, "signed\n", sizeof order->statement - 1);
    return exec::check_order(*order);
}

template <class Folders>
std::string below(const Folders& folders, std::string_view name) {
    std::string out;
    for (const std::string& folder : folders) {
        out += folder + "/";
    }
    return out + std::string{name};
}

// lockstep profile said that it was done, and its files could not be fetched.
TEST(ExecOrder, FilesOfProfilesAreOpened) {
    for (const std::string_view name : kProfileNames) {
        const std::string file = below(profile_folders(2, 1, 3), profile_name(2, name));
        EXPECT_STREQ(why_not_opened(file), nullptr) << file;
    }
    EXPECT_STREQ(why_not_opened(below(profile_folders(2, 1, 3), kProfileCollectives)), nullptr);
    EXPECT_STRNE(why_not_opened("profile"), nullptr);
    EXPECT_STRNE(why_not_opened("profile/"), nullptr);
    EXPECT_STRNE(why_not_opened("profile/../agent.json"), nullptr);
    EXPECT_STRNE(why_not_opened("profile/gen-1/.hidden"), nullptr);
}

TEST(ExecOrder, LogsResultsAndEvidenceAreOpened) {
    for (const std::string& file :
         {wire::rank_log_name(1), wire::result_file_name(1), wire::gave_up_file_name(1),
          std::string{"batch.log"}, below(evidence_folders(2, 3), "stacks.txt")}) {
        EXPECT_STREQ(why_not_opened(file), nullptr) << file;
    }
    EXPECT_STRNE(why_not_opened(std::string{wire::kAttemptFileName}), nullptr);
}

}  // namespace
}  // namespace lockstep
