#include "job/base/enum_table.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep {
namespace {

enum class Colour : std::uint8_t { red, green, blue };

TEST(EnumTable, AnEnumeratorAddedWithoutItsCountIsNoticed) {
    EXPECT_TRUE((is_count_of<Colour, 3>()));
    EXPECT_FALSE((is_count_of<Colour, 2>())) << "there is one more";
    EXPECT_FALSE((is_count_of<Colour, 4>())) << "there is one less";
}

TEST(EnumTable, ANameLeftOutIsNoticed) {
    using Three = std::array<std::string_view, 3>;
    EXPECT_TRUE(names_all_of<Colour>(Three{"red", "green", "blue"}));
    EXPECT_FALSE(names_all_of<Colour>(Three{"red", "green"})) << "the last is \"\"";
    EXPECT_FALSE(names_all_of<Colour>(std::array<std::string_view, 2>{"red", "green"}));
    EXPECT_TRUE(names_all_of<Colour>(std::array{"red", "green", "blue"}));
}

}  // namespace
}  // namespace lockstep
