// Python stacks as faulthandler writes them, and what those of all ranks say together: equal ones
// are put into groups, and who is not where the others wait is the one they wait for. Pure; any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The main thread's calls in `text` (the output of one faulthandler signal), the newest first, a
// line each: "train.py:37 wait_for_data". What is not the user's own code (the standard library,
// site-packages) begins with "~ " and keeps its package: "~ torch/autograd/__init__.py:197
// backward". At most 16 calls.
// "" if there is none.
std::string main_python_stack(std::string_view text);
// One line for people: the newest call of the user's own code, and what it waits in if that is not
// the same: "train.py:39 main < torch/autograd/__init__.py:197 backward".
std::string python_frame(std::string_view stack);

struct RankStack {
    std::int32_t rank = 0;
    std::string stack;  // main_python_stack()'s
};
struct StackGroup {
    std::string place;   // "train.py:37 wait_for_data"
    std::string waits;   // the communication it waits in: "backward"; "" = none
    bool meets = false;  // in a call in which all ranks meet first: init_process_group
    std::vector<std::int32_t> ranks{};
};
struct StackVerdict {
    // Those that the others wait for; empty: the stacks do not show it.
    std::vector<std::int32_t> culprits{};
    // "rank 1 alone is in train.py:37 wait_for_data; 3 wait in backward". "" if there are no
    // stacks.
    std::string words{};
    std::vector<StackGroup> groups{};
};
// Ranks with an empty stack are left out.
StackVerdict compare_stacks(const std::vector<RankStack>& ranks);
// Whether ranks that have not made a step yet wait for each other: some are in a call in which all
// meet, and the others are somewhere else, or all are there and do not find each other. False where
// nobody meets: the ranks of many jobs never talk to each other, or take long to begin.
bool waits_to_meet(const StackVerdict& verdict);

}  // namespace lockstep
