#include "tests/unit/slurm/rest_text_fixture.hpp"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace lockstep::rest {
namespace {

using testing::IsEmpty;
using Kind = SubmitReply::Kind;

// --- bytes that mean harm

TEST(RestHostile, NothingIsTakenFromTornOrForeignBytes) {
    const std::vector<std::string> bodies{
        "",
        "{",
        "[",
        "null",
        "\xff\xfe",
        R"({"nodes":)",
        R"({"nodes":[{]})",
        R"({"nodes":[1,"x"]}x)",
        R"({"nodes":[],"nodes":[]})",
        R"({"jobs":{}})",
        "{\"nodes\":[" + std::string(200'000, '['),
        R"({"nodes":[{"name":"n1"}],"errors":[{"error":"late"}]})"};
    for (const std::string& body : bodies) {
        SCOPED_TRACE(body.substr(0, 40));
        const ClientResponse response = answer(200, body);
        EXPECT_FALSE(parse_nodes(response, "demo"));
        EXPECT_FALSE(parse_partitions(response, "demo"));
        EXPECT_FALSE(parse_history(response, "demo", 0));
        EXPECT_FALSE(parse_job_detail(response, "demo"));
        EXPECT_FALSE(parse_ping_answer(response, "demo"));
        EXPECT_NE(submit_reply(response, "demo").kind, Kind::accepted);
    }
}

TEST(RestHostile, RowsWithoutSenseAreCounted) {
    const auto nodes = parse_nodes(
        answer(200, R"({"nodes":[{},7,null,{"name":"a;b","cpus":1,"state":["IDLE"]},)"
                    R"({"name":"n1","cpus":-1,"state":["IDLE"]},{"name":"n2","cpus":4}]})"),
        "demo");
    ASSERT_TRUE(nodes);
    EXPECT_THAT(nodes->nodes, IsEmpty());
    EXPECT_EQ(nodes->malformed, 6U);
    const auto jobs = parse_history(
        answer(200, R"({"jobs":[{"job_id":1,"name":"a\nb","user":"demo","state":{"current":"X"}},)"
                    R"({"job_id":-1,"name":"a","user":"demo","state":{"current":"FAILED"}},)"
                    R"x({"job_id":1,"name":"a","user":"demo","nodes":"$(x)",)x"
                    R"("state":{"current":"FAILED"}}]})"),
        "demo", 0);
    ASSERT_TRUE(jobs);
    EXPECT_THAT(jobs->jobs, IsEmpty());
    EXPECT_EQ(jobs->malformed, 3U);
}

}  // namespace
}  // namespace lockstep::rest
