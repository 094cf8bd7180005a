// What connects a rank to the others by Gloo: the device that listens, with its thread.
#pragma once

#include <gloo/transport/device.h>

#include <memory>
#include <string>

namespace lockstep {

// Listens at `address`; empty: 127.0.0.1. SIGPIPE is ignored in this process from here on, unless
// the program handles it. Throws what Gloo throws. Any thread.
std::shared_ptr<gloo::transport::Device> make_gloo_device(const std::string& address);

}  // namespace lockstep
