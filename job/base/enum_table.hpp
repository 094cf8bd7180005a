// Checks at compile time that a table by an enumeration has a row for every enumerator. C++20
// cannot count them, so tables say their size by hand, and one that an enumerator was added without
// would be read past its end. For enumerations from 0 without gaps.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace lockstep {

// GCC and clang write an enumerator by its name and every other value as a cast: "(Kind)3".
template <auto Value>
constexpr bool is_enumerator() {
    constexpr std::string_view kBefore = "Value = ";
    const std::string_view text = static_cast<const char*>(__PRETTY_FUNCTION__);
    return text[text.find(kBefore) + kBefore.size()] != '(';
}

// Whether Enum has Count enumerators. Its underlying type must be fixed, as that of an enum class.
template <class Enum, std::size_t Count>
constexpr bool is_count_of() {
    return is_enumerator<static_cast<Enum>(Count - 1)>() &&
           !is_enumerator<static_cast<Enum>(Count)>();
}

// Whether there are as many names as enumerators, and none is "", with which a std::array fills up.
// Too few of const char* do not compile.
template <class Enum, class Name, std::size_t Count>
constexpr bool names_all_of(const std::array<Name, Count>& names) {
    for (const std::string_view name : names) {
        if (name.empty()) {
            return false;
        }
    }
    return is_count_of<Enum, Count>();
}

}  // namespace lockstep
