// Turns what a rank prints into lines and the lines into reports (capture.hpp). One per rank,
// agent thread only.
//
// Steps: a printed step is taken as it is; one that begins again with the next epoch is counted on
// from where the epoch before has ended. So is a batch's number where the line says of how many
// (10/391), from the first epoch on where those count from 0 (Lightning's, PyTorch's ImageNet
// example, timm): a rank that goes on from a checkpoint then has the steps of before. Where a
// batch's number goes back a little, as two processes print it into one output, and for a print
// that has none, or no count of them, the step is the last one and 1; so those of batches always
// rise. Hugging Face's Trainer prints no step: it is what its progress bar shows, which is drawn
// again behind each print.
//
// A progress bar that draws the same batch again is not a new loss, unless it had moved on with the
// loss of before (update() and then set_postfix(), as Lightning does): then the second draw has it.
// Of a bar that has the step of its loss beside it (torchtune) each step is one report, at once.
//
// step_seconds is the time between two prints over the steps (or batches of one epoch) between
// them, if neither came in a burst with others; otherwise it is absent.
#pragma once

#include "job/agent/ranks/rank_message.hpp"
#include "job/model/spec/capture.hpp"
#include "job/model/spec/progress_bar.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

class OutputReader {
  public:
    // `world_size`: with more than one rank, lines of a rank that trains alone are noticed, and
    // with `one_world`, all ranks in one process group, those that say another size.
    explicit OutputReader(Capture capture, std::int32_t world_size = 1, bool one_world = true)
        : capture_(std::move(capture)),
          watches_(world_size > 1),
          world_size_(one_world ? world_size : 0) {}

    // Takes the next piece of output, read at `now` (seconds since the Unix epoch), and returns the
    // reports of the lines it completed.
    std::vector<RankReport> feed(std::string_view bytes, double now);
    // The output has ended: the last line may lack its newline.
    std::vector<RankReport> end(double now);
    // Once: a line said that this rank trains by itself, or in a world of another size.
    std::optional<std::string> take_warning() { return std::exchange(warning_, std::nullopt); }

  private:
    void line(double now, std::vector<RankReport>& out);
    void take(CapturedLoss found, double now, std::vector<RankReport>& out);
    // Of the one that waits, if any.
    void let_go(std::vector<RankReport>& out);
    void look_for_bar(std::vector<RankReport>& out);
    bool is_of_last(const CapturedLoss& found) const;
    RankReport number(const CapturedLoss& found, double now);
    // The steps, or batches of one epoch, since the print before; 0: nobody knows.
    std::int64_t since_last(const CapturedLoss& found) const;
    bool begins_again(const CapturedLoss& found) const;
    std::int64_t of_batch(const CapturedLoss& found);
    bool is_of_next_epoch(const CapturedLoss& found) const;

    Capture capture_;
    bool watches_;
    std::int32_t world_size_;  // 0: what a rank says of it is not compared
    std::optional<std::string> warning_;
    std::string partial_;  // at most limits::kLineBytes of the unfinished line
    struct Waiting {
        CapturedLoss found;
        double time = 0;
    };
    std::optional<Waiting> waiting_;  // for the bar's next draw
    std::optional<ProgressBar> bar_;  // that says no loss, as it was drawn last
    std::optional<CapturedLoss> last_;
    std::optional<CapturedLoss> numbered_;  // the last that had a step of its own
    double last_time_ = 0;
    std::int64_t count_ = 0;
    std::int64_t base_ = 0;  // the steps of the epochs before, where each begins again
    // The last batch of those that are counted by epochs.
    struct Batch {
        std::int64_t number = 0;
        std::int64_t of = 0;
        std::optional<std::int64_t> epoch;
        std::int64_t base = 0;  // the batches of the epochs before
        bool moved = false;     // there was another one before it in this epoch
    };
    std::optional<Batch> batch_;
};

}  // namespace lockstep
