#include "daemon/control/base/json_members.hpp"

#include "job/base/json.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(JsonMembers, AreTheSameAsTheParsersWhateverTheValues) {
    Json object = Json::object();
    object["id"] = "ls-1";
    object["odd \"name\\"] = 1;
    object["text"] = "a \"quoted\" \\ , } ] { [ \n \u00e9";
    object["labels"] = {{"a,b", "}"}, {"c", "\\\""}};
    object["list"] = {1, {{"x", {2, "]"}}}, Json::array()};
    object["none"] = nullptr;
    object["yes"] = true;
    object["number"] = -1.5e-7;
    object["last"] = "";
    const std::string text = dump_json(object);
    for (const auto& [name, value] : object.items()) {
        if (name.front() == 'o') {
            continue;
        }
        Json expected = Json::object();
        expected[name] = value;
        EXPECT_EQ(json_members(text, {name}), dump_json(expected));
    }
    EXPECT_EQ(json_members(text, {"last", "id", "nothing"}), R"({"id":"ls-1","last":""})");
    EXPECT_EQ(json_members("{}", {"id"}), "{}");
    EXPECT_EQ(json_members(text, {}), "{}");
}

}  // namespace
}  // namespace lockstep
