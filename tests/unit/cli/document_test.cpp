#include "job/cli/document.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

Json read_as(const std::string& name, const std::string& text) {
    const auto document = parse_document(name, text);
    EXPECT_TRUE(document.has_value()) << text << "\n" << (document ? "" : document.error().message);
    return document ? document->json : Json();
}

DocumentError refusal(const std::string& name, const std::string& text) {
    const auto document = parse_document(name, text);
    EXPECT_FALSE(document.has_value()) << text;
    return document ? DocumentError{} : document.error();
}

TEST(CliDocument, YamlSaysTheSameAsJson) {
    EXPECT_EQ(dump_json(read_as("a.yaml",
                                "# a comment\n"
                                "name: first\n"
                                "framework: pytorch\n"
                                "command: [python, train.py, --lr, 0.10, --flag, true]\n"
                                "resources:\n"
                                "  nodes: 2\n"
                                "  time_limit: 04:00:00\n"
                                "environment: {SEED: 1, OFF: no, EMPTY: }\n"
                                "preflight: {mode: on, pair_test: true}\n"
                                "watch: {straggler_score: 0.5}\n")),
              R"({"name":"first","framework":"pytorch",)"
              R"("command":["python","train.py","--lr","0.10","--flag","true"],)"
              R"("resources":{"nodes":2,"time_limit":"04:00:00"},)"
              R"("environment":{"SEED":"1","OFF":"no","EMPTY":""},)"
              R"("preflight":{"mode":"on","pair_test":true},"watch":{"straggler_score":0.5}})");
}

TEST(CliDocument, AnchorsAndMergesAreFollowed) {
    EXPECT_EQ(dump_json(read_as("a.yml",
                                "x: &small {nodes: 1, spares: 0}\n"
                                "resources: {<<: *small, nodes: 3}\n")),
              R"({"x":{"nodes":1,"spares":0},"resources":{"nodes":3,"spares":0}})");
}

// yaml-cpp reports an empty document at the comma again and again, and its LoadAll took all memory.
TEST(CliDocument, WhatCannotBeginADocumentIsRefusedAndNotReadForEver) {
    const DocumentError comma = refusal("a.yaml", ",");
    EXPECT_EQ(comma.message, "not YAML: nothing can begin with this");
    EXPECT_EQ(comma.place.line, 1U);
    EXPECT_EQ(comma.place.column, 1U);
    const DocumentError later = refusal("a.yaml", "--- {name: x}\n, y\n");
    EXPECT_EQ(later.message, "not YAML: nothing can begin with this");
    EXPECT_EQ(later.place.line, 2U);
    EXPECT_EQ(refusal("a.yaml", "a: 1\n---\nb: 2\n---\nc: 3\n").message,
              "must be one document, there are 3");
}

TEST(CliDocument, JsonMayHaveCommentsAndCommasAtTheEnd) {
    EXPECT_EQ(dump_json(read_as("a.json",
                                "{ // what it is\n"
                                "  \"name\": \"http://x, /* y */\", /* both\n lines */\n"
                                "  \"command\": [\"a\", \"b\",],\n"
                                "}\n")),
              R"({"name":"http://x, /* y */","command":["a","b"]})");
    EXPECT_EQ(dump_json(read_as("standard input", "\xEF\xBB\xBF{\"a\": 1}")), R"({"a":1})");
}

TEST(CliDocument, EveryValueKnowsItsPlace) {
    const auto json = parse_document("a.json", "{\n  \"resources\": {\n\t\"nodes\": \"2\"}}");
    ASSERT_TRUE(json.has_value());
    EXPECT_EQ(place_text(*json, json->values.at("/resources/nodes")), "a.json:3:11");
    EXPECT_EQ(place_text(*json, json->keys.at("/resources/nodes")), "a.json:3:2");
    const auto yaml = parse_document("a.yaml", "name: x\ncommand:\n  - a\n  - b c\n");
    ASSERT_TRUE(yaml.has_value());
    EXPECT_EQ(place_text(*yaml, yaml->values.at("/command/1")), "a.yaml:4:5");
}

TEST(CliDocument, WhatIsNoJsonIsPointedAt) {
    const DocumentError quotes = refusal("a.json", "{\n  'name': 1\n}");
    EXPECT_EQ(quotes.message, "not JSON: texts take double quotes");
    EXPECT_EQ(quotes.place.line, 2U);
    EXPECT_EQ(quotes.place.column, 3U);
    EXPECT_EQ(excerpt(quotes.line, quotes.place), "  2 |   'name': 1\n    |   ^");
    EXPECT_THAT(refusal("a.json", "{\"name\": first}").message, HasSubstr("text needs double"));
    EXPECT_THAT(refusal("a.json", "{\"a\": 1 \"b\": 2}").message, HasSubstr("a comma or a colon"));
    EXPECT_THAT(refusal("a.json", "{\"a\": [1").message, HasSubstr("ends too early"));
    EXPECT_THAT(refusal("a.json", "{\"a\": 1, \"a\": 2}").message, HasSubstr("appears twice"));
}

TEST(CliDocument, WhatIsNoYamlIsPointedAt) {
    const DocumentError twice = refusal("a.yaml", "name: a\nname: b\n");
    EXPECT_EQ(twice.message, "\"name\" is here twice");
    EXPECT_EQ(twice.place.line, 2U);
    const DocumentError open = refusal("a.yaml", "name: [a, b\nx: 1\n");
    EXPECT_THAT(open.message, HasSubstr("not YAML"));
    EXPECT_GT(open.place.line, 0U);
    EXPECT_THAT(refusal("a.yaml", "resources:\n\tnodes: 2\n").message, HasSubstr("not with tabs"));
    EXPECT_THAT(refusal("a.yaml", "just words\n").message, HasSubstr("neither YAML nor JSON"));
    EXPECT_THAT(refusal("a.yaml", "a: 1\n---\nb: 2\n").message, HasSubstr("one document"));
}

TEST(CliDocument, FilesOfAnotherKindAreToldApart) {
    EXPECT_THAT(refusal("x.json", " \n").message, HasSubstr("is empty"));
    EXPECT_THAT(refusal("train.py", "import torch\n").message,
                HasSubstr("lockstep run -- python3 train.py"));
    EXPECT_THAT(refusal("job.sh", "#!/bin/bash\n#SBATCH -N2\nsrun a\n").message,
                HasSubstr("batch script"));
}

// The page reads YAML, too (web/src/lib/yaml.ts): what either makes of a text is said once.
Json shared_texts() {
    std::ifstream file{LOCKSTEP_SOURCE_DIR "/web/test/yaml_texts.json"};
    return Json::parse(file);
}

TEST(CliDocument, YamlIsReadAsThePageReadsIt) {
    const Json texts = shared_texts();
    ASSERT_GE(texts["same"].size(), 10U);
    for (const Json& one : texts["same"]) {
        const auto text = one["text"].get<std::string>();
        EXPECT_EQ(read_as("a.yaml", text), one["value"]) << text;
    }
}

TEST(CliDocument, YamlIsRefusedAsThePageRefusesIt) {
    const Json texts = shared_texts();
    ASSERT_GE(texts["refused"].size(), 10U);
    for (const Json& one : texts["refused"]) {
        const auto text = one["text"].get<std::string>();
        const auto begin = std::chrono::steady_clock::now();
        const DocumentError error = refusal("a.yaml", text);
        EXPECT_THAT(error.message, HasSubstr(one["words"].get<std::string>())) << text;
        EXPECT_EQ(error.place.line, one.value("line", error.place.line)) << text;
        EXPECT_EQ(error.place.column, one.value("column", error.place.column)) << text;
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{20}) << text;
    }
}

TEST(CliDocument, ALongTextIsNotAThousandTimesThere) {
    const std::string text(400'000, 'x');
    std::string aliases;
    std::string ones;
    for (int i = 0; i < 1000; ++i) {
        aliases += "*a,";
        ones += "1,";
    }
    for (const std::string& many :
         {"a: &a " + text + "\nb: [" + aliases + "]\n", "? " + text + "\n: [" + ones + "]\n"}) {
        EXPECT_THAT(refusal("a.yaml", many).message, HasSubstr("too large"));
    }
    EXPECT_EQ(read_as("a.yaml", "a: " + text + "\nb: [" + ones + "]\n")["a"], text);
}

TEST(CliDocument, AMapHasNoMoreFieldsThanAnyOtherJson) {
    std::string fields;
    for (int i = 0; i < 1024; ++i) {
        fields += "k" + std::to_string(i) + ": x, ";
    }
    EXPECT_EQ(read_as("a.yaml", "{" + fields + "}\n").size(), 1024U);
    for (const std::string& many :
         {"{" + fields + "k: x}\n", "a: &a {" + fields + "}\nb: {<<: *a, c: 1}\n"}) {
        EXPECT_THAT(refusal("a.yaml", many).message, HasSubstr("more than 1024 fields in one map"));
    }
}

TEST(CliDocument, WhatYamlCannotTakeBetweenBracketsIsSaid) {
    EXPECT_THAT(refusal("a.yaml", "command: [curl, http://x/?a=b]\n").message,
                HasSubstr("text with ? in it needs quotes"));
}

TEST(CliDocument, AFieldThatIsAlsoMergedIsWhereItIsWritten) {
    const auto yaml = parse_document("a.yaml", "b: &b {x: 1, y: 2}\nc:\n  <<: *b\n  x: 3\n");
    ASSERT_TRUE(yaml.has_value());
    EXPECT_EQ(place_text(*yaml, yaml->keys.at("/c/x")), "a.yaml:4:3");
    EXPECT_EQ(place_text(*yaml, yaml->values.at("/c/x")), "a.yaml:4:6");
    EXPECT_EQ(place_text(*yaml, yaml->values.at("/c/y")), "a.yaml:1:17");
}

}  // namespace
}  // namespace lockstep::cli
