// What most files of a target include, compiled once for it when LOCKSTEP_PRECOMPILE is on. No file
// may rely on it: the build without it (tests/run's with GCC) shows who forgets an include.
#pragma once

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#ifdef BOOST_ASIO_NO_DEPRECATED  // set by whoever links Asio
#include "job/async/asio.hpp"
#endif
#ifdef LOCKSTEP_SOURCE_DIR  // set for test programs
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#endif
