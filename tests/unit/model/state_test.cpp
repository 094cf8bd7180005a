// The states of a job as other files have them, which are not made from kJobStateRows.
#include "job/model/state.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

std::string text_of(const std::string& name) {
    std::ifstream file{LOCKSTEP_SOURCE_DIR "/" + name};
    EXPECT_TRUE(file) << name;
    return {std::istreambuf_iterator<char>{file}, {}};
}

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
    const auto from = text.find(begin);
    EXPECT_NE(from, std::string::npos) << begin;
    const auto to = text.find(end, from);
    EXPECT_NE(to, std::string::npos) << end;
    return from == std::string::npos ? "" : text.substr(from, to - from);
}

std::vector<std::string> words(const std::string& text, const std::string& pattern) {
    const std::regex word{pattern};
    std::vector<std::string> out;
    for (std::sregex_iterator one{text.begin(), text.end(), word}; one != std::sregex_iterator{};
         ++one) {
        out.push_back((*one)[1]);
    }
    return out;
}

std::vector<std::string> names(bool final_only) {
    std::vector<std::string> out;
    for (const JobStateRow& row : kJobStateRows) {
        if (row.final || !final_only) {
            out.emplace_back(row.name);
        }
    }
    return out;
}

TEST(JobStates, ThePageKnowsEach) {
    const std::string type = between(text_of("web/src/types.ts"), "export type JobState =", ";");
    EXPECT_THAT(words(type, "'([a-z]+)'"), UnorderedElementsAreArray(names(false)));
    const std::string looks = between(text_of("web/src/ui/basics.tsx"), "const kStates", "\n};");
    for (const std::string& name : names(false)) {
        EXPECT_THAT(looks, HasSubstr(" " + name + ": {sign:"));
    }
}

TEST(JobStates, ThePythonPackageKnowsWhichAreFinal) {
    const std::string line =
        between(text_of("job/rank/python/lockstep/daemon.py"), "\nFINAL = ", ")");
    EXPECT_THAT(words(line, "\"([a-z]+)\""), UnorderedElementsAreArray(names(true)));
}

TEST(JobStates, TheDiagramHasEach) {
    const std::string diagram = between(text_of("job/README.md"), "## States", "## Events");
    for (const std::string& name : names(false)) {
        EXPECT_THAT(diagram, HasSubstr(name));
    }
}

TEST(JobStates, DashboardsAndAlertsAskForStatesThatThereAre) {
    for (const char* file : {"deploy/grafana/dashboards/lockstep-fleet.json",
                             "deploy/prometheus/lockstep.alerts.yml"}) {
        const auto asked =
            words(text_of(file), R"re(lockstep_job(?:s|_state)\{[^}]*state=~?\\?"([a-z|]+))re");
        EXPECT_FALSE(asked.empty()) << file;
        for (const std::string& either : asked) {
            for (const std::string& name : words(either, "([a-z]+)")) {
                EXPECT_TRUE(parse_job_state(name)) << file << ": " << name;
            }
        }
    }
}

}  // namespace
}  // namespace lockstep
