// What most files include, compiled once for all that links Asio and once for all that does not,
// when LOCKSTEP_PRECOMPILE is on. No file may rely on it: the build without it (tests/run's with
// GCC) shows who forgets an include.
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
