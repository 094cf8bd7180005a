#include "job/cli/caller.hpp"

#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>
#include <vector>

namespace lockstep::cli {
namespace {

using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Caller somebody() {
    Caller out;
    out.directory = "/home/me/run";
    out.environment = {{"HOME", "/home/me"},
                       {"PATH", "/usr/bin:/bin"},
                       {"DATA", "/scratch/d"},
                       {"TERM", "xterm"},
                       {"LOCKSTEP_TOKEN", "lks_x"}};
    return out;
}

TEST(CliCaller, VariablesAreExpandedAsTheyAreHere) {
    const Caller me = somebody();
    EXPECT_EQ(expand_variables("/opt/bin:$PATH", me), "/opt/bin:/usr/bin:/bin");
    EXPECT_EQ(expand_variables("${DATA}x$$HOME cost $5 $", me), "/scratch/dx$HOME cost $5 $");
    const auto missing = expand_variables("$NOT_HERE", me);
    ASSERT_FALSE(missing.has_value());
    EXPECT_EQ(missing.error().message, "$NOT_HERE is not set here; $$ is a dollar sign");
}

TEST(CliCaller, PathsAreWhereTheCallerIs) {
    const Caller me = somebody();
    EXPECT_EQ(resolve_path(".", me, me.directory), "/home/me/run");
    EXPECT_EQ(resolve_path("../data/", me, me.directory), "/home/me/data");
    EXPECT_EQ(resolve_path("~", me, me.directory), "/home/me");
    EXPECT_EQ(resolve_path("~/x", me, me.directory), "/home/me/x");
    EXPECT_EQ(resolve_path("$DATA/x", me, me.directory), "/scratch/d/x");
    EXPECT_EQ(resolve_path("/a/./b", me, me.directory), "/a/b");
}

TEST(CliCaller, TheRecordHasWhatTheRanksNeedAndNothingOfTheSession) {
    Caller me = somebody();
    me.environment["BAD"] = "\xFF\xFE";
    me.environment["BASH_FUNC_module%%"] = "() { :; }";
    me.environment["BASH_FUNC_x()"] = "old";
    me.environment["HUGE"] = std::string(limits::kEnvironmentBytes + 1, 'x');
    const Recorded recorded = record_environment(me);
    EXPECT_EQ(dump_json(recorded.variables),
              R"x({"BASH_FUNC_module%%":"() { :; }","DATA":"/scratch/d","HOME":"/home/me",)x"
              R"x("PATH":"/usr/bin:/bin"})x");
    EXPECT_EQ(recorded.stayed, 3U);  // TERM, LOCKSTEP_TOKEN, BASH_FUNC_x()
    EXPECT_THAT(recorded.left_out, ElementsAre("BAD: it is not UTF-8", HasSubstr("HUGE: 64 KiB")));
}

TEST(CliCaller, OfTooLargeAnEnvironmentTheLargestStay) {
    Caller me = somebody();
    for (int i = 0; i < 6; ++i) {
        me.environment["BIG" + std::to_string(i)] = std::string(60'000, 'x');
    }
    const Recorded recorded = record_environment(me);
    EXPECT_LE(recorded.bytes, limits::kRecordedEnvironmentBytes);
    EXPECT_EQ(recorded.left_out.size(), 2U);
    EXPECT_TRUE(recorded.variables.contains("PATH"));
}

TEST(CliCaller, AnEnvironmentThatIsOnlyNamedComesFirstInPath) {
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder / "venv/bin");
    ASSERT_TRUE(write_file_atomic(folder / "venv/bin/python", "", 0755));
    const std::string programs = (folder / "venv/bin").string();
    Caller me = somebody();
    me.environment["VIRTUAL_ENV"] = (folder / "venv").string();
    EXPECT_EQ(record_environment(me).variables["PATH"], programs + ":/usr/bin:/bin");
    EXPECT_EQ(find_on_path("python", me), programs + "/python");
    me.environment["PATH"] = "/bin:" + programs;  // the caller has said in which order
    EXPECT_EQ(record_environment(me).variables["PATH"], "/bin:" + programs);
}

// `command: [python, train.py]` handed in from an activated environment ran with the node's Python,
// or none, and nothing had said so.
TEST(CliCaller, APythonOfAnActiveEnvironmentThatTheJobDoesNotGetIsAWarning) {
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder / "venv/bin");
    for (const char* name : {"python", "torchrun"}) {
        ASSERT_TRUE(write_file_atomic(folder / "venv/bin" / name, "", 0755));
    }
    const std::string programs = (folder / "venv/bin").string();
    const auto notes_of = [&](const char* text, const char* variable = "VIRTUAL_ENV") {
        Caller me = somebody();
        me.environment[variable] = (folder / "venv").string();
        Json spec = parse_json(text).value();
        std::vector<std::string> notes;
        std::vector<FieldError> errors;
        complete_spec(spec, me, notes, errors);
        return notes;
    };
    for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
        EXPECT_THAT(notes_of(R"({"command":["python","/w/train.py"]})", variable),
                    ElementsAre("warning: the job does not get this shell's environment: python "
                                "may be another one there than " +
                                programs + "/python, or none. inherit_environment: true gives it"));
    }
    EXPECT_THAT(notes_of(R"({"command":["torchrun","/w/train.py"]})"),
                ElementsAre(HasSubstr("torchrun may be")));
    for (const char* said :
         {R"({"command":["python","/w/t.py"],"inherit_environment":true})",
          R"({"command":["python","/w/t.py"],"inherit_environment":false})",
          R"({"command":["python","/w/t.py"],"setup":". /venv/bin/activate"})",
          R"({"command":["python","/w/t.py"],"container":{"image":"x.sif"}})",
          R"({"command":["python","/w/t.py"],"environment":{"PATH":"/venv/bin"}})",
          R"({"command":["/usr/bin/python3","/w/t.py"]})", R"({"command":["sh","-c","true"]})",
          R"({"command":[]})", R"({"command":[3]})", R"({"command":"python"})", R"({})"}) {
        EXPECT_THAT(notes_of(said), ElementsAre()) << said;
    }
    EXPECT_THAT(notes_of(R"({"command":["python","/w/t.py"]})", "OTHER"), ElementsAre());
}

// The name of the script was read after a new member had moved the others: with 1, 2, 4, 8 of them,
// where the members' memory grows, submit ended with std::bad_alloc.
TEST(CliCaller, TheNoteOfTheDirectoryNamesTheScriptHoweverManyFieldsThereAre) {
    const TemporaryFolder folder;
    Caller me = somebody();
    me.directory = folder.path().string();
    const std::string script = "train_a_network_of_many_layers.py";
    ASSERT_TRUE(write_file_atomic(folder / script, ""));
    for (std::size_t fields = 1; fields <= 16; ++fields) {
        Json spec = Json::object();
        spec["command"] = Json::array({"python", script});
        for (std::size_t i = 1; i < fields; ++i) {
            spec["label" + std::to_string(i)] = "x";
        }
        std::vector<std::string> notes;
        std::vector<FieldError> errors;
        complete_spec(spec, me, notes, errors);
        EXPECT_THAT(
            notes, ElementsAre("working_directory: " + me.directory + ", where " + script + " is"));
        EXPECT_EQ(spec["working_directory"], me.directory);
    }
}

// LOCKSTEP_PYTHON_HOOKS=off lockstep submit ran with the hooks: run carries both, submit neither.
TEST(CliCaller, ASpecificationThatInheritsGetsLockstepsVariablesThatAreForTheRanks) {
    Caller me = somebody();
    me.environment["LOCKSTEP_PYTHON_HOOKS"] = "off";
    me.environment["LOCKSTEP_NCCL_INSPECTOR"] = "/opt/$nccl/inspector.so";
    const auto completed = [&](const char* text) {
        Json spec = parse_json(text).value();
        std::vector<std::string> notes;
        std::vector<FieldError> errors;
        complete_spec(spec, me, notes, errors);
        EXPECT_TRUE(errors.empty()) << text;
        return spec;
    };
    Json spec = completed(R"({"command":["/bin/true"],"inherit_environment":true})");
    EXPECT_EQ(
        dump_json(spec["environment"]),
        R"({"LOCKSTEP_PYTHON_HOOKS":"off","LOCKSTEP_NCCL_INSPECTOR":"/opt/$$nccl/inspector.so"})");
    EXPECT_FALSE(spec["recorded_environment"].contains("LOCKSTEP_PYTHON_HOOKS"));
    spec = completed(R"({"command":["/bin/true"],"inherit_environment":true,
                         "environment":{"LOCKSTEP_PYTHON_HOOKS":"on"}})");
    EXPECT_EQ(spec["environment"]["LOCKSTEP_PYTHON_HOOKS"], "on") << "it says so itself";
    EXPECT_EQ(spec["environment"]["LOCKSTEP_NCCL_INSPECTOR"], "/opt/$$nccl/inspector.so");
    EXPECT_FALSE(completed(R"({"command":["/bin/true"]})").contains("environment"));
    // What is no object is the daemon's to refuse.
    EXPECT_EQ(completed(R"({"inherit_environment":true,"environment":3})")["environment"], 3);
}

// images/torch.sif was sent as it is, and the ranks looked for it in their working directory.
TEST(CliCaller, AnImageThatIsAFileHereIsThatFileAndOthersAreNames) {
    const TemporaryFolder folder;
    Caller me = somebody();
    me.directory = folder.path().string();
    me.environment["TAG"] = "24.01";
    std::filesystem::create_directories(folder / "images/ubuntu");
    ASSERT_TRUE(write_file_atomic(folder / "images/torch-24.01.sif", ""));
    const std::string here = me.directory + "/";
    for (const auto& [given, image] : std::vector<std::pair<std::string, std::string>>{
             {"images/torch-24.01.sif", here + "images/torch-24.01.sif"},
             {"images/torch-$TAG.sif", here + "images/torch-24.01.sif"},
             {"./none.sif", here + "none.sif"},
             {"~/x.sif", "/home/me/x.sif"},
             {"$DATA/x.sif", "/scratch/d/x.sif"},
             {"/images/x.sif", "/images/x.sif"},
             {"images/none.sif", "images/none.sif"},
             {"images/ubuntu", "images/ubuntu"},
             {"docker://ubuntu:$TAG", "docker://ubuntu:24.01"},
             {"nvcr.io#nvidia/pytorch:24.01-py3", "nvcr.io#nvidia/pytorch:24.01-py3"}}) {
        Json spec = parse_json(R"({"working_directory":"/w"})").value();
        spec["container"]["image"] = given;
        std::vector<std::string> notes;
        std::vector<FieldError> errors;
        complete_spec(spec, me, notes, errors);
        EXPECT_TRUE(errors.empty()) << given;
        EXPECT_EQ(spec["container"]["image"], image) << given;
    }
}

TEST(CliCaller, ASpecificationIsCompletedFromWhereTheCallerIs) {
    const TemporaryFolder folder;
    Caller me = somebody();
    me.directory = folder.path().string();
    ASSERT_TRUE(write_file_atomic(folder / "train.py", ""));
    Json spec = parse_json(R"({"command":["python","train.py"],
        "checkpoint":{"directory":"ckpt"},"environment":{"P":"/x:$PATH","D":"a$$b"},
        "train":{"dataset":{"path":"~/data"}},"inherit_environment":true})")
                    .value();
    std::vector<std::string> notes;
    std::vector<FieldError> errors;
    complete_spec(spec, me, notes, errors);
    EXPECT_TRUE(errors.empty());
    EXPECT_EQ(spec["working_directory"], me.directory);
    EXPECT_THAT(notes, ElementsAre(HasSubstr("where train.py is")));
    EXPECT_EQ(spec["checkpoint"]["directory"], me.directory + "/ckpt");
    EXPECT_EQ(spec["train"]["dataset"]["path"], "/home/me/data");
    EXPECT_EQ(spec["environment"]["P"], "/x:/usr/bin:/bin");
    EXPECT_EQ(spec["environment"]["D"], "a$$b");  // the daemon makes one of two
    EXPECT_EQ(spec["recorded_environment"]["DATA"], "/scratch/d");

    spec = parse_json(R"({"working_directory":"sub","environment":{"P":"$NOPE"},
        "container":{"image":"./a.sif","mounts":["data:/data:ro","$DATA"]}})")
               .value();
    notes.clear();
    complete_spec(spec, me, notes, errors);
    EXPECT_EQ(spec["working_directory"], me.directory + "/sub");
    EXPECT_EQ(spec["container"]["image"], me.directory + "/a.sif");
    EXPECT_EQ(dump_json(spec["container"]["mounts"]), "[\"" + me.directory +
                                                          "/data:/data:ro\","
                                                          "\"/scratch/d:/scratch/d\"]");
    ASSERT_EQ(errors.size(), 1U);
    EXPECT_EQ(errors[0].pointer, "/environment/P");
}

}  // namespace
}  // namespace lockstep::cli
