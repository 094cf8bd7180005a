// Doubles as text that reads back as the same double. Pure; any thread.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

// Appends the shortest such text of a finite value: decimal between 1e-5 and 1e16, else with an
// exponent; valid in JSON and CSV. -0 is -0.0, which a reader of JSON takes for a double, too.
void append_number(std::string& out, double finite);
// The same without an exponent, for a time in seconds.
void append_decimal(std::string& out, double finite);
// Nothing for a NaN and for an infinity.
std::optional<double> if_finite(double value);

}  // namespace lockstep
