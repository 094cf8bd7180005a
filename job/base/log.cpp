#include "job/base/log.hpp"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>

namespace lockstep::log {
namespace {

class Sink final : public spdlog::sinks::base_sink<std::mutex> {
  public:
    void redirect(std::function<void(std::string_view)> write) {
        const std::lock_guard lock{mutex_};
        write_ = std::move(write);
    }

  private:
    void sink_it_(const spdlog::details::log_msg& message) override {
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        if (write_) {
            write_({line.data(), line.size()});
        } else {
            static_cast<void>(std::fwrite(line.data(), 1, line.size(), stderr));
        }
    }
    void flush_() override { static_cast<void>(std::fflush(stderr)); }

    std::function<void(std::string_view)> write_;
};

bool g_journal = false;
std::shared_ptr<Sink> g_sink;

void append_value(std::string& line, std::string_view value) {
    const bool plain =
        !value.empty() && value.find_first_of(" \"=\n\t\\") == std::string_view::npos;
    if (plain) {
        line += value;
        return;
    }
    line += '"';
    for (const char c : value) {
        if (c == '"' || c == '\\') {
            line += '\\';
            line += c;
        } else if (c == '\n') {
            line += "\\n";
        } else if (static_cast<unsigned char>(c) >= 0x20 || c == '\t') {
            line += c;
        }
    }
    line += '"';
}

void write(spdlog::level::level_enum level, int priority, std::string_view word,
           std::string_view what, Fields fields) {
    if (!spdlog::default_logger_raw()->should_log(level)) {
        return;
    }
    std::string line;
    if (g_journal) {
        line += '<';
        line += std::to_string(priority);
        line += '>';
    }
    line += "level=";
    line += word;
    line += " msg=";
    append_value(line, what);
    for (const auto& field : fields) {
        line += ' ';
        line += field.key;
        line += '=';
        append_value(line, field.value);
    }
    spdlog::default_logger_raw()->log(level, spdlog::string_view_t{line.data(), line.size()});
}

}  // namespace

void start(std::string_view program, Level level, bool journal) {
    g_journal = journal;
    g_sink = std::make_shared<Sink>();
    auto logger = std::make_shared<spdlog::logger>(std::string{program}, g_sink);
    logger->set_pattern(journal ? "%v" : "ts=%Y-%m-%dT%H:%M:%S.%eZ prog=%n %v",
                        spdlog::pattern_time_type::utc);
    logger->set_level(static_cast<spdlog::level::level_enum>(static_cast<int>(level) + 1));
    logger->flush_on(spdlog::level::debug);
    spdlog::set_default_logger(std::move(logger));
}

void redirect(std::function<void(std::string_view)> write) {
    if (g_sink) {
        g_sink->redirect(std::move(write));
    }
}

bool parse_level(std::string_view text, Level& level) {
    if (text == "debug") {
        level = Level::debug;
    } else if (text == "info") {
        level = Level::info;
    } else if (text == "warn") {
        level = Level::warn;
    } else if (text == "error") {
        level = Level::error;
    } else {
        return false;
    }
    return true;
}

void debug(std::string_view what, Fields fields) {
    write(spdlog::level::debug, 7, "debug", what, fields);
}
void info(std::string_view what, Fields fields) {
    write(spdlog::level::info, 6, "info", what, fields);
}
void warn(std::string_view what, Fields fields) {
    write(spdlog::level::warn, 4, "warn", what, fields);
}
void error(std::string_view what, Fields fields) {
    write(spdlog::level::err, 3, "error", what, fields);
}

}  // namespace lockstep::log
