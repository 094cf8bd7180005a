// What the native trainer can be asked for, as data: one row for each model, data set, strategy, …
// From these rows the specification's reader takes its words, the schema its enums and their help,
// and job/trainer/README.md its tables (a test compares them). Constant data; any thread.
#pragma once

#include "job/base/json.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Rows are in the order of the enumerators in train_config.hpp. A word that is not built is refused
// by name ("is not available yet"); it is not offered.
struct TrainChoice {
    std::string_view word;
    bool built;
    std::string_view help;       // a sentence without its full stop: what it is
    std::string_view known_as;   // what the same thing is called elsewhere; may be empty
    std::int32_t layers = 0;     // models: the pieces that a pipeline can cut between
    std::string_view why_not{};  // not built: what the refusal says instead
};

using TrainChoices = std::span<const TrainChoice>;

TrainChoices train_models();
TrainChoices train_datasets();
TrainChoices train_strategies();
TrainChoices train_all_reduces();
TrainChoices train_updates();
TrainChoices train_optimizers();
TrainChoices train_precisions();
TrainChoices train_schedules();
TrainChoices train_exports();
TrainChoices train_losses();

// Sets "enum" and "description" of the fields in `properties` (the schema of TrainConfig) that the
// rows above are about.
void describe_train_choices(Json& properties);
// The rows as Markdown: one table for each field, the specification's word first.
std::string train_choices_markdown();

}  // namespace lockstep
