// Losses that are printed as tables, or under a line that has their step. One object per rank, for
// capture.hpp only; not thread-safe.
//
//   Epoch GPU_mem box_loss obj_loss cls_loss Instances Size    YOLO's columns, whose rows end in a
//   0/299   3.45G  0.0452   0.0731   0.0181       123  640: 12%|█▏   | 12/100 [00:12<01:28]    bar
//   epoch  train_loss  valid_loss  time                        fastai's
//   Iter       Train Loss   Remaining Time                     scikit-learn's GradientBoosting
//   -------------------                                        boxes of Stable-Baselines3, OpenAI
//   | train/ |        |
//   |   loss | 0.0123 |
//   -------------------
//   [step=10/1000,epoch=0]                                     OLMo's and Composer's blocks
//       train/CrossEntropyLoss=10.2
#pragma once

#include "job/model/spec/capture.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// What the rows of a box have said so far.
struct LossBox {
    std::optional<double> loss;
    std::optional<double> policy;  // of those that have no loss as a whole
    std::optional<std::int64_t> step;
    std::optional<std::int64_t> epoch;
    int step_rank = 0;
    bool other = false;  // the rows of this group are a validation's
    std::vector<std::pair<std::string, double>> parts{};
};

class LossTable {
  public:
    // Whether row() and head() should see the line. Asked of every line of the output: looks at two
    // of its characters, and further only where these fit.
    bool wants(std::string_view text) const;
    // A line that it does not want: no box goes on beneath it, and a block not for ever.
    void interrupt();
    // The row's loss, or the box's that it ends. `mine`: the line is one of a table.
    std::optional<CapturedLoss> row(std::string_view text, bool& mine);
    // Of lines in which no loss was found: what a block says of its step, and the names of columns.
    void head(std::string_view text);
    void header(std::string_view text);
    // The step of the block that this loss is the first of, if it has none of its own.
    void place(CapturedLoss& found);

  private:
    struct Column {
        std::size_t index = 0;
        std::string name;
    };
    std::optional<CapturedLoss> of_columns(std::string_view text) const;
    std::optional<CapturedLoss> boxed(std::string_view text, bool& mine);

    std::size_t width_ = 0;               // columns; 0: no header was seen
    enum class Rows { bar, time, left };  // how they end: YOLO's, fastai's, scikit-learn's
    Rows rows_ = Rows::bar;
    std::vector<Column> columns_;
    std::optional<LossBox> box_;
    int block_lines_ = 0;  // since its head
    std::optional<std::int64_t> block_step_;
    std::optional<std::int64_t> block_epoch_;
};

}  // namespace lockstep
