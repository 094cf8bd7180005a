#include "tests/unit/slurm/rest_text_fixture.hpp"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace lockstep::rest {
namespace {

using testing::HasSubstr;
using Kind = SubmitReply::Kind;

// --- submissions; * seen live (22.05.8)

struct Submission {
    int status;
    std::string body;
    Kind kind;
    std::string message;
};

const std::vector<Submission> kSubmissions{
    {200, R"({"meta":{},"errors":[],"job_id":17,"step_id":"BATCH"})", Kind::accepted, ""},  // *
    {500, errors(R"({"error_code":2000,"error":"Invalid partition name specified"})"),      // *
     Kind::rejected, "Invalid partition name specified"},
    {500, errors(R"({"error_code":2029,"error":"Invalid feature specification"})"),  // *
     Kind::rejected, "Invalid feature"},
    {200, errors(R"({"error_number":2000,"error":"Invalid partition name specified"})"),
     Kind::rejected, "Invalid partition"},
    {500, errors(R"({"error_code":5005,"error":"Zero Bytes were transmitted or received"})"),  // *
     Kind::ambiguous, "Zero Bytes"},
    {500, errors(R"({"error_number":-1,"error":"Unspecified error"})"), Kind::denied, ""},
    {500, errors(R"({"error":"Socket timed out on send/recv operation"})"), Kind::ambiguous, ""},
    {500, errors(R"x({"error":"Unable to contact slurm controller (connect failure)"})x"),
     Kind::not_submitted, "Unable to contact"},
    {200, errors(R"({"error":"something new"})"), Kind::denied, "something new"},
    {400,
     errors(R"({"description":"Disabled key: \"contiguous\"","error_number":1},)"  // *
            R"({"error_code":9001,"error":"Failure during parsing"})"),
     Kind::rejected, "Disabled key"},
    {400, "Unable to parse query.", Kind::rejected, "HTTP 400: Unable to parse query."},  // *
    {404, "Unable find requested URL.", Kind::not_submitted, "HTTP 404"},                 // *
    {401, "Authentication failure", Kind::not_submitted, "the Slurm token of ada"},       // *
    {403, "", Kind::not_submitted, "the Slurm token of ada"},
    {408, "", Kind::not_submitted, "HTTP 408"},
    {413, "", Kind::rejected, "HTTP 413"},
    {429, "", Kind::not_submitted, "HTTP 429"},
    {502, "<html>Bad Gateway</html>", Kind::ambiguous, "HTTP 502"},
    {503, "", Kind::ambiguous, "HTTP 503"},
    {200, "", Kind::ambiguous, "not JSON"},
    {200, "{", Kind::ambiguous, "not JSON"},
    {200, "[]", Kind::ambiguous, "no number"},
    {200, "{}", Kind::ambiguous, "no number"},
    {200, R"({"job_id":0})", Kind::ambiguous, "no number"},
    {200, R"({"job_id":-5})", Kind::ambiguous, "no number"},
    {200, R"({"job_id":"17"})", Kind::ambiguous, "no number"},
    {200, R"({"job_id":1.5})", Kind::ambiguous, "no number"},
    {200, R"({"job_id":99999999999})", Kind::ambiguous, "no number"},
    {200, R"({"job_id":17,"result":{"job_id":18}})", Kind::ambiguous, "no number"},
    // A job that has to wait. *: sbatch says "Submitted batch job 119".
    {200,
     R"x({"errors":[{"error_code":2068,"error":"Required node not available (down, drained or )x"
     R"x(reserved)"}],"job_id":119,"step_id":"BATCH","job_submit_user_msg":""})x",
     Kind::accepted, ""},
    {500, R"({"errors":[{"error_number":2015,"error":"Requested partition"}],"job_id":18})",
     Kind::accepted, ""},
    {200, R"({"result":{"job_id":18,"error_code":2068}})", Kind::accepted, ""},
    {200, R"({"result":{"job_id":18,"error_code":0}})", Kind::accepted, ""},
    {302, "", Kind::ambiguous, "HTTP 302"},
};

TEST(RestSubmit, IsOnlyCertainOfWhatIsCertain) {
    for (const Submission& one : kSubmissions) {
        SCOPED_TRACE(std::to_string(one.status) + " " + one.body);
        const SubmitReply reply = submit_reply(answer(one.status, one.body), "ada");
        EXPECT_EQ(reply.kind, one.kind);
        EXPECT_THAT(reply.message, HasSubstr(one.message));
        EXPECT_EQ(reply.id != 0, one.kind == Kind::accepted);
    }
}

// --- failed queries

TEST(RestFailure, SaysWhoseFaultItIs) {
    const auto code = [](int status, const std::string& body) {
        return query_failure("jobs", answer(status, body), "ada").code;
    };
    EXPECT_EQ(code(401, "Authentication failure"), Errc::denied);
    EXPECT_EQ(code(403, ""), Errc::denied);
    EXPECT_EQ(code(500, errors(R"({"error_number":2017,"error":"translated"})")), Errc::not_found);
    EXPECT_EQ(code(500, errors(R"({"error_number":2021,"error":"translated"})")), Errc::conflict);
    EXPECT_EQ(code(500, errors(R"({"error_number":2002,"error":"translated"})")), Errc::denied);
    EXPECT_EQ(code(500, errors(R"({"error_number":1007,"error":"translated"})")), Errc::denied);
    EXPECT_EQ(code(500, errors(R"({"error_number":6000,"error":"translated"})")), Errc::denied);
    EXPECT_EQ(code(500, errors(R"({"error":"Invalid authentication credential"})")), Errc::denied);
    EXPECT_EQ(code(500, errors(R"({"error":"Authentication credential expired"})")), Errc::denied);
    EXPECT_EQ(code(500, errors(R"({"error_number":2000,"error":"Invalid user"})")),
              Errc::unavailable)
        << "the number counts";
    EXPECT_EQ(code(500, errors(R"({"error":"Invalid job id specified"})")), Errc::not_found);
    EXPECT_EQ(code(500, errors(R"({"error":"Access/permission denied"})")), Errc::denied);
    EXPECT_EQ(code(500, errors(R"({"error":"Protocol authentication error"})")), Errc::denied);
    EXPECT_EQ(code(500, ""), Errc::unavailable);
    EXPECT_EQ(code(404, "Unable find requested URL."), Errc::unavailable);
    const Error unsaid = query_failure(
        "jobs",
        answer(500, errors(R"({"description":"Failed while looking for jobs","error_number":-1,)"
                           R"("error":"Unspecified error","source":"slurm_load_jobs"})")),
        "ada");
    EXPECT_EQ(unsaid.code, Errc::unavailable);
    EXPECT_THAT(unsaid.message, HasSubstr("maybe it does not take the Slurm token of ada"));
}

}  // namespace
}  // namespace lockstep::rest
