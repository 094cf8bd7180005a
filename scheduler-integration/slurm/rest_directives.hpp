// The #SBATCH lines of a batch script of ours, and what sbatch reads in their values. Pure, but for
// the machine's time zone; any thread.
#pragma once

#include "job/base/result.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::rest {

struct Directive {
    std::string option;  // without its dashes
    std::string value;   // "" = a switch
};
// The `#SBATCH --option[=value]` lines before the first command, in order. invalid: one of another
// form, or an option twice; also #SLURM, #PBS and #BSUB lines, which sbatch would obey too.
Result<std::vector<Directive>> read_directives(std::string_view script);

// "500M" → 500. Without a unit megabytes, as sbatch's --mem and --tmp.
std::optional<std::int64_t> megabytes(std::string_view text);
// sbatch's "now", "now+30minutes" and local "2027-01-02[T03:04[:05]]" as Unix seconds. Its other
// forms (noon, teatime, 16:00) are not.
std::optional<std::int64_t> point_in_time(const std::string& text, std::int64_t now);

}  // namespace lockstep::rest
