#include "job/cli/explain.hpp"

#include "job/cli/fields.hpp"
#include "job/model/spec/spec_schema.hpp"
#include "job/model/state.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string explained(const std::string& path) {
    const auto lines = explain_field(Terminal{}, path);
    EXPECT_TRUE(lines.has_value()) << path;
    std::string out;
    for (const std::string& line : lines ? *lines : std::vector<std::string>{}) {
        out += line + "\n";
        EXPECT_LE(visible_width(line), 80U + 60U) << line;
    }
    return out;
}

TEST(Explain, AFieldHasItsTypeBoundsDefaultAndMeaning) {
    const std::string text = explained("resources.spares");
    EXPECT_THAT(text, HasSubstr("resources.spares\n  integer, 0..1024, default 0\n"));
    EXPECT_THAT(text, HasSubstr("takes the place of a node that is lost"));
}

TEST(Explain, AnObjectListsWhatLiesBelowItButNotDeeper) {
    const std::string text = explained("train");
    EXPECT_THAT(text, HasSubstr("  train.dataset  "));
    EXPECT_THAT(text, Not(HasSubstr("train.dataset.name")));
    EXPECT_THAT(explained(""), HasSubstr("  name  "));
}

TEST(Explain, EveryFieldIsFoundByItsPathAndAsPeopleWriteIt) {
    for (const SpecField& field : spec_fields()) {
        EXPECT_TRUE(explain_field(Terminal{}, field.path).has_value()) << field.path;
    }
    EXPECT_EQ(explained("/roles/count"), explained("roles[].count"));
    EXPECT_EQ(explained("roles[0].count"), explained("roles[].count"));
}

TEST(Explain, AWrongNameGetsTheNearest) {
    EXPECT_THAT(explain_field(Terminal{}, "spares").error().message,
                HasSubstr("did you mean resources.spares?"));
    EXPECT_THAT(explain_field(Terminal{}, "resources.node").error().message,
                HasSubstr("did you mean resources.nodes?"));
}

// --json printed the text for people.
TEST(Explain, ForProgramsItIsJson) {
    const auto field = explain_json("/resources/spares");
    ASSERT_TRUE(field);
    EXPECT_EQ(at(*field, "field"), "resources.spares");
    EXPECT_EQ(at(*field, "type"), "integer");
    EXPECT_EQ(at(*field, "required"), false);
    EXPECT_EQ(at(at(*field, "schema"), "maximum"), 1024);
    EXPECT_TRUE(at(*field, "fields").empty());
    const auto all = explain_json("");
    ASSERT_TRUE(all);
    EXPECT_EQ(at(at(*all, "fields").at(0), "field"), "name");
    const auto cause = explain_json("rank_exit");
    ASSERT_TRUE(cause);
    EXPECT_EQ(at(*cause, "cause"), "rank_exit");
    EXPECT_FALSE(at(*cause, "description").empty());
    EXPECT_EQ(explain_json("rank_exti").error().code, Errc::not_found);
}

TEST(Explain, EveryCauseHasAMeaning) {
    for (std::size_t i = 0; i < kCauseClasses; ++i) {
        const std::string name{to_string(static_cast<CauseClass>(i))};
        const std::string text = explained(name);
        EXPECT_THAT(text, HasSubstr(name + "\n  why a job, ")) << name;
        EXPECT_GT(text.size(), name.size() + 70) << name;
    }
    EXPECT_THAT(explained("rank_exit"), HasSubstr("lockstep logs ID --failed"));
    EXPECT_THAT(explain_field(Terminal{}, "rank_exti").error().message,
                HasSubstr("did you mean rank_exit?"));
}

TEST(Explain, TheManPageHasEveryField) {
    const std::string page = job_man_page("0", "today");
    for (const SpecField& field : spec_fields()) {
        std::string name = "\\fB" + field.path + "\\fR";
        EXPECT_THAT(page, HasSubstr(name));
    }
}

}  // namespace
}  // namespace lockstep::cli
