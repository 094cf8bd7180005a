// What a backup says of itself reads back, and nothing else does.
#include "daemon/backup/manifest.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

FileEntry file(std::string path) {
    FileEntry out;
    out.path = std::move(path);
    out.bytes = 5;
    out.sha256 = std::string(64, 'a');
    out.mode = 0640;
    out.modified = 17;
    return out;
}

TEST(Manifest, ReadsBack) {
    Manifest one;
    one.version = "0.2.0";
    one.made_at = 1'700'000'000'123;
    one.runs_directory = "/srv/runs with ü";
    one.runs = RunsCopied::all;
    one.database.schema = 9;
    one.database.unfinished = 3;
    one.database_sha256 = "x";
    one.list_sha256 = "y";
    const auto read = decode_manifest(encode_manifest(one));
    ASSERT_TRUE(read.has_value()) << read.error().message;
    EXPECT_EQ(encode_manifest(*read), encode_manifest(one));
    EXPECT_EQ(read->runs, RunsCopied::all);
    EXPECT_EQ(read->database.unfinished, 3);
}

TEST(Manifest, OfANewerFormatOrDamagedIsRefused) {
    EXPECT_EQ(decode_manifest(R"({"format": 2})").error().code, Errc::conflict);
    EXPECT_EQ(decode_manifest("").error().code, Errc::corrupt);
    EXPECT_EQ(decode_manifest(R"({"format": 1})").error().code, Errc::corrupt);
    Manifest one;
    one.database_sha256 = one.list_sha256 = "x";
    std::string text = encode_manifest(one);
    ASSERT_TRUE(decode_manifest(text).has_value());
    text.insert(text.find("\"jobs\""), R"("else": 1, )");
    EXPECT_EQ(decode_manifest(text).error().code, Errc::corrupt);
}

TEST(Manifest, NamesOfFilesAreTheBytesThatTheyAre) {
    for (const std::string& path :
         {std::string{"runs/ls-1/a1/rank-00000.log"}, std::string{"runs/a b%41\n\t"},
          std::string{"runs/\xff\xfe"}, std::string{"runs/ü/…"}}) {
        const FileEntry one = file(path);
        const std::string line = encode_entry(one);
        EXPECT_EQ(line.find('\n'), std::string::npos);
        const auto read = decode_entry(line);
        ASSERT_TRUE(read.has_value()) << line;
        EXPECT_EQ(*read, one) << line;
    }
    FileEntry link;
    link.path = "runs/link";
    link.link = "../\x01 there";
    EXPECT_EQ(decode_entry(encode_entry(link)).value(), link);
    FileEntry left = file("runs/x/checkpoints/1");
    left.left_out = "checkpoint";
    EXPECT_EQ(decode_entry(encode_entry(left))->left_out, "checkpoint");
}

TEST(Manifest, APathThatLeadsOutOfTheFolderIsRefused) {
    for (const char* path :
         {"/etc/passwd", "../x", "runs/../../x", "", "runs//x", "./x", "runs/%2E%2E/x", "a%00b"}) {
        const std::string line =
            R"({"path": ")" + std::string{path} + R"(", "bytes": 1, "sha256": "a"})";
        EXPECT_EQ(decode_entry(line).error().code, Errc::corrupt) << path;
    }
    EXPECT_FALSE(decode_entry(R"({"path": "runs/x", "bytes": 1})").has_value());
    EXPECT_FALSE(decode_entry(R"({"path": "runs/%4", "bytes": 1, "sha256": "a"})").has_value());
}

}  // namespace
}  // namespace lockstep
