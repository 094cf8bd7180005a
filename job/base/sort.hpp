// A stable sort that every compiler takes: std::stable_sort and std::stable_partition of libstdc++
// 12 use std::get_temporary_buffer, which is deprecated, and clang 19 says so in libstdc++'s own
// header. A pragma silences it only around the first include of <algorithm> in a translation unit,
// which cannot be ensured from here. Any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace lockstep {

// Equal elements keep their order. O(n log n), and room for n more elements.
template <class T, class Less>
void sort_stably(std::vector<T>& values, Less less) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        if (less(values[a], values[b])) {
            return true;
        }
        return !less(values[b], values[a]) && a < b;
    });
    std::vector<T> out;
    out.reserve(values.size());
    for (const std::size_t index : order) {
        out.push_back(std::move(values[index]));
    }
    values = std::move(out);
}

}  // namespace lockstep
