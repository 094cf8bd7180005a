#include "job/cli/option_names.hpp"

#include "job/cli/spec_file.hpp"
#include "job/model/spec/spec_schema.hpp"
#include "tests/unit/cli/fake_daemon.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

Document made(MadeBy by, const std::string& json) {
    Document out;
    out.made_by = by;
    out.json = *parse_json(json);
    return out;
}

TEST(CliOptionNames, AFieldIsCalledByTheOptionThatMadeIt) {
    const Document run =
        made(MadeBy::run, R"({"resources":{"time_limit":"5x","nodes":2,"memory_mb_per_node":1},
        "slurm":{"constraint":"a b","directives":{"nodes":"3"}},
        "notify":["mail","pigeon:x"],"secrets":["A B"],"environment":{"A":"hidden"},
        "labels":{"a/b":"c"},"command":["torchrun","--nnodes"],"setup":"",
        "sweep":{"parameters":{"lr":[1],"resources.nodes":[0]}}})");
    for (const auto& [pointer, name] : {std::pair{"/resources/time_limit", "--time 5x"},
                                        {"/resources/memory_mb_per_node", "--mem 1"},
                                        {"/slurm/constraint", "--constraint a b"},
                                        {"/slurm/directives/nodes", "--sbatch nodes=3"},
                                        {"/notify/1", "--notify pigeon:x"},
                                        {"/notify", "--notify"},
                                        {"/secrets/0", "--secret A B"},
                                        {"/environment/A", "--env A"},
                                        {"/labels/a~1b", "--label a/b=c"},
                                        {"/command/1", "COMMAND --nnodes"},
                                        {"/setup", "--setup \"\""},
                                        {"/sweep/parameters/lr", "--sweep lr"},
                                        {"/sweep", "--sweep"},
                                        {"/resources/nodes", "--sweep resources.nodes"},
                                        {"/resources", "--nodes, --ranks-per-node"},
                                        {"/resources/spares", "/resources/spares"},
                                        {"/namely", "/namely"},
                                        {"/watch/hang_seconds", "/watch/hang_seconds"},
                                        {"", ""}}) {
        EXPECT_EQ(name_of_field(run, pointer), name);
    }
    const Document check = made(MadeBy::check, R"({"resources":{"gpus_per_node":9}})");
    EXPECT_EQ(name_of_field(check, "/resources/gpus_per_node"), "--gpus 9");
    EXPECT_EQ(name_of_field(check, "/slurm/account"), "--account");
    EXPECT_EQ(name_of_field(check, "/name"), "/name") << "no option of its own";
    const Document file = made(MadeBy::file, R"({"resources":{"time_limit":"5x"}})");
    EXPECT_EQ(name_of_field(file, "/resources/time_limit"), "/resources/time_limit");
}

TEST(CliOptionNames, FieldsThatAMessageNamesAreCalledSoToo) {
    const Document run = made(MadeBy::run, "{}");
    EXPECT_EQ(with_option_names(run, "must be less than /resources/time_limit, 1:00"),
              "must be less than --time, 1:00");
    EXPECT_EQ(with_option_names(run, "A is in /environment, too"), "A is in --env, too");
    EXPECT_EQ(with_option_names(run, "no /resources/nodes_x, /a/resources/nodes, /name"),
              "no /resources/nodes_x, /a/resources/nodes, /name");
    const Document file = made(MadeBy::file, "{}");
    EXPECT_EQ(with_option_names(file, "see /resources/nodes"), "see /resources/nodes");
}

// `jobs --label x` was refused as ?label, and what was said stood there twice.
TEST(CliOptionNames, AParameterIsCalledByItsOption) {
    Options options;
    options.ranks = "7";
    options.expires = "9d";
    EXPECT_EQ(name_of_parameter(options, "?ranks"), "--rank 7");
    EXPECT_EQ(name_of_parameter(options, "/expires_in"), "--expires 9d");
    EXPECT_EQ(name_of_parameter(options, "/scopes"), "--scope");
    EXPECT_EQ(name_of_parameter(options, "?cursor"), "?cursor");
    FakeDaemon daemon;
    Cli cli(daemon);
    cli.options.ranks = "7";
    for (const char* message : {"?ranks: there is no 7", "ranks: there is no 7"}) {
        report(cli.context, {Errc::invalid, message, {{"?ranks", "there is no 7"}}});
    }
    EXPECT_EQ(cli.err.str(), "error: --rank 7: there is no 7\nerror: --rank 7: there is no 7\n");
}

// `run -t 5x` was refused by /resources/time_limit.
TEST(CliOptionNames, ARefusalSaysTheOption) {
    FakeDaemon daemon;
    Cli cli(daemon);
    const Document run = made(MadeBy::run, R"({"resources":{"time_limit":"5x"},"notify":["x"]})");
    EXPECT_EQ(
        report_mistakes(cli.context, run, field_errors({{"/resources/time_limit", "is no time"}})),
        Exit::usage);
    EXPECT_EQ(cli.err.str(), "error: --time 5x: is no time\n");
    report_mistakes(cli.context, run,
                    field_errors({{"/resources/time_limit", "is no time"}, {"/notify/0", "no"}}));
    EXPECT_THAT(cli.err.str(), HasSubstr("error: 2 mistakes\n--time 5x: is no time\n--notify x: "));
}

}  // namespace
}  // namespace lockstep::cli
