// What is answered of the history of a job's GPUs.
#include "daemon/http/routes/openapi.hpp"

namespace lockstep {

namespace {

constexpr std::string_view kGpuSchemas = R"json(
"JobGpu": {"type": "object", "required": ["id", "node", "gpu", "ranks"],
  "description": "A GPU that the job has had.",
  "properties": {
  "id": {"type": "integer", "minimum": 0, "description": "Number of the GPU in the job, from 0; it never changes."},
  "node": {"type": "string", "description": "The node it is in."},
  "gpu": {"type": "integer", "minimum": 0, "description": "Number of its /dev/nvidia file, else NVML's index."},
  "ranks": {"type": "array", "maxItems": 16, "items": {"type": "integer", "minimum": 0},
    "description": "The ranks that most recently had a process on it."}}},
"JobGpus": {"type": "object", "required": ["total", "metrics", "items"],
  "properties": {
  "total": {"type": "integer", "minimum": 0, "description": "Total number of GPUs the job has had, regardless of limit."},
  "metrics": {"type": "array", "items": {"type": "string"},
    "description": "Metrics that any of them has had a value of, each with its unit at its end; energy, throttle, pcie, nvlink and ecc ones only grow while the driver lives."},
  "items": {"type": "array", "items": {"$ref": "#/components/schemas/JobGpu"}, "description": "By id."}}},
"GpuPoints": {"allOf": [{"$ref": "#/components/schemas/JobGpu"}, {"type": "object", "required": ["points"],
  "properties": {
  "points": {"type": "array",
    "description": "[x, lowest, highest, last value] of each bucket that has any: x a step or seconds since the epoch, the others in the metric's unit.",
    "items": {"type": "array", "minItems": 4, "maxItems": 4, "items": {"type": ["number", "null"]}}},
  "score": {"type": "number",
    "description": "In worst: how far the GPU's mean lies on the worse side of the median of all GPUs' means, in robust standard deviations (median deviation, 1 % of the median at least)."}}}]},
"GpuSeries": {"type": "object", "required": ["metric", "entity", "x", "series"],
  "description": "With entity=gpu.",
  "properties": {
  "metric": {"type": "string", "description": "Name of the metric, with its unit at its end."},
  "entity": {"type": "string", "enum": ["gpu"], "description": "What the series are of."},
  "x": {"type": "string", "enum": ["step", "time"],
    "description": "What x is: the newest step that a rank on the GPU, or else any rank, had reported when the GPU was sampled, or seconds since the epoch (the node's clock)."},
  "series": {"type": "array", "items": {"$ref": "#/components/schemas/GpuPoints"},
    "description": "One for each single GPU that was asked for and has values; none with stat or worst."},
  "gpus": {"type": "integer", "minimum": 0, "description": "How many GPUs stat and worst are of."},
  "bands": {"type": "object",
    "description": "With stat: columns of the same length, one entry a column of the axis that has values; null: no finite value.",
    "required": ["x", "count", "nonfinite"],
    "properties": {
    "x": {"type": "array",
      "description": "The highest step, or the latest time in seconds since the epoch, in the column.",
      "items": {"type": "number"}},
    "count": {"type": "array", "description": "How many GPUs have a value.", "items": {"type": "integer"}},
    "nonfinite": {"type": "array", "description": "How many GPUs have one that is not finite: none, and so 0.",
      "items": {"type": "integer"}}},
    "additionalProperties": {"type": "array", "items": {"type": ["number", "null"]}}},
  "worst": {"type": "array", "items": {"$ref": "#/components/schemas/GpuPoints"},
    "description": "With worst: the worst ranks or GPUs, worst first."},
  "worse": {"type": "string", "enum": ["high", "low"], "description": "With worst: whether high or low values are bad."},
  "metrics": {"type": "array", "items": {"type": "string"},
    "description": "Names of the GPU metrics that exist; present only if nothing was found for the requested one."}}},
"GpuSamples": {"type": "object", "required": ["metric", "runs"],
  "description": "With entity=gpu.",
  "properties": {
  "metric": {"type": "string", "description": "Name of the metric, with its unit at its end."},
  "next_cursor": {"type": "string", "description": "For the next page; absent on the last."},
  "damaged_chunks": {"type": "integer", "minimum": 1,
    "description": "Number of damaged parts of the history, missing from this answer."},
  "runs": {"type": "array", "description": "Neighbouring samples of one GPU and generation.",
    "items": {"allOf": [{"$ref": "#/components/schemas/JobGpu"}, {"type": "object",
      "required": ["attempt", "generation", "steps", "times", "values"],
      "properties": {
      "attempt": {"type": "integer", "minimum": 1, "description": "Number of the attempt."},
      "generation": {"type": "integer", "minimum": 0,
        "description": "Number of the generation; 0: before the attempt's first."},
      "steps": {"type": "array", "description": "The newest step at that time; null: none yet.",
        "items": {"type": ["integer", "null"]}},
      "times": {"type": "array", "description": "Seconds since the Unix epoch, the node's clock.",
        "items": {"type": ["number", "null"]}},
      "values": {"type": "array", "description": "The values, in the metric's unit.",
        "items": {"type": ["number", "string"]}}}}]}}}},
"SamplesAnswer": {"anyOf": [{"$ref": "#/components/schemas/Samples"}, {"$ref": "#/components/schemas/GpuSamples"}]}
)json";

}  // namespace

std::string_view openapi_gpu_schemas() {
    return kGpuSchemas;
}

}  // namespace lockstep
