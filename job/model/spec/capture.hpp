// Reads step, epoch and loss from what an unmodified script prints. Line by line, RE2 (linear time,
// so a user's pattern cannot hang the agent). One object per rank; not thread-safe.
#pragma once

#include "job/base/result.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

struct CapturedLoss {
    std::optional<std::int64_t> step;  // as printed: a batch or a step, see `step_is_batch`
    bool step_is_batch = false;        // the step starts again in every epoch: a batch number
    // tqdm's bar: the step is how many are done, and a draw may still have the loss of before.
    bool bar = false;
    // A bar that has the step of its loss in its words: the same step again is the same loss.
    bool redrawn = false;
    // How many there are, where the line says it (12/100): batches of this epoch, or steps.
    std::optional<std::int64_t> of;
    bool from_zero = false;  // its first epoch is 0
    std::optional<std::int64_t> epoch;
    double loss = 0;  // may be NaN or infinite
    // Which preset matched; "custom": a user's pattern; "generic" or "table": of no framework.
    std::string_view preset;
    // By metric: loss_d and loss_g of networks that are trained against each other, or what a
    // table's loss is the sum of, as YOLO's box_loss.
    std::vector<std::pair<std::string, double>> parts{};
};

// The presets by name: auto tries all, none captures nothing.
const std::vector<std::string_view>& capture_presets();
// invalid: does not compile, lacks the named group `loss`, or is longer than limits::kPatternBytes.
Status check_capture_pattern(const std::string& pattern);

class Capture {
  public:
    // `preset` and `pattern` must have passed the spec's checks.
    Capture(std::string_view preset, const std::string& pattern);
    ~Capture();
    Capture(Capture&&) noexcept;
    Capture& operator=(Capture&&) noexcept;

    // One line without its newline; only the first limits::kLineBytes are looked at. Progress bars
    // that rewrite a line with \r count as separate lines: split before calling.
    std::optional<CapturedLoss> line(std::string_view text);

  private:
    std::optional<CapturedLoss> match(std::string_view text) const;

    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
