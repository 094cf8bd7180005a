// What a person or a program submits: YAML, JSON with comments, and the specification in it. A
// specification that is taken is, in its canonical form, taken again and is the same one. Bytes
// stand for themselves, or are written over a specification that is taken: chance alone finds none.
#include "job/base/json.hpp"
#include "job/cli/document.hpp"
#include "job/model/spec/spec.hpp"
#include "job/model/spec/sweep.hpp"
#include "tests/support/whole_spec.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

// Whether it was taken.
bool check_specification(const lockstep::Json& json) {
    const auto spec = lockstep::parse_spec(json);
    if (!spec) {
        return false;
    }
    const lockstep::Json canonical = lockstep::to_json(*spec);
    const auto again = lockstep::parse_spec(canonical);
    if (!again || lockstep::to_json(*again) != canonical) {
        std::abort();
    }
    return true;
}

void check_text(const std::string& text) {
    if (const auto json = lockstep::parse_json(text)) {
        check_specification(*json);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) {
        return 0;
    }
    const std::string text{reinterpret_cast<const char*>(data) + 1, size - 1};
    if (data[0] % 4 == 0) {  // as the daemon reads it
        check_text(text);
        return 0;
    }
    if (data[0] % 4 == 3) {
        static const bool taken =
            check_specification(*lockstep::parse_json(lockstep::test::kWholeSpec));
        if (!taken) {
            std::abort();  // and what is written over it would prove nothing
        }
        std::string changed = lockstep::test::kWholeSpec;
        // Two bytes where, one what.
        for (std::size_t at = 1; at + 3 <= size; at += 3) {
            changed[(data[at] + 256U * data[at + 1]) % changed.size()] =
                static_cast<char>(data[at + 2]);
        }
        check_text(changed);
        return 0;
    }
    auto document = lockstep::cli::parse_document(data[0] % 4 == 1 ? "job.yaml" : "job.json", text);
    if (!document) {
        if (document.error().message.empty()) {
            std::abort();
        }
        return 0;
    }
    check_specification(document->json);
    return 0;
}
