// spdlog and fmt as a part of the program: Debian has neither as a static library, but its headers
// hold what the shared ones are compiled from. What job/base/log.cpp uses, and no more.
#ifndef SPDLOG_COMPILED_LIB
#error "compiled for programs that use spdlog as a library"
#endif

#include <fmt/format-inl.h>
#include <spdlog/common-inl.h>
#include <spdlog/details/backtracer-inl.h>
#include <spdlog/details/log_msg-inl.h>
#include <spdlog/details/log_msg_buffer-inl.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/details/os-inl.h>
#include <spdlog/details/periodic_worker-inl.h>
#include <spdlog/details/registry-inl.h>
#include <spdlog/logger-inl.h>
#include <spdlog/pattern_formatter-inl.h>
#include <spdlog/sinks/ansicolor_sink-inl.h>
#include <spdlog/sinks/base_sink-inl.h>
#include <spdlog/sinks/sink-inl.h>
#include <spdlog/sinks/stdout_color_sinks-inl.h>
#include <spdlog/sinks/stdout_sinks-inl.h>
#include <spdlog/spdlog-inl.h>

#include <mutex>

using spdlog::details::console_mutex;
using spdlog::details::console_nullmutex;

template fmt::detail::thousands_sep_result<char> fmt::detail::thousands_sep_impl<char>(
    fmt::detail::locale_ref);
template char fmt::detail::decimal_point_impl(fmt::detail::locale_ref);
template spdlog::logger::logger(std::string, spdlog::sinks_init_list::iterator,
                                spdlog::sinks_init_list::iterator);
template class spdlog::sinks::base_sink<std::mutex>;
template class spdlog::sinks::stdout_sink_base<console_mutex>;
template class spdlog::sinks::stderr_sink<console_mutex>;
template class spdlog::sinks::ansicolor_sink<console_mutex>;
template class spdlog::sinks::ansicolor_stdout_sink<console_mutex>;
