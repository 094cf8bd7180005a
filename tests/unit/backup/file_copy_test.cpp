// Copies of what others may write: links, pipes, files that cannot be read or that grow.
#include "daemon/backup/file_copy.hpp"

#include "daemon/backup/staged_folder.hpp"
#include "job/base/digest.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <map>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class FileCopyTest : public ::testing::Test {
  protected:
    void put(const std::string& path, const std::string& text) {
        fs::create_directories((from() / path).parent_path());
        std::ofstream{from() / path} << text;
    }
    static std::int64_t seconds_of(const fs::path& file) {
        struct stat info{};
        EXPECT_EQ(::stat(file.c_str(), &info), 0);
        return info.st_mtim.tv_sec;
    }
    fs::path from() const { return folder_ / "from"; }
    fs::path to() const { return folder_ / "to"; }
    Status copy(const StopAsked& stop = [] { return false; }) {
        const LeaveOut leave_out = [](const std::string& path) {
            return path.ends_with(".skip") ? std::string{"skipped"} : std::string{};
        };
        const std::function<Status(FileEntry)> done = [this](FileEntry entry) {
            const std::string path = entry.path;
            seen_[path] = std::move(entry);
            return Status{};
        };
        return copy_folder(from(), to(), "p/", leave_out, stop, done);
    }

    test::TemporaryFolder folder_;
    std::map<std::string, FileEntry> seen_;
};

TEST_F(FileCopyTest, FilesAreCopiedAndHashedAndWhatIsLeftOutIsTold) {
    put("a/b/c.txt", "hello");
    put("big", std::string(3'000'000, 'x'));
    put("not.skip", "1234");
    ASSERT_TRUE(copy().has_value());
    EXPECT_EQ(seen_.at("p/a/b/c.txt").sha256, sha256_hex("hello"));
    EXPECT_EQ(seen_.at("p/big").bytes, 3'000'000);
    EXPECT_EQ(hash_file(to() / "big", [] { return false; })->sha256,
              sha256_hex(std::string(3'000'000, 'x')));
    EXPECT_EQ(seen_.at("p/not.skip").left_out, "skipped");
    EXPECT_EQ(seen_.at("p/not.skip").bytes, 4);
    EXPECT_FALSE(fs::exists(to() / "not.skip"));
    EXPECT_EQ(seconds_of(to() / "a/b/c.txt"), seconds_of(from() / "a/b/c.txt"));
}

// A rank log of 100 GB, of which 64 MiB are kept, took 100 GB of the backup, and was shown as NUL
// bytes after the restore, not as output that was dropped.
TEST_F(FileCopyTest, HolesStayHoles) {
    constexpr off_t kHole = 64 << 20;
    put("log", std::string(100'000, 'a'));
    {
        std::ofstream log{from() / "log", std::ios::in | std::ios::out};
        log.seekp(kHole);
        log << "end";
    }
    put("only", "");
    fs::resize_file(from() / "only", kHole);
    ASSERT_TRUE(copy().has_value());
    const auto blocks = [](const fs::path& file) {
        struct stat info{};
        EXPECT_EQ(::stat(file.c_str(), &info), 0);
        return info.st_blocks * 512;
    };
    const StopAsked go_on = [] { return false; };
    if (blocks(from() / "log") >= kHole) {
        GTEST_SKIP() << "this file system makes no holes";
    }
    for (const auto& [name, bytes] : {std::pair{"log", kHole + 3}, {"only", kHole}}) {
        const FileEntry& entry = seen_.at(std::string{"p/"} + name);
        EXPECT_EQ(entry.bytes, bytes);
        EXPECT_EQ(fs::file_size(to() / name), static_cast<std::uintmax_t>(bytes));
        EXPECT_LT(blocks(to() / name), 1 << 20) << name;
        std::ifstream file{from() / name};
        const std::string text{std::istreambuf_iterator<char>{file}, {}};
        EXPECT_EQ(entry.sha256, sha256_hex(text)) << name;
        EXPECT_EQ(hash_file(to() / name, go_on)->sha256, entry.sha256) << name;
        const auto again = copy_plain_file(to() / name, to() / (name + std::string{"2"}), go_on);
        ASSERT_TRUE(again.has_value());
        EXPECT_EQ(again->sha256, entry.sha256);
        EXPECT_LT(blocks(to() / (name + std::string{"2"})), 1 << 20) << name;
    }
}

TEST_F(FileCopyTest, LinksAreCopiedNotFollowedAndPipesAreNotWaitedFor) {
    put("file", "x");
    std::ofstream{folder_ / "secret"} << "secret";
    fs::create_directories(folder_ / "outside");
    std::ofstream{folder_ / "outside" / "inner"} << "secret";
    fs::create_symlink(folder_ / "secret", from() / "link");
    fs::create_directory_symlink(folder_ / "outside", from() / "folder");
    ASSERT_EQ(::mkfifo((from() / "pipe").c_str(), 0600), 0);
    ASSERT_TRUE(copy().has_value());
    EXPECT_EQ(seen_.at("p/link").link, (folder_ / "secret").string());
    EXPECT_TRUE(fs::is_symlink(to() / "link"));
    EXPECT_EQ(seen_.at("p/folder").link, (folder_ / "outside").string());
    EXPECT_EQ(seen_.count("p/folder/inner"), 0U);
    EXPECT_FALSE(seen_.at("p/pipe").left_out.empty());
}

TEST_F(FileCopyTest, ItStopsWhenItIsAskedToAndSaysSo) {
    put("a", "x");
    put("b", "y");
    int asked = 0;
    EXPECT_EQ(copy([&] { return ++asked > 2; }).error().code, Errc::cancelled);
}

TEST_F(FileCopyTest, AFullDiskEndsTheCopy) {
    put("a", "x");
    const auto copied = copy_plain_file(from() / "a", "/dev/full/x", [] { return false; });
    EXPECT_FALSE(copied.has_value());
}

TEST_F(FileCopyTest, AStagedFolderAppearsWholeOrNotAtAll) {
    {
        auto staged = StagedFolder::begin(folder_ / "new");
        ASSERT_TRUE(staged.has_value());
        std::ofstream{staged->path() / "x"} << "1";
        EXPECT_EQ(StagedFolder::begin(folder_ / "new").error().code, Errc::conflict)
            << "one at a time";
    }
    EXPECT_FALSE(fs::exists(folder_ / "new"));
    EXPECT_FALSE(fs::exists(folder_ / ".new.partial"));
    fs::create_directory(folder_ / ".new.partial");
    std::ofstream{folder_ / ".new.partial" / "of a kill"} << "1";
    auto staged = StagedFolder::begin(folder_ / "new");
    ASSERT_TRUE(staged.has_value());
    EXPECT_TRUE(fs::is_empty(staged->path()));
    std::ofstream{staged->path() / "x"} << "1";
    ASSERT_TRUE(staged->finish().has_value());
    EXPECT_TRUE(fs::exists(folder_ / "new" / "x"));
    EXPECT_EQ(StagedFolder::begin(folder_ / "new").error().code, Errc::conflict);
    EXPECT_EQ(StagedFolder::begin(folder_ / "new/").error().code, Errc::conflict);
}

}  // namespace
}  // namespace lockstep
