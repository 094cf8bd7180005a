#include "job/base/result.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace lockstep {
namespace {

Result<int> even(int number) {
    if (number % 2 != 0) {
        return fail(Errc::conflict, std::to_string(number) + " is odd");
    }
    return number;
}

Status is_small(int number) {
    return number < 10 ? Status{} : fail(Errc::exhausted, "too large");
}

// Of another value type, with a value that cannot be copied.
Result<std::unique_ptr<std::string>> text_of(int number, int& calls) {
    const auto checked = even(number);
    LOCKSTEP_TRY(checked);
    if (*checked != number)
        LOCKSTEP_TRY(is_small(-1));  // one statement, even where there are no braces
    else
        ++calls;
    LOCKSTEP_TRY((++calls, is_small(number)));
    return std::make_unique<std::string>(std::to_string(*checked));
}

TEST(ResultTry, PassesAnErrorOnAndEvaluatesOnce) {
    int calls = 0;
    const auto good = text_of(4, calls);
    ASSERT_TRUE(good);
    EXPECT_EQ(**good, "4");
    EXPECT_EQ(calls, 2);
    const auto odd = text_of(3, calls);
    ASSERT_FALSE(odd);
    EXPECT_EQ(odd.error().text(), "conflict: 3 is odd");
    EXPECT_EQ(calls, 2) << "nothing after it ran";
    const auto large = text_of(12, calls);
    ASSERT_FALSE(large);
    EXPECT_EQ(large.error().code, Errc::exhausted);
}

TEST(ResultTry, LeavesTheResultToItsOwner) {
    const Result<int> failed = fail(Errc::invalid, "kept");
    const auto pass = [&failed]() -> Result<std::string> {
        LOCKSTEP_TRY(failed);
        return std::string{};
    };
    EXPECT_EQ(pass().error().message, "kept");
    EXPECT_EQ(pass().error().message, "kept") << "copied, not moved";
}

}  // namespace
}  // namespace lockstep
