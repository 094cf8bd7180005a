// What must survive a power cut is on disk before it is believed: the claim of a node (no rank may
// be started twice) and what is written with write_file_atomic(): results, tickets, tokens.
#include "job/agent/claim.hpp"
#include "job/base/files.hpp"
#include "tests/support/sync_watch.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

TEST(Syncs, AFileIsWholeBeforeItHasItsNameAndTheNameIsKept) {
    const TemporaryFolder folder;
    const std::string here = std::filesystem::canonical(folder.path()).string();
    sync_log().clear();
    ASSERT_TRUE(write_file_atomic(folder / "result", "text"));
    EXPECT_THAT(sync_log(), ElementsAre(StartsWith("sync " + here + "/"),
                                        "rename " + (folder / "result").string(), "sync " + here));
    EXPECT_NE(sync_log()[0], "sync " + here + "/result") << "the file has its name too early";
}

TEST(Syncs, WhatNeedNotSurviveIsNotWaitedFor) {
    const TemporaryFolder folder;
    sync_log().clear();
    ASSERT_TRUE(replace_file(folder / "script", "text", 0700));
    EXPECT_THAT(sync_log(), ElementsAre("rename " + (folder / "script").string()));
}

TEST(Syncs, AClaimIsOnDiskBeforeItIsHeld) {
    const TemporaryFolder folder;
    const std::string here = std::filesystem::canonical(folder.path()).string();
    wire::ClaimFile content;
    content.incarnation = "one";
    content.node = "n0";
    sync_log().clear();
    const auto claim = Claim::take(folder.path(), 0, content);
    ASSERT_TRUE(claim.has_value());
    const std::string name = wire::claim_file_name(0);
    EXPECT_THAT(sync_log(), ElementsAre("sync " + here + "/" + name + ".one",
                                        "link " + (folder / name).string(), "sync " + here));
}

}  // namespace
}  // namespace lockstep::test
