// What no framework's form fits: the word loss with a number, and step, batch and epoch anywhere in
// the line. Used by capture.hpp only; not thread-safe.
#pragma once

#include "job/model/spec/capture.hpp"

#include <re2/re2.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

class GenericCapture {
  public:
    GenericCapture();

    std::optional<CapturedLoss> match(std::string_view text) const;
    std::optional<std::int64_t> step(std::string_view text) const;
    std::optional<std::int64_t> epoch(std::string_view text) const;
    // Whether the loss whose number stands behind `lead` is one of a validation or a test.
    bool is_of_validation(std::string_view lead) const;
    // A line of JSON that says so of all that it has.
    bool is_of_other_split(std::string_view text) const;
    // Each once: a line may have means behind them.
    std::vector<std::pair<std::string, double>> parts(std::string_view text) const;

  private:
    struct Found {
        double loss = 0;
        int rank = 0;  // 1: it is added to another
    };
    std::optional<double> loss(re2::StringPiece text) const;
    std::optional<Found> ranked(re2::StringPiece text, const re2::StringPiece* groups) const;
    std::optional<CapturedLoss> at_a_count(re2::StringPiece text) const;
    void find_counts(re2::StringPiece text, CapturedLoss& out) const;
    std::optional<std::int64_t> number(const re2::RE2& expression, re2::StringPiece text) const;
    void find_batches(re2::StringPiece text, CapturedLoss& out) const;

    re2::RE2 loss_;
    re2::RE2 named_loss_;
    re2::RE2 at_;
    re2::RE2 after_;
    re2::RE2 step_;
    re2::RE2 leading_step_;
    re2::RE2 batch_;
    re2::RE2 epoch_;
    re2::RE2 rate_;
    re2::RE2 of_batches_;
    re2::RE2 bar_;
    re2::RE2 part_;
    re2::RE2 epochs_and_batches_;
    re2::RE2 not_training_;
    re2::RE2 training_word_;
    re2::RE2 other_split_;
    re2::RE2 summary_;
    re2::RE2 added_word_;
    re2::RE2 step_of_;
};

}  // namespace lockstep
