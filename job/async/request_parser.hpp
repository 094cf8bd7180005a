// One small HTTP/1.1 request as it comes from a socket; Boost.Beast reads it. For a server of few
// words: the body has a length that is told before it comes, and a second request is not looked at.
// Any thread, one at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

class RequestParser {
  public:
    enum class Step {
        more,       // of the request is missing
        head,       // once: method, target and length are known; go on with feed("")
        done,       // the body is there
        too_large,  // the head or the length it names
        bad,        // no HTTP, or a body without a length
    };

    RequestParser(std::size_t head_bytes, std::size_t body_bytes);
    ~RequestParser();
    RequestParser(const RequestParser&) = delete;
    RequestParser& operator=(const RequestParser&) = delete;

    Step feed(std::string_view bytes);
    // From `head` on.
    std::string method() const;
    std::string target() const;  // as it came
    std::size_t length() const;  // of the body
    // "" if there is none of the name, whose case does not matter; of several the first.
    std::string header(std::string_view name) const;
    // After `done`.
    std::string take_body();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
