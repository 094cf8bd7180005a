#include "scheduler-integration/slurm/hostlist.hpp"

#include "job/base/limits.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <random>

namespace lockstep {
namespace {

using Names = std::vector<std::string>;

TEST(Hostlist, ExpandsWhatSlurmWrites) {
    const std::vector<std::pair<std::string, Names>> cases{
        {"", {}},
        {"login1", {"login1"}},
        {"a-[1,3-4],b7", {"a-1", "a-3", "a-4", "b7"}},
        {"rack[0-1]_blade[00-01]",
         {"rack0_blade00", "rack0_blade01", "rack1_blade00", "rack1_blade01"}},
        {"n[08-11]", {"n08", "n09", "n10", "n11"}},
        {"n[8-011]", {"n8", "n9", "n10", "n11"}},
        {"n[99-101]", {"n99", "n100", "n101"}},
        {"n0[9-10]", {"n09", "n010"}},
        {"n[5,3,5]", {"n5", "n3", "n5"}},
        {"n[1-2][3-4]", {"n13", "n14", "n23", "n24"}},
        {"[1-3]", {"1", "2", "3"}},
        {"n[1-2]-ib.example.org", {"n1-ib.example.org", "n2-ib.example.org"}},
        {"a1,a1,a0", {"a1", "a1", "a0"}},
        // scontrol counts the last group fastest, then the first, then the second.
        {"n[0-1]a[2-3]b[4-5]",
         {"n0a2b4", "n0a2b5", "n1a2b4", "n1a2b5", "n0a3b4", "n0a3b5", "n1a3b4", "n1a3b5"}},
    };
    for (const auto& [text, names] : cases) {
        const auto expanded = expand_hostlist(text);
        ASSERT_TRUE(expanded) << text << ": " << expanded.error().message;
        EXPECT_EQ(*expanded, names) << text;
    }
}

TEST(Hostlist, NamesTheByteThatIsWrong) {
    const std::vector<std::pair<std::string, std::string>> cases{
        {"n[1-2", "hostlist: a bracket that is not closed at byte 1"},
        {"n1]", "hostlist: a character that is in no host name at byte 2"},
        {"n[]", "hostlist: a number is missing at byte 2"},
        {"n[1-]", "hostlist: a number is missing at byte 4"},
        {"n[1-2,]", "hostlist: a number is missing at byte 6"},
        {"n[a-c]", "hostlist: a number is missing at byte 2"},
        {"n[3-1]", "hostlist: a range that descends at byte 2"},
        {"n[1, 2]", "hostlist: a number is missing at byte 4"},
        {"n[[1]]", "hostlist: a number is missing at byte 2"},
        {"n[1-2;3]", "hostlist: a character that is in no range at byte 5"},
        {"a,,b", "hostlist: an empty name at byte 2"},
        {",a", "hostlist: an empty name at byte 0"},
        {"a b", "hostlist: a character that is in no host name at byte 1"},
        {"a,b\nc", "hostlist: a character that is in no host name at byte 3"},
        {"n[1-65537]", "hostlist: more than 65536 names at byte 2"},
        {"n[1-300][1-300]", "hostlist: more than 65536 names at byte 0"},
        {"n[1-65536],m", "hostlist: more than 65536 names at byte 11"},
        {"n[1-9999999999999999999]", "hostlist: a number is missing at byte 23"},
        {std::string(254, 'a'), "hostlist: a name longer than 253 characters at byte 0"},
    };
    for (const auto& [text, message] : cases) {
        const auto expanded = expand_hostlist(text);
        ASSERT_FALSE(expanded) << text;
        EXPECT_EQ(expanded.error().code, Errc::invalid);
        EXPECT_EQ(expanded.error().message, message);
    }
}

TEST(Hostlist, TakesAsManyNamesAsSlurmHasNodes) {
    const auto expanded = expand_hostlist("n[00001-65536]");
    ASSERT_TRUE(expanded);
    ASSERT_EQ(expanded->size(), limits::kHostlistNames);
    EXPECT_EQ(expanded->back(), "n65536");
    EXPECT_EQ(compress_hostlist(*expanded), "n[00001-65536]");
}

TEST(Hostlist, CompressesRunsAndLeavesTheRest) {
    EXPECT_EQ(compress_hostlist({}), "");
    EXPECT_EQ(compress_hostlist(Names{"login"}), "login");
    EXPECT_EQ(compress_hostlist(Names{"n1", "n2", "n3", "n5"}), "n[1-3,5]");
    EXPECT_EQ(compress_hostlist(Names{"n08", "n09", "n10", "m1"}), "n[08-10],m1");
    EXPECT_EQ(compress_hostlist(Names{"n9", "n10", "n011"}), "n[9-10,011]");
    EXPECT_EQ(compress_hostlist(Names{"n3", "n2", "n2"}), "n[3,2,2]");
    // Slurm 22.05 refuses text behind the last bracket.
    EXPECT_EQ(compress_hostlist(Names{"n1-ib", "n2-ib"}), "n1-ib,n2-ib");
    EXPECT_EQ(compress_hostlist(Names{"n98", "n99", "n100"}), "n[98-100]");
}

// A random hostlist of at most about 60 names.
std::string random_hostlist(std::mt19937& random) {
    const auto pick = [&random](int low, int high) {
        return std::uniform_int_distribution{low, high}(random);
    };
    constexpr std::array<std::string_view, 8> kTexts{"n",    "rack", "a-",   "node_",
                                                     "gpu0", "x1y",  "c.d-", "A"};
    const auto group = [&] {
        std::string text = "[";
        const int ranges = pick(1, 3);
        for (int i = 0; i < ranges; ++i) {
            const int low = pick(0, 120);
            std::string number = std::to_string(low);
            number.insert(0, static_cast<std::size_t>(pick(0, 1) * pick(0, 3)), '0');
            text += (i > 0 ? "," : "") + number;
            if (pick(0, 1) == 1) {
                std::string high = std::to_string(low + pick(0, 4));
                if (high.size() < number.size()) {
                    high.insert(0, number.size() - high.size(), '0');
                }
                text += "-" + high;
            }
        }
        return text + "]";
    };
    std::string list;
    const int items = pick(1, 4);
    for (int i = 0; i < items; ++i) {
        list += i > 0 ? "," : "";
        list += kTexts[static_cast<std::size_t>(pick(0, 7))];
        const int groups = pick(0, 9) < 7 ? pick(0, 1) : pick(2, 3);
        for (int g = 0; g < groups; ++g) {
            list += (g > 0 ? "z" : "") + group();
        }
        if (groups == 0 && pick(0, 1) == 1) {
            list += std::to_string(pick(0, 2000));
        }
    }
    return list;
}

TEST(Hostlist, WhatIsCompressedExpandsToTheSameNames) {
    std::mt19937 random{20260820};
    for (int i = 0; i < 20'000; ++i) {
        const std::string list = random_hostlist(random);
        const auto names = expand_hostlist(list);
        ASSERT_TRUE(names) << list;
        const auto again = expand_hostlist(compress_hostlist(*names));
        ASSERT_TRUE(again) << list;
        ASSERT_EQ(*again, *names) << list << " → " << compress_hostlist(*names);
    }
}

// The lines a program prints; nothing when it fails.
std::optional<Names> run(const std::string& command) {
    std::FILE* pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr) {
        return std::nullopt;
    }
    std::string text;
    std::array<char, 65'536> block{};
    while (const std::size_t got = std::fread(block.data(), 1, block.size(), pipe)) {
        text.append(block.data(), got);
    }
    if (::pclose(pipe) != 0) {
        return std::nullopt;
    }
    Names lines;
    std::size_t at = 0;
    for (auto end = text.find('\n'); end != std::string::npos; end = text.find('\n', at)) {
        lines.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return lines;
}

// scontrol expands without a controller, but wants a configuration to read.
class AgainstScontrol : public testing::Test {
  protected:
    void SetUp() override {
        folder_ =
            std::filesystem::path{testing::TempDir()} / ("hostlist-" + std::to_string(::getpid()));
        std::filesystem::create_directories(folder_);
        std::FILE* file = std::fopen((folder_ / "slurm.conf").c_str(), "w");
        ASSERT_NE(file, nullptr);
        std::fputs(
            "ClusterName=none\nSlurmctldHost=localhost\nNodeName=n1\n"
            "PartitionName=p Nodes=ALL Default=YES\n",
            file);
        std::fclose(file);
        scontrol_ = "SLURM_CONF=" + (folder_ / "slurm.conf").string() + " scontrol show ";
        if (!run(scontrol_ + "hostnames n1 2>/dev/null")) {
            GTEST_SKIP() << "scontrol is not installed, or cannot expand without a cluster";
        }
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    std::filesystem::path folder_;
    std::string scontrol_;
};

TEST_F(AgainstScontrol, ExpandsThousandsOfRandomListsAlike) {
    std::mt19937 random{15857};
    int lists = 0;
    for (int batch = 0; batch < 40; ++batch) {
        std::string joined;
        Names ours;
        std::string compressed;
        for (int i = 0; i < 100; ++i, ++lists) {
            const std::string list = random_hostlist(random);
            joined += (joined.empty() ? "" : ",") + list;
            const auto names = expand_hostlist(list);
            ASSERT_TRUE(names) << list;
            const std::string shorter = compress_hostlist(*names);
            compressed += (compressed.empty() ? "" : ",") + shorter;
            ours.insert(ours.end(), names->begin(), names->end());
        }
        const auto theirs = run(scontrol_ + "hostnames '" + joined + "'");
        ASSERT_TRUE(theirs);
        ASSERT_EQ(ours, *theirs) << joined;
        const auto back = run(scontrol_ + "hostnames '" + compressed + "'");
        ASSERT_TRUE(back);
        ASSERT_EQ(ours, *back) << compressed;
    }
    EXPECT_EQ(lists, 4000);
}

}  // namespace
}  // namespace lockstep
