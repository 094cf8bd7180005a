// size: what goes with a job, by a command or by age, on one fixture
// Jobs that are removed, by a person or by their age, and what they take on disk.
#include "daemon/control/jobs/retention.hpp"

#include "daemon/control/actor/job_folder.hpp"
#include "daemon/control/base/age_limit.hpp"
#include "daemon/store/history_records.hpp"
#include "daemon/store/removal_records.hpp"
#include "job/base/unique_fd.hpp"
#include "tests/unit/control/retention_fixture.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// It was submitted a second time, by whoever asked once more for a lost answer.
TEST_F(RetentionTest, ARepeatedSubmissionDoesNotBringBackAJobThatWasRemoved) {
    scheduler_.seen.state = AllocationState::pending;
    const auto first = submit("", "nightly");
    ASSERT_TRUE(first);
    ended_now(first->id);
    ASSERT_TRUE(remove(first->id).has_value());
    const auto again = submit("", "nightly");
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().why, SubmitFailure::job_removed);
    EXPECT_EQ(again.error().code, Errc::conflict);
    EXPECT_NE(again.error().message.find(first->id), std::string::npos) << again.error().message;
    EXPECT_TRUE(submit("", "another"));
}

TEST_F(RetentionTest, OfARemovedJobNothingIsLeft) {
    const std::string id = ended();
    const std::string other = ended();
    std::vector<std::string> heard;
    const auto stream = control_->stream().subscribe([&](const StreamMessage& message) {
        heard.push_back(message.event + " " + message.topic);
    });
    ASSERT_TRUE(remove(id).has_value());
    EXPECT_TRUE(show(id).is_null());
    EXPECT_FALSE(listed(id));
    EXPECT_EQ(heard, std::vector<std::string>{"removed job." + id});
    until([&] { return !fs::exists(runs(id)); }, "its files go");
    until([&] { return fs::directory_iterator{folder_ / "runs"} != fs::directory_iterator{}; }, "");
    EXPECT_TRUE(fs::exists(runs(other) / "checkpoints" / "step-10"));
    EXPECT_EQ(remove(id).error().code, Errc::not_found);
    EXPECT_EQ(state(other), "cancelled");
}

// What Slurm comes to hold again, as one that was killed does, is ended by its job's end.
TEST_F(RetentionTest, TheEndOfARemovedJobIsStillKnown) {
    const std::string id = ended();
    const UnixMillis at = *run(control_->end_of(JobId{id}, 1));
    EXPECT_GT(at, 0);
    ASSERT_TRUE(remove(id).has_value());
    EXPECT_EQ(*run(control_->end_of(JobId{id}, 1)), at);
    EXPECT_EQ(run(control_->end_of(JobId{"ls-none"}, 1)).error().code, Errc::not_found);
}

TEST_F(RetentionTest, AJobOfAnEarlierRunsDirectoryIsRemovedThere) {
    const std::string id = ended_in_queue();
    shut_down();
    runs_name_ = "other";
    boot();
    EXPECT_EQ(run(control_->disk(ada_, id))->first_directory, runs(id).string());
    ASSERT_TRUE(remove(id).has_value());
    until([&] { return !fs::exists(runs(id)); }, "its files go");
    removals_done();
}

TEST_F(RetentionTest, AJobThatUsesTheFolderOfOneInAnEarlierRunsDirectoryKeepsItThere) {
    const std::string id = ended_in_queue();
    shut_down();
    runs_name_ = "other";
    boot();
    scheduler_.seen.state = AllocationState::pending;  // it says "ended" of the one before
    const std::string user =
        submitted(R"(,"checkpoint":{"directory":")" + (runs(id) / "checkpoints").string() + "\"}");
    EXPECT_EQ(remove(id).error().code, Errc::conflict) << "while it is not over";
    EXPECT_TRUE(run(control_->commands().cancel(ada_, user)).has_value());
    until([&] { return state(user) == "cancelled"; }, "cancelled");
    EXPECT_EQ(remove(id).error().code, Errc::conflict) << "and after";
    EXPECT_TRUE(fs::exists(runs(id) / "checkpoints" / "step-10"));
}

TEST_F(RetentionTest, WhatLiesInAnEarlierRunsDirectoryCountsAndGoes) {
    const std::string old = ended_in_queue();
    days_pass(2);
    const std::string id = ended_in_queue();
    days_pass(2);
    shut_down();
    keep_bytes_ = bytes_of(id);
    runs_name_ = "other";
    boot();
    until([&] { return show(old).is_null() && !fs::exists(runs(old)); }, "the older one goes");
    EXPECT_FALSE(show(id).is_null()) << "what has gone has made room";
    EXPECT_TRUE(fs::exists(runs(id)));
}

TEST_F(RetentionTest, FilesThatCannotBeSeenAreNotTakenForRemoved) {
    const fs::path job = folder_ / "not-mounted" / "ls-1";
    EXPECT_EQ(remove_job_files(job, "it is not mounted", {}, true).error().code, Errc::unavailable);
    EXPECT_TRUE(remove_job_files(job, "", {}, true).has_value());
    write(job / "a1" / "rank-00000.log", 1);
    EXPECT_TRUE(remove_job_files(job, "it is full", {}, true).has_value());
    EXPECT_FALSE(fs::exists(job));
}

// What it has from before may be the files of the one that it was copied from.
TEST_F(RetentionTest, ACopyTouchesNoEarlierRunsDirectory) {
    Job job;
    job.id = JobId{"ls-1"};
    job.attempts.emplace_back().directory = "/earlier/ls-1/a1";
    EXPECT_EQ(first_folder(job, CopiedJobs{}), "/earlier/ls-1");
    CopiedJobs copied;
    copied.moves.emplace_back("/later", "/own");
    EXPECT_EQ(first_folder(job, copied), "");
}

TEST_F(RetentionTest, CheckpointsMayStay) {
    const std::string id = ended();
    ASSERT_TRUE(remove(id, true).has_value());
    until([&] { return !fs::exists(runs(id) / "a1"); }, "the rest goes");
    EXPECT_TRUE(fs::exists(runs(id) / "checkpoints" / "step-10"));
}

TEST_F(RetentionTest, WhatIsNotOverIsNotRemoved) {
    const std::string id = submitted("");
    const auto refused = remove(id);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::conflict);
    EXPECT_NE(refused.error().message.find("lockstep cancel " + id), std::string::npos);
    EXPECT_FALSE(show(id).is_null());
}

TEST_F(RetentionTest, OnlyItsOwnerAndAdminsRemoveAJob) {
    const std::string id = ended();
    Caller bob{"bob", false, true};
    EXPECT_EQ(run(control_->remove(bob, id, false)).error().code, Errc::not_found);
    bob.reads_all = true;
    EXPECT_EQ(run(control_->remove(bob, id, false)).error().code, Errc::not_found);
    EXPECT_FALSE(show(id).is_null());
    const Caller root{"root", true, true};
    EXPECT_TRUE(run(control_->remove(root, id, false)).has_value());
}

TEST_F(RetentionTest, WhatIsStillNeededStays) {
    const std::string id = ended();
    scheduler_.left = "n7";
    const auto held = remove(id);
    ASSERT_FALSE(held.has_value());
    EXPECT_NE(held.error().message.find("n7"), std::string::npos) << held.error().message;
    scheduler_.left.reset();
    EXPECT_TRUE(remove(id).has_value());
}

// The next start would look for the end of a job that is not there.
TEST_F(RetentionTest, AJobThatAnotherWaitsForStays) {
    TestAgent node0;
    TestAgent node1;
    const std::string first = start_job_with(node0, node1);
    const std::string hog = submitted("");  // with `first` the window is full: none of these starts
    const std::string second = submitted(",\"after\":[\"" + first + "\"]");
    until([&] { return scheduler_.submissions == 2; }, "the window is full");
    context_->settings.window = 1;
    node0.say(exit(1, 0, 0));
    node1.say(exit(1, 1, 0));
    until([&] { return state(first) == "succeeded"; }, "succeeded");
    const auto refused = remove(first);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::conflict);
    EXPECT_NE(refused.error().message.find(second), std::string::npos) << refused.error().message;
    ASSERT_TRUE(run(control_->commands().cancel(ada_, second)).has_value());
    until([&] { return state(second) == "cancelled"; }, "the one that waited is over");
    const auto soon = remove(first);
    ASSERT_FALSE(soon.has_value());
    EXPECT_EQ(soon.error().code, Errc::unavailable) << "its agents are still there";
    node0.session->on_closed();
    node1.session->on_closed();
    EXPECT_TRUE(remove(first).has_value());
}

TEST_F(RetentionTest, ARemovalThatAKillInterruptedIsDoneByTheNextStart) {
    const std::string id = ended();
    RemovalRow removal;
    removal.job = JobId{id};
    removal.removed_at = clock_.wall();
    ASSERT_TRUE(*run(store_->remove_job(removal)));
    shut_down();
    EXPECT_TRUE(fs::exists(runs(id)));
    boot();
    until([&] { return !fs::exists(runs(id)); }, "the start takes it up");
}

TEST_F(RetentionTest, WhatCannotBeRemovedIsTriedAgainAndStopsNothing) {
    const std::string id = ended();
    const std::string other = ended();
    // In the way of the folder's new name: not empty, so that it cannot be replaced.
    const fs::path wall = folder_ / "runs" / (".removed-" + id);
    write(wall / "x", 1);
    ASSERT_TRUE(remove(id).has_value());
    ASSERT_TRUE(remove(other).has_value());
    until([&] { return !fs::exists(runs(other)); }, "the other goes");
    fs::remove_all(wall);
    shut_down();
    boot();
    until([&] { return !fs::exists(runs(id)); }, "and then this one");
}

TEST_F(RetentionTest, JobsGoByTheirAgeButForThoseWithTheLabelKeep) {
    const std::string old = ended();
    const std::string kept = ended(R"(,"labels":{"keep":"paper"})");
    days_pass(20);
    const std::string young = ended();
    days_pass(20);
    keep_days_ = 30;
    shut_down();
    boot();
    until([&] { return show(old).is_null() && !fs::exists(runs(old)); }, "the old one goes");
    EXPECT_FALSE(show(kept).is_null());
    EXPECT_FALSE(show(young).is_null());
    EXPECT_TRUE(fs::exists(runs(kept)));
}

// Of history, whose days are other ones; read as hours they would take all of it.
TEST_F(RetentionTest, TelemetryGoesByDays) {
    const std::string id = ended();
    const double now = static_cast<double>(clock_.wall()) / 1000.0;
    constexpr double kDay = 86'400;
    ChunksWrite write;
    write.job = JobId{id};
    for (const double days : {31.0, 29.0}) {
        ChunkRow chunk;
        chunk.samples = 1;
        chunk.time_high = now - days * kDay;
        chunk.sections = {{"loss", 0, "x"}};
        write.chunks.push_back(std::move(chunk));
    }
    ASSERT_TRUE(run(store_->add_chunks(std::move(write))).has_value());
    shut_down();
    boot();
    const auto chunks = [&] {
        const std::function<Result<HistorySize>(Database&)> read = [](Database& db) {
            return HistoryRecords{db}.size();
        };
        return run(store_->read<HistorySize>(read))->chunks;
    };
    until([&] { return chunks() < 2; }, "the older one goes");
    EXPECT_EQ(chunks(), 1);
    EXPECT_FALSE(show(id).is_null()) << "keep-days is off";
}

TEST_F(RetentionTest, OldJobsThatMustStayDoNotKeepTheOthersFromGoing) {
    std::vector<std::string> ids;
    for (int i = 0; i < 3; ++i) {
        ids.push_back(ended());
    }
    days_pass(40);
    keep_days_ = 30;
    scheduler_.left = "n1";
    shut_down();
    boot();
    for (int i = 0; i < 50; ++i) {
        io_->run_one_for(std::chrono::milliseconds{10});
    }
    EXPECT_FALSE(show(ids[0]).is_null());
    scheduler_.left.reset();
    shut_down();
    boot();
    for (const std::string& id : ids) {
        until([&] { return show(id).is_null(); }, "all go");
    }
}

// A battery was empty, or no time server had answered yet.
TEST_F(RetentionTest, AClockThatJumpsAheadMakesNoJobOld) {
    const std::string id = ended();
    keep_days_ = 30;
    clock_.advance(std::chrono::hours{24 * 400});
    shut_down();
    boot();
    for (int i = 0; i < 50; ++i) {
        io_->run_one_for(std::chrono::milliseconds{10});
    }
    EXPECT_FALSE(show(id).is_null());
    days_pass(31);
    shut_down();
    boot();
    until([&] { return show(id).is_null(); }, "a month that was seen to pass does");
}

TEST_F(RetentionTest, TimeThatWasNotSeenDoesNotCount) {
    constexpr UnixMillis kDay = kClockGap;
    EXPECT_EQ(age_limit(100 * kDay, 30 * kDay, {}), 70 * kDay);
    EXPECT_EQ(age_limit(100 * kDay, 30 * kDay, {{10 * kDay, 60 * kDay}}), 70 * kDay);
    EXPECT_EQ(age_limit(100 * kDay, 30 * kDay, {{20 * kDay, 80 * kDay}}), 10 * kDay);
    EXPECT_EQ(age_limit(100 * kDay, 30 * kDay, {{50 * kDay, 55 * kDay}, {65 * kDay, 80 * kDay}}),
              55 * kDay);
    EXPECT_EQ(age_limit(100 * kDay, 40 * kDay, {{50 * kDay, 55 * kDay}, {65 * kDay, 80 * kDay}}),
              40 * kDay);
}

// More old ones in front than are looked at together.
TEST_F(RetentionTest, AnyNumberOfJobsThatMustStayDoesNotKeepAnOldOneFromGoing) {
    std::string last = ended();
    const std::string first = last;
    for (int i = 0; i < 33; ++i) {  // each has its files in the folder of the one before
        last = ended(R"(,"checkpoint":{"directory":")" + (runs(last) / "checkpoints").string() +
                     "\"}");
    }
    days_pass(40);
    keep_days_ = 30;
    shut_down();
    boot();
    until([&] { return show(last).is_null(); }, "nobody needs it");
    EXPECT_FALSE(show(first).is_null());
}

TEST_F(RetentionTest, AJobStaysWhileAnotherHasItsFilesInItsFolder) {
    const std::string first = ended();
    const std::string where =
        R"(,"checkpoint":{"directory":")" + (runs(first) / "checkpoints").string() + "\"}";
    scheduler_.seen.state = AllocationState::pending;  // it says "ended" of the one before
    const std::string second = submitted(where);
    EXPECT_THAT(remove(first).error().message, HasSubstr(second + ", which is not over, uses"));
    EXPECT_EQ(remove(first, true).error().code, Errc::conflict);
    EXPECT_TRUE(run(control_->commands().cancel(ada_, second)).has_value());
    until([&] { return state(second) == "cancelled"; }, "cancelled");
    EXPECT_THAT(remove(first).error().message, HasSubstr(second + " has files in its folder"));
    days_pass(40);
    keep_days_ = 30;
    shut_down();
    boot();
    until([&] { return show(second).is_null(); }, "the one that nobody needs goes");
    EXPECT_TRUE(fs::exists(runs(first) / "checkpoints" / "step-10"));
    ASSERT_TRUE(remove(first).has_value());
    until([&] { return !fs::exists(runs(first)); }, "and then the other");
}

TEST_F(RetentionTest, ASnapshotStaysForAJobThatCameAfterTheLastOneWasRemoved) {
    const fs::path snapshot = folder_ / "snapshots" / "0123-abc";
    write(snapshot / "train.py", 10);
    const std::string where = R"(,"working_directory":")" + snapshot.string() + "\"";
    const std::string first = ended(where);
    JobId job{first};
    RemovalRow removal;
    removal.job = job;
    ASSERT_TRUE(*run(store_->remove_job(removal)));
    shut_down();
    boot();
    const std::string second = submitted(where);
    removals_done();
    EXPECT_FALSE(fs::exists(runs(first)));
    EXPECT_FALSE(show(second).is_null());
    EXPECT_TRUE(fs::exists(snapshot / "train.py"));
}

TEST_F(RetentionTest, ASnapshotIsFoundWhateverThePathLooksLike) {
    const fs::path victim = folder_ / "snapshots" / "victim";
    const fs::path own = folder_ / "snapshots" / "own";
    write(victim / "train.py", 10);
    write(own / "train.py", 10);
    const std::string id = ended(R"(,"working_directory":")" +
                                 (folder_ / "snapshots" / "victim" / ".." / "own").string() + "\"");
    ASSERT_TRUE(remove(id).has_value());
    until([&] { return !fs::exists(own); }, "the one that it ran in");
    EXPECT_TRUE(fs::exists(victim / "train.py"));
    EXPECT_EQ(folder_below("/a/b/c", "/a"), "b");
    EXPECT_EQ(folder_below("/a/b/../c/", "/a/"), "c");
    EXPECT_EQ(folder_below("/a/..", "/a"), "");
    EXPECT_EQ(folder_below("/a", "/a"), "");
    EXPECT_EQ(folder_below("/b/a", "/a"), "");
    EXPECT_EQ(folder_below("", "/a"), "");
}

TEST_F(RetentionTest, ASnapshotGoesWithItsLastJob) {
    const fs::path snapshot = folder_ / "snapshots" / "0123-abc";
    write(snapshot / "src" / "train.py", 10);
    const std::string where = R"(,"working_directory":")" + (snapshot / "src").string() + "\"";
    const std::string first = ended(where);
    const std::string second = ended(where);
    ASSERT_TRUE(remove(first).has_value());
    removals_done();
    EXPECT_TRUE(fs::exists(snapshot / "src" / "train.py"));
    ASSERT_TRUE(remove(second).has_value());
    until([&] { return !fs::exists(snapshot); }, "the snapshot goes, too");
    EXPECT_TRUE(fs::exists(folder_ / "snapshots"));
}

// Whoever runs the job may write into its folder.
TEST_F(RetentionTest, LinksAreRemovedNotFollowed) {
    const std::string id = ended();
    const fs::path outside = folder_ / "outside";
    write(outside / "precious", 10);
    fs::create_directory_symlink(outside, runs(id) / "a1" / "link");
    fs::create_directory_symlink(outside, runs(id) / "checkpoints" / "link");
    ASSERT_TRUE(remove(id).has_value());
    until([&] { return !fs::exists(runs(id)); }, "gone");
    EXPECT_TRUE(fs::exists(outside / "precious"));
}

TEST_F(RetentionTest, DiskUseSaysWhatIsWhere) {
    const std::string id = ended();
    const auto place = run(control_->disk(ada_, id));
    ASSERT_TRUE(place.has_value());
    EXPECT_EQ(place->directory, runs(id).string());
    const Caller bob{"bob", false, true};
    EXPECT_EQ(run(control_->disk(bob, id)).error().code, Errc::not_found);
    const auto never = std::chrono::steady_clock::time_point::max();
    const DiskUse use = disk_use(place->directory, 1000, never);
    EXPECT_GE(use.logs, 10'000);
    EXPECT_LT(use.logs, 20'000);
    EXPECT_GE(use.evidence, 10'000);
    EXPECT_GE(use.checkpoints, 100'000);
    EXPECT_GE(use.files, 3);
    EXPECT_FALSE(use.partly);
    EXPECT_TRUE(disk_use(runs(id), 1, never).partly);
    EXPECT_TRUE(disk_use(runs(id), 1000, std::chrono::steady_clock::now()).partly);
    EXPECT_EQ(disk_use(runs("ls-none"), 10, never).files, 0);
    EXPECT_FALSE(disk_use(runs("ls-none"), 10, never).failed);
}

// A user may make a folder whose path is too long to be opened: what is beside it counts.
TEST_F(RetentionTest, AFolderThatCannotBeOpenedKeepsNothingElseFromBeingCounted) {
    const std::string id = ended();
    const std::string name(250, 'd');
    for (const char* beside : {"a", "n", "z"}) {  // whatever the order of the file system is
        write(runs(id) / "deep" / beside / "file", 100'000);
    }
    // Longer than any path may be.
    UniqueFd at{::open((runs(id) / "deep" / "n").c_str(), O_DIRECTORY | O_CLOEXEC)};
    for (int level = 0; level < 20; ++level) {
        ASSERT_EQ(::mkdirat(at.get(), name.c_str(), 0700), 0);
        at = UniqueFd{::openat(at.get(), name.c_str(), O_DIRECTORY | O_CLOEXEC)};
        ASSERT_TRUE(at);
    }
    const DiskUse use = disk_use(runs(id), 1000, std::chrono::steady_clock::time_point::max());
    EXPECT_GE(use.other, 300'000);
    EXPECT_FALSE(use.failed) << "its user has made it so";
    ASSERT_EQ(std::system(("rm -rf '" + (runs(id) / "deep").string() + "'").c_str()), 0);
}

// As a job's ranks remove and replace them while it is measured.
TEST_F(RetentionTest, AFolderThatGoesWhileItIsMeasuredKeepsNothingElseFromBeingCounted) {
    const fs::path job = folder_ / "job";
    for (const char* one : {"a", "b", "c", "d"}) {
        write(job / one / "deep" / "file", 100'000);
    }
    const auto never = std::chrono::steady_clock::time_point::max();
    const DiskUse whole = disk_use(job, 1000, never);
    EXPECT_EQ(whole.files, 4);
    DiskCount count{job};
    ASSERT_TRUE(count.next(1000, never));  // the job's own folder: the four are known by name
    EXPECT_EQ(count.use().files, 0);
    fs::remove_all(job / "b");
    fs::remove_all(job / "c");
    write(job / "c", 10);  // no folder any more
    int folders = 0;
    while (count.next(1000, never)) {
        ++folders;
    }
    EXPECT_EQ(folders, 6) << "two of them have a folder in them";
    EXPECT_EQ(count.use().files, 2);
    EXPECT_GE(count.use().other, 200'000);
    EXPECT_LT(count.use().other, whole.other);
    EXPECT_FALSE(count.use().failed);
    EXPECT_FALSE(count.use().partly);
}

}  // namespace
}  // namespace lockstep
