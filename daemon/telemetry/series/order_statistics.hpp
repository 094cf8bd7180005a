// Exact k-th order statistics without sorting: of 10,000 numbers that lie as
// measurements do, in a fraction of std::nth_element's time, the more so for several places of the
// same numbers. Owns the numbers; any thread, one at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::telemetry {

// The middle one; of an even number the mean of the two. Not empty, all finite; their order is
// another afterwards.
double median_of(std::vector<float>& values);

class OrderStatistics {
  public:
    // Not empty, all finite.
    explicit OrderStatistics(std::vector<double> values);

    double lowest() const { return low_; }
    double highest() const { return high_; }
    // What would be at `place` (from 0) if they were sorted.
    double at(std::size_t place) { return find(place).value; }
    // The middle one; of an even number the mean of the two.
    double median();

  private:
    struct Place {
        double value = 0;
        std::optional<double> before;  // the one before it; nothing: it was not seen on the way
    };
    Place find(std::size_t place);

    static constexpr std::size_t kParts = 1024;
    std::vector<double> values_;
    double low_ = 0;
    double high_ = 0;
    // The range is cut into equal parts; which one each value is in, empty = that is of no use.
    // The part grows with the value, whatever is rounded: the parts are in order, and only the one
    // with the place has to be looked at.
    std::vector<std::uint16_t> parts_;
    std::array<std::uint32_t, kParts> counts_{};
};

}  // namespace lockstep::telemetry
