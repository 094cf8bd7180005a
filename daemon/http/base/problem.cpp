#include "daemon/http/base/problem.hpp"

#include "job/base/json.hpp"
#include "job/base/log.hpp"

#include <utility>
#include <vector>

namespace lockstep {
namespace {

HttpResponse document(std::string type, std::string_view title, int status, std::string_view detail,
                      const std::vector<FieldError>& fields) {
    Json json = Json::object();
    json["type"] = std::move(type);
    json["title"] = title;
    json["status"] = status;
    json["detail"] = detail;
    if (!fields.empty()) {
        Json errors = Json::array();
        for (const auto& field : fields) {
            Json entry = Json::object();
            entry["pointer"] = field.pointer;
            entry["message"] = field.message;
            errors.push_back(std::move(entry));
        }
        json["errors"] = std::move(errors);
    }
    HttpResponse response;
    response.status = status;
    response.content_type = content_type::kProblem;
    response.body = dump_json(json);
    if (status == 503) {
        response.headers.emplace_back("Retry-After", "1");
    }
    return response;
}

std::string_view title_of(Errc code) {
    switch (code) {
        case Errc::invalid:
            return "Invalid request";
        case Errc::not_found:
            return "Not found";
        case Errc::conflict:
            return "Conflict with the current state";
        case Errc::denied:
            return "Not allowed";
        case Errc::exhausted:
            return "Limit reached";
        case Errc::unavailable:
            return "Temporarily unavailable";
        case Errc::timed_out:
            return "Timed out";
        case Errc::cancelled:
            return "Cancelled";
        case Errc::corrupt:
            return "Stored data is damaged";
        case Errc::internal:
            return "Internal error";
    }
    return "Internal error";
}

}  // namespace

int status_of(Errc code) {
    switch (code) {
        case Errc::invalid:
            return 400;
        case Errc::denied:
            return 403;
        case Errc::not_found:
            return 404;
        case Errc::conflict:
            return 409;
        case Errc::exhausted:
        case Errc::unavailable:
        case Errc::cancelled:
            return 503;
        case Errc::timed_out:
            return 504;
        case Errc::corrupt:
        case Errc::internal:
            return 500;
    }
    return 500;
}

int storing_status_of(Errc code) {
    return code == Errc::exhausted ? 507 : status_of(code);
}

HttpResponse problem(const Error& error) {
    return problem(error, status_of(error.code));
}

HttpResponse problem(const Error& error, int status) {
    std::string_view detail = error.message;
    if (error.code == Errc::internal || error.code == Errc::corrupt) {
        // Paths and system errors are the operator's business, not the client's.
        log::error("request failed", {{"error", error.text()}});
        detail = "see the daemon's log";
    }
    HttpResponse response = document("urn:lockstep:problem:" + std::string{to_string(error.code)},
                                     title_of(error.code), status, detail, error.fields);
    if (error.retry_after_s > 0 && status == 429) {
        response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
    }
    return response;
}

HttpResponse protocol_problem(int status, std::string_view detail) {
    return document("urn:lockstep:problem:http_" + std::to_string(status), reason_phrase(status),
                    status, detail, {});
}

}  // namespace lockstep
