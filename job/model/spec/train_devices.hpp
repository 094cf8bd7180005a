// `train.devices`: what a rank of the native trainer computes on. Pure; any thread.
#pragma once

#include "job/base/json.hpp"
#include "job/model/spec/spec.hpp"
#include "job/model/spec/train_config.hpp"

#include <string>
#include <vector>

namespace lockstep {

// Whether one rank computes on several devices: then it takes all that are named, or that it sees.
bool has_several_devices(TrainStrategy strategy);

// Reads `devices` into config.devices, config.gpus and config.replicas; config.strategy is known.
void read_train_devices(ObjectReader& in, TrainConfig& config);
// The word that gives the same.
std::string train_devices_text(const TrainConfig& config);

// Adds why spec.train cannot have the GPUs that it needs. `pointer`: of train.
void check_train_gpus(const JobSpec& spec, const std::string& pointer,
                      std::vector<FieldError>& errors);

}  // namespace lockstep
