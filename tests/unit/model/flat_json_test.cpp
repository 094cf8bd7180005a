// Reading and writing messages without a document must be what it is with one.
#include "job/model/wire/flat_json.hpp"

#include "job/model/wire/wire.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::vector<std::string> spoken_by_agents() {
    const wire::Exited exited{3, 1, 2, -1, 9, true, false, 123, "a tail"};
    return {wire::encode(wire::AgentMessage{
                wire::Hello{1, 2, "n2", 42, "abc", "4711", "0.1", 3, true, 17, true, true}}),
            wire::encode(wire::AgentMessage{wire::Join{"10.0.0.1", 1, 8, 2, 1, {5000, 5001}, 3}}),
            wire::encode(wire::AgentMessage{wire::Ready{4}}),
            wire::encode(wire::AgentMessage{wire::Started{1, {{0, 11}, {1, 12, true}}}}),
            wire::encode(wire::AgentMessage{exited}),
            wire::encode(wire::AgentMessage{wire::Done{7, 1}}),
            wire::encode(wire::AgentMessage{wire::Beat{100, -1, 3}})};
}

// The same message in a text that only a document is made of.
std::string for_a_document(const std::string& text) {
    return "{\"later\":null," + text.substr(1);
}

TEST(FlatJson, TheMessagesOfEveryGenerationAndSecondAreReadWithoutADocument) {
    FlatObject flat;
    for (const std::string& text : spoken_by_agents()) {
        EXPECT_TRUE(flat.read(text)) << text;
        EXPECT_FALSE(flat.read(for_a_document(text))) << text;
    }
}

TEST(FlatJson, EveryBytesChangeIsTakenAsTheDocumentTakesIt) {
    const std::string_view bytes{"\"{}[],: 0-1.e\\tn\x01\x7f\xc3\n"};
    std::size_t good = 0;
    for (const std::string& text : spoken_by_agents()) {
        for (std::size_t i = 1; i < text.size(); ++i) {
            for (const char byte : bytes) {
                std::string other = text;
                other[i] = byte;
                const auto flat = wire::decode_agent(other);
                const auto whole = wire::decode_agent(for_a_document(other));
                ASSERT_EQ(flat.has_value(), whole.has_value()) << other;
                if (flat) {
                    ++good;
                    ASSERT_EQ(wire::encode(*flat), wire::encode(*whole)) << other;
                }
            }
        }
    }
    EXPECT_GT(good, 1000U);  // digits and letters: most of what is in a message
}

TEST(FlatJson, EveryCutIsRefused) {
    for (const std::string& text : spoken_by_agents()) {
        for (std::size_t size = 0; size < text.size(); ++size) {
            EXPECT_FALSE(wire::decode_agent(text.substr(0, size)).has_value()) << text;
        }
        EXPECT_FALSE(wire::decode_agent(text + "}").has_value());
        EXPECT_TRUE(wire::decode_agent(" \n" + text + "\t ").has_value());
    }
}

TEST(FlatJson, WhatADocumentMustNotHoldIsRefused) {
    for (
        const char* text :
        {R"({"type":"ready","generation":1,"generation":1})", R"({"type":"ready","type":"ready"})",
         R"({"type":"ready","generation":01})", R"({"type":"ready","generation":-})",
         R"({"type":"ready","generation":2147483648})",
         R"({"type":"ready","generation":99999999999999999999})",
         R"({"type":"ready","generation":1,})", R"({"type":"ready" "generation":1})",
         R"({"type":"started","generation":1,"ranks":[{"rank":1,"pid":2},]})",
         R"({"type":"started","generation":1,"ranks":[{"rank":1,"rank":1,"pid":2}]})",
         R"({"type":"started","generation":1,"ranks":[{"rank":1}]})",
         R"({"type":"started","generation":1,"ranks":[1]})",
         R"({"type":"started","generation":1,"ranks":7})",
         R"({"type":"join","address":"a","port":1,"cores":1,"gpus":0,"memory_mb":1,"ports":[65536]})",
         R"({"type":"join","address":"a","port":1,"cores":1,"gpus":0,"memory_mb":1,"ports":["a"]})",
         R"({"type":"done","event":-1,"generation":1})"}) {
        EXPECT_FALSE(wire::decode_agent(text).has_value()) << text;
    }
    EXPECT_TRUE(wire::decode_agent(R"({"type":"started","generation":1,"ranks":[]})").has_value());
    EXPECT_TRUE(wire::decode_agent(R"({ "type" : "ready" , "generation" : 7 })").has_value());
}

TEST(FlatJson, AListInAListIsTheDocuments) {
    FlatObject flat;
    EXPECT_TRUE(flat.read(R"({"a":[{"b":1},{"b":2}]})"));
    EXPECT_FALSE(flat.read(R"({"a":[{"b":[1]}]})"));
    EXPECT_FALSE(flat.read(R"({"a":[[1]]})"));
    EXPECT_FALSE(flat.read(R"({"a":{"b":1}})"));
}

TEST(FlatJson, WritesWhatADocumentWouldBe) {
    TextWriter writer;
    writer("plain", std::string{"it's ~ here"});
    writer("quoted", std::string{"\"\\/\n\x01\x7f"});
    writer("beyond", std::string{"gr\xc3\xbc\xc3\x9f"});
    writer("broken", std::string{"\xff"});
    writer("least", INT64_MIN);
    writer("most", UINT64_MAX);
    writer("yes", true);
    writer("words", std::vector<std::string>{"a", "\""});
    writer("none", std::vector<std::int32_t>{});
    writer("document", *parse_json(R"({"a":[1.5,null]})"));
    writer.optional("left_out", std::string{});
    writer.optional("left_out", false);
    writer.optional("left_out", std::int64_t{0});
    writer.number_or_none("left_out", -1);
    writer.text += '}';
    Json json = Json::object();
    json["plain"] = "it's ~ here";
    json["quoted"] = "\"\\/\n\x01\x7f";
    json["beyond"] = "gr\xc3\xbc\xc3\x9f";
    json["broken"] = "\xff";
    json["least"] = INT64_MIN;
    json["most"] = UINT64_MAX;
    json["yes"] = true;
    json["words"] = std::vector<std::string>{"a", "\""};
    json["none"] = Json::array();
    json["document"] = *parse_json(R"({"a":[1.5,null]})");
    EXPECT_EQ(writer.text, dump_json(json));
}

}  // namespace
}  // namespace lockstep
