// What the remote-write settings mean. Reads the files of secrets; any thread.
#pragma once

#include "daemon/lockstepd/settings.hpp"
#include "daemon/telemetry/remote_write/remote_writer.hpp"
#include "job/base/result.hpp"

#include <optional>

namespace lockstep {

// Nothing: not asked for. invalid: names the setting. Without the label `instance`, which needs the
// port.
Result<std::optional<telemetry::RemoteWriteSettings>> plan_remote_write(
    const DaemonSettings& settings);

}  // namespace lockstep
