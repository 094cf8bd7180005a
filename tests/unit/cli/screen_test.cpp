#include "job/cli/screen.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(KeyReader, LettersAndSequencesAreKeys) {
    KeyReader keys;
    EXPECT_THAT(keys.feed("qsr ?x"),
                ElementsAre(Key::quit, Key::sort, Key::reverse, Key::pause, Key::help, Key::other));
    EXPECT_THAT(keys.feed("\x1b[A\x1b[B\x1bOA\x1bOB"),
                ElementsAre(Key::up, Key::down, Key::up, Key::down));
    EXPECT_THAT(
        keys.feed("\x1b[5~\x1b[6~\x1b[H\x1b[F\x1b[1~\x1b[4~"),
        ElementsAre(Key::page_up, Key::page_down, Key::home, Key::end, Key::home, Key::end));
    EXPECT_THAT(keys.feed("\x0c"), ElementsAre(Key::redraw));
}

TEST(KeyReader, ASequenceMayComeInPieces) {
    KeyReader keys;
    EXPECT_THAT(keys.feed("\x1b"), IsEmpty());
    EXPECT_THAT(keys.feed("["), IsEmpty());
    EXPECT_THAT(keys.feed("6"), IsEmpty());
    EXPECT_THAT(keys.feed("~q"), ElementsAre(Key::page_down, Key::quit));
}

TEST(KeyReader, WhatIsNoKnownSequenceIsOneKeyAndTheNextIsRead) {
    KeyReader keys;
    EXPECT_THAT(keys.feed("\x1b[1;5Cq"), ElementsAre(Key::other, Key::quit));
    EXPECT_THAT(keys.feed("\x1b[<0;10;20Mq"), ElementsAre(Key::other, Key::quit));
    EXPECT_THAT(keys.feed("\x1bq"), ElementsAre(Key::other));  // Alt-q
    EXPECT_THAT(keys.feed("\x1b[" + std::string(40, '1')).front(), Key::other);
}

TEST(KeyReader, AnEscapeAloneIsAKeyWhenNothingFollows) {
    KeyReader keys;
    EXPECT_THAT(keys.flush(), IsEmpty());
    keys.feed("\x1b");
    EXPECT_THAT(keys.flush(), ElementsAre(Key::other));
    EXPECT_THAT(keys.feed("q"), ElementsAre(Key::quit));
}

}  // namespace
}  // namespace lockstep::cli
