// Counts of progress bars as tqdm draws them. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

struct ProgressBar {
    std::int64_t done = 0;
    std::int64_t total = 0;
};

// Of a line that begins with one without a description, as that of Hugging Face's Trainer:
// " 20%|██        | 5/25 [00:01<00:06,  2.93it/s]".
std::optional<ProgressBar> parse_progress_bar(std::string_view line);

// Whether this is the bar of Lightning itself, whose epochs count from 0: v_num is of its loggers.
// Another program's bar may be called "Epoch 1", too.
bool is_lightnings_own_bar(std::string_view line);

}  // namespace lockstep
