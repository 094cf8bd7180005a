// What a person or a program submits: YAML, JSON with comments, and the specification in it. A
// specification that is taken is, in its canonical form, taken again and is the same one.
#include "job/base/json.hpp"
#include "job/cli/document.hpp"
#include "job/model/spec/spec.hpp"
#include "job/model/spec/sweep.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

void check_specification(const lockstep::Json& json) {
    const auto spec = lockstep::parse_spec(json);
    if (!spec) {
        return;
    }
    const lockstep::Json canonical = lockstep::to_json(*spec);
    const auto again = lockstep::parse_spec(canonical);
    if (!again || lockstep::to_json(*again) != canonical) {
        std::abort();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) {
        return 0;
    }
    const std::string text{reinterpret_cast<const char*>(data) + 1, size - 1};
    if (data[0] % 3 == 0) {  // as the daemon reads it
        if (const auto json = lockstep::parse_json(text)) {
            check_specification(*json);
        }
        return 0;
    }
    auto document = lockstep::cli::parse_document(data[0] % 3 == 1 ? "job.yaml" : "job.json", text);
    if (!document) {
        if (document.error().message.empty()) {
            std::abort();
        }
        return 0;
    }
    check_specification(document->json);
    return 0;
}
