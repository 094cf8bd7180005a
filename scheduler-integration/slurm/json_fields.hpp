// Reading the values of Slurm's JSON, whose shapes differ between releases. Used by slurm_json.cpp
// and the parsers of slurmrestd's answers only. Pure; any thread. The results point into `value`.
#pragma once

#include "job/base/json.hpp"
#include "scheduler-integration/slurm/slurm_errors.hpp"
#include "scheduler-integration/slurm/slurm_state.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::json_fields {

// nullptr when it is not there, null, or `object` is no object.
const Json* member(const Json& object, const char* key);
// The same along keys: at(record, {"time", "start"}).
const Json* at(const Json& object, std::initializer_list<const char*> keys);
// "" for what is no string.
std::string_view text_of(const Json* value);
// A plain integer (to 22.05), or {"set", "infinite", "number"} (from 23.02); absent where it is not
// set or infinite.
std::optional<std::int64_t> number_of(const Json* value);
// The strings of an array, or one string split at its commas; at most `cap`.
std::vector<std::string> words_of(const Json* value, std::size_t cap = 1024);

struct ExitStatus {
    std::optional<int> code;
    std::optional<int> signal;
};
// The raw wait status (to v0.0.39), or {"status", "return_code", "signal": {"id"}} (v0.0.40 on, and
// slurmdbd's in all).
ExitStatus exit_of(const Json* value);
// One word, or the array of them; absent when it is neither.
std::optional<SlurmState> state_of(const Json* value);

// Of the arrays `errors` and `warnings`: what each says, cleaned for a person, at most 16.
std::vector<std::string> messages(const Json* value);
// Of `errors`, in the same order and as many: by error_number; one without a number (a list of
// plain sentences) by its sentence.
std::vector<SlurmError> errors_of(const Json* value);

// What every document says about who wrote it.
struct Meta {
    std::string data_parser;    // "v0.0.40"; empty where the document does not tell
    std::string slurm_release;  // "24.05.2"
    std::string cluster;        // from v0.0.40 on
    // "accounting_storage/slurmdbd", from v0.0.40 on; absent: not told.
    std::optional<std::string> accounting_storage;
};
Meta meta_of(const Json& document);

}  // namespace lockstep::json_fields
