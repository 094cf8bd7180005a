// What is logged while it lives, of the levels info and above, in place of stderr.
#pragma once

#include "job/base/log.hpp"

#include <mutex>
#include <string>
#include <string_view>

namespace lockstep::test {

class LogLines {
  public:
    LogLines() {
        log::start("test", log::Level::info, false);
        log::redirect([this](std::string_view line) {
            const std::lock_guard lock{mutex_};
            text_ += line;
        });
    }
    ~LogLines() { log::redirect({}); }
    LogLines(const LogLines&) = delete;
    LogLines& operator=(const LogLines&) = delete;

    std::string text() const {
        const std::lock_guard lock{mutex_};
        return text_;
    }

  private:
    mutable std::mutex mutex_;
    std::string text_;
};

}  // namespace lockstep::test
