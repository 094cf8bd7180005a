// What ranks print, and what of it reaches a terminal.
#include "job/base/text.hpp"
#include "job/cli/glyph.hpp"
#include "job/cli/terminal.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace lockstep::cli {
namespace {

class ForeignText : public testing::Test {
  protected:
    static void SetUpTestSuite() { Terminal::detect(); }  // sets the locale for widths
};

// "" or what a terminal would obey in it. Knows nothing of harmless().
std::string obeyed(std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) {
            return "C0 " + std::to_string(byte) + " at " + std::to_string(i);
        }
        if (byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0) {
            return "C1 at " + std::to_string(i);
        }
    }
    return printable(text) == text ? "" : "no UTF-8";
}

// Texts of the pieces that matter, in any order.
class Babble {
  public:
    std::string next() {
        static const std::vector<std::string> kPieces{
            "\x1b",     "[",        "]",        "0;",   "31m",          "2J",   "\x07",
            "\x1b\\",   "\xc2",     "\x9b",     "\x9c", "\xc2\x9b",     "\x80", "\xe2",
            "\xe2\x80", "\xae",     "\xf0\x9f", "\x98", "\x1b[0m",      "\x18", "P",
            "(B",       "\n",       "\t",       "\r",   "\b",           "日",   "e\xcc\x81",
            "a",        " ",        "\x7f",     "_",    "\xed\xa0\x80", "K",    "\x1b[K",
            "\xc2\x9d", "\xe0\x82", "\x1b]8;;"};
        std::string text;
        for (std::size_t left = random_() % 12; left > 0; --left) {
            text += random_() % 8 == 0 ? std::string(1, static_cast<char>(random_() % 256))
                                       : kPieces[random_() % kPieces.size()];
        }
        return text;
    }

  private:
    std::mt19937 random_{20'261'128};
};

constexpr int kTexts = 100'000;

// "\xC2", ESC [ 0 m, "\x9B": without the sequence in the middle the rest became U+009B, CSI, and
// what followed was obeyed.
TEST_F(ForeignText, WhatIsTakenOutJoinsNothing) {
    EXPECT_EQ(harmless("a\xc2\x1b[0m\x9b"
                       "2Jb"),
              "a\ufffd\ufffd2Jb");
    EXPECT_EQ(harmless("\xc2\a\x9b"), "\ufffd\ufffd");
    EXPECT_EQ(harmless("\xe2\x1b[m\x80\x1b[m\xae"), "\ufffd\ufffd\ufffd");
    EXPECT_EQ(harmless("\xe2\xc2\x9b\x80\xae"), "\ufffd\ufffd\ufffd");
    EXPECT_EQ(harmless("\xc2\x9b\x9b"), "\ufffd") << "the first two are U+009B";
    EXPECT_EQ(harmless("\x1b\x1b[0m[2J"), "[2J");
}

TEST_F(ForeignText, ASequenceIsTakenOutWhole) {
    EXPECT_EQ(harmless("a\x1b]0;title\ab"), "ab");
    EXPECT_EQ(harmless("a\x1b]8;;https://x.example\x1b\\link\x1b]8;;\x1b\\b"), "alinkb");
    EXPECT_EQ(harmless("a\x1bP1$r0m\x1b\\b"), "ab");
    EXPECT_EQ(harmless("a\x1b]2;t\xc2\x9c"
                       "b"),
              "ab");
    EXPECT_EQ(harmless("a\x1b(Bb\x1b[?25lc\x1b[38;5;1md\x1b[1 qe\x1b"
                       "7f"),
              "abcdef");
}

TEST_F(ForeignText, ASequenceThatDoesNotEndTakesNoLineWithIt) {
    EXPECT_EQ(harmless("a\x1b]0;title\nb"), "a0;title\nb");
    EXPECT_EQ(harmless("a\x1b[31\nb"), "a\nb");
    EXPECT_EQ(harmless("a\x1b]0;t\x1b[0mb"), "ab");
    EXPECT_EQ(harmless("a\x1b"), "a");
    EXPECT_EQ(harmless("a\x1b["), "a");
    EXPECT_EQ(harmless("a\x1b]"), "a");
}

TEST_F(ForeignText, NoTextOfManySteersATerminal) {
    Babble babble;
    for (int i = 0; i < kTexts; ++i) {
        const std::string text = babble.next();
        const std::string shown = harmless(text);
        ASSERT_EQ(obeyed(shown), "") << i << ": " << testing::PrintToString(text);
        ASSERT_EQ(obeyed(settled(text)), "") << i << ": " << testing::PrintToString(text);
        ASSERT_EQ(harmless(shown), shown) << i << ": " << testing::PrintToString(text);
        ASSERT_EQ(obeyed(one_line(text)), "") << i << ": " << testing::PrintToString(text);
        ASSERT_EQ(one_line(text).find_first_of("\n\t"), std::string::npos) << i;
    }
}

TEST_F(ForeignText, OfALineThatIsDrawnAgainTheEndIsLeft) {
    EXPECT_EQ(settled("\r 10%\r 50%\r100%"), "100%");
    EXPECT_EQ(settled("loss 1.25\rloss 1"), "loss 1.25") << "what is not written over stays";
    EXPECT_EQ(settled("loss 1.25\r\x1b[Kloss 1"), "loss 1");
    EXPECT_EQ(settled("loss 1.25\r\x1b[2Kloss 1"), "loss 1");
    EXPECT_EQ(settled("abcd\b\b\x1b[1Kx"), "  xd");
    EXPECT_EQ(settled("12\b\b34"), "34");
    EXPECT_EQ(settled("a\tb\rc"), "c       b");
    EXPECT_EQ(settled("\x1b[31mred\x1b[0m\rb"), "bed");
    EXPECT_EQ(settled("from Windows\r"), "from Windows");
    EXPECT_EQ(settled("e\xcc\x81te\ra"), "ate");
    EXPECT_EQ(settled("plain\ttext"), "plain\ttext");
    EXPECT_EQ(settled("done\r    \r"), "    ");
}

TEST_F(ForeignText, HalfAWideCharacterIsABlank) {
    EXPECT_EQ(settled("日本\ra"), "a 本");
    EXPECT_EQ(settled("日本\b\b\bab"), " ab ") << "the right half of one, the left of the other";
    EXPECT_EQ(settled("a日\r本"), "本 ") << "over a and the left half: the right one is a blank";
    EXPECT_EQ(settled("ab日c\b\b\x1b[K!"), "ab !");
}

TEST_F(ForeignText, WhatAnUnfinishedLineNoLongerShowsCanBeForgotten) {
    Babble babble;
    for (int i = 0; i < kTexts / 10; ++i) {
        std::string whole;
        std::string kept;
        for (int piece = 0; piece < 4; ++piece) {
            std::string text = babble.next();
            text.erase(std::remove(text.begin(), text.end(), '\n'), text.end());
            whole += text;
            kept = compacted(kept + text);
        }
        ASSERT_EQ(settled(kept), settled(whole)) << i << ": " << testing::PrintToString(whole);
    }
}

TEST_F(ForeignText, OnlyWholeCharactersAreUtf8) {
    EXPECT_TRUE(is_utf8_text("aé日😀"));
    EXPECT_TRUE(is_utf8_text(""));
    for (const char* broken : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\xe6\x97",
                               "\xe0\x82\x9b", "\x80"}) {
        EXPECT_FALSE(is_utf8_text(broken)) << testing::PrintToString(std::string(broken));
    }
    EXPECT_EQ(whole_characters("ab\xe6\x97"), "ab");
    EXPECT_EQ(whole_characters("ab\xf0\x9f\x98"), "ab");
    EXPECT_EQ(whole_characters("日"), "日");
    EXPECT_EQ(whole_characters("a\x80"), "a\x80") << "will never be one";
    EXPECT_EQ(whole_characters(""), "");
}

}  // namespace
}  // namespace lockstep::cli
