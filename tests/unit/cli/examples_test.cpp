#include "job/base/files.hpp"
#include "job/base/json.hpp"
#include "job/model/spec/spec.hpp"
#include "job/model/spec/sweep.hpp"

#include <gtest/gtest.h>

#include <filesystem>

namespace lockstep {
namespace {

TEST(Examples, EverySpecificationThatIsShippedIsAccepted) {
    int seen = 0;
    const std::filesystem::path folder =
        std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "deploy" / "examples";
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() != ".json") {
            continue;
        }
        ++seen;
        const auto text = read_file(entry.path(), 1U << 20U);
        ASSERT_TRUE(text.has_value()) << entry.path();
        const auto json = parse_json(*text);
        ASSERT_TRUE(json.has_value()) << entry.path() << ": " << json.error().text();
        if (has_sweep(*json)) {
            const auto sweep = parse_sweep(*json);
            EXPECT_TRUE(sweep.has_value()) << entry.path() << ": " << sweep.error().text();
            continue;
        }
        const auto spec = parse_spec(*json);
        EXPECT_TRUE(spec.has_value()) << entry.path() << ": " << spec.error().text();
    }
    EXPECT_GE(seen, 3);
}

}  // namespace
}  // namespace lockstep
