#include "job/cli/document.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(CliDocument, ADocumentThatGrowsWithoutEndIsRefused) {
    std::string bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n";
    for (char c = 'b'; c <= 'i'; ++c) {
        bomb += std::string(1, c) + ": &" + c + " [";
        for (int i = 0; i < 9; ++i) {
            bomb += std::string(i == 0 ? "*" : ",*") + static_cast<char>(c - 1);
        }
        bomb += "]\n";
    }
    EXPECT_THAT(refusal("a.yaml", bomb).message, HasSubstr("too large"));
}

}  // namespace
}  // namespace lockstep::cli
