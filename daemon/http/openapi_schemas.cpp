#include "daemon/http/openapi.hpp"

namespace lockstep {

namespace {

// Adjacent literals: a compiler need not take one of more than 64 KiB.
constexpr std::string_view kSchemas = R"json({
"Problem": {"type": "object", "description": "RFC 9457 problem document.",
  "required": ["type", "title", "status", "detail"],
  "properties": {
    "type": {"type": "string", "description": "urn:lockstep:problem:<word>, stable."},
    "title": {"type": "string"}, "status": {"type": "integer"}, "detail": {"type": "string"},
    "errors": {"type": "array", "items": {"type": "object", "required": ["pointer", "message"],
      "properties": {
        "pointer": {"type": "string",
          "description": "RFC 6901 pointer into the body, or ?name of a query parameter."},
        "message": {"type": "string"}}}}}},
"JobSpec": {"type": "object", "required": ["name", "framework"], "additionalProperties": false,
  "properties": {
    "name": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"},
    "framework": {"type": "string", "enum": ["native", "pytorch", "command"]},
    "train": {"$ref": "#/components/schemas/TrainConfig"},
    "command": {"type": "array", "items": {"type": "string"}, "maxItems": 4096,
      "description": "The program each rank runs, as argv; {rank} {local_rank} {node_rank} {world_size} {master_addr} {master_port} expand. Not with native."},
    "launch": {"type": "string", "enum": ["rank"]},
    "submission": {"type": "string", "enum": ["automatic"]},
    "resources": {"$ref": "#/components/schemas/Resources"},
    "environment": {"type": "object", "maxProperties": 256,
      "additionalProperties": {"type": "string"}},
    "working_directory": {"type": "string",
      "description": "Absolute; the attempt's directory if not given."},
    "checkpoint": {"type": "object", "additionalProperties": false, "properties": {
      "directory": {"type": "string", "description": "Absolute."}}},
    "recovery": {"type": "object", "additionalProperties": false, "properties": {
      "max_restarts": {"type": "integer", "enum": [0]},
      "max_attempts": {"type": "integer", "enum": [1]},
      "on": {"type": "array", "maxItems": 0},
      "on_nonfinite_loss": {"type": "string", "enum": ["warn"]}}},
    "capture": {"type": "object", "additionalProperties": false, "properties": {
      "preset": {"type": "string", "default": "auto",
        "enum": ["auto", "none", "paddle", "keras", "huggingface", "lightning", "pytorch"]},
      "loss": {"type": "string", "maxLength": 1024,
        "description": "RE2 pattern with the named group loss and optionally step and epoch."}}},
    "labels": {"type": "object", "maxProperties": 32, "additionalProperties": {"type": "string"}}}},
"TrainConfig": {"type": "object", "additionalProperties": false,
  "description": "What the native trainer does; framework native only.",
  "properties": {
    "model": {"type": "string", "enum": ["mnist_convnet", "mlp"], "default": "mnist_convnet"},
    "dataset": {"type": "object", "additionalProperties": false, "properties": {
      "name": {"type": "string", "enum": ["digits", "mnist"], "default": "digits"},
      "path": {"type": "string", "description": "Folder of the IDX files."}}},
    "train_samples": {"type": "integer", "minimum": 1, "maximum": 1000000, "default": 20000},
    "test_samples": {"type": "integer", "minimum": 1, "maximum": 1000000, "default": 2000},
    "strategy": {"type": "string", "enum": ["single", "data_parallel"], "default": "data_parallel"},
    "all_reduce": {"type": "string", "enum": ["ring"]},
    "devices": {"type": "string", "description": "auto or cpu.", "default": "auto"},
    "epochs": {"type": "integer", "minimum": 1, "default": 2},
    "max_steps": {"type": "integer", "minimum": 0, "default": 0, "description": "0 = no limit."},
    "batch_size": {"type": "integer", "minimum": 1, "default": 64,
      "description": "Samples per rank and micro-step."},
    "learning_rate": {"type": "number", "exclusiveMinimum": 0, "default": 0.001},
    "scale_learning_rate": {"type": "boolean", "default": false},
    "optimizer": {"type": "string", "enum": ["adam", "sgd"], "default": "adam"},
    "momentum": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.9,
      "description": "sgd only."},
    "seed": {"type": "integer", "minimum": 0, "default": 0},
    "precision": {"type": "string", "enum": ["fp32"]},
    "accumulate": {"type": "integer", "minimum": 1, "default": 1},
    "dropout": {"type": "number", "minimum": 0, "maximum": 0.95, "default": 0.5},
    "norm_mode": {"type": "string", "enum": ["train", "eval"], "default": "train"},
    "loader_workers": {"type": "integer", "minimum": 0, "maximum": 16, "default": 2},
    "shuffle": {"type": "boolean", "default": true},
    "checkpoint_every_steps": {"type": "integer", "minimum": 0, "default": 200},
    "log_every_steps": {"type": "integer", "minimum": 1, "default": 1}}},
"Resources": {"type": "object", "additionalProperties": false, "properties": {
    "nodes": {"type": "integer", "minimum": 1, "maximum": 16384, "default": 1},
    "ranks_per_node": {"type": "integer", "minimum": 1, "maximum": 1024, "default": 1},
    "gpus_per_node": {"type": "integer", "minimum": 0, "maximum": 64, "default": 0},
    "cpus_per_rank": {"type": "integer", "minimum": 1, "maximum": 4096, "default": 1},
    "memory_mb_per_node": {"type": "integer", "minimum": 1},
    "time_limit": {"type": "string", "description": "M, M:S, H:M:S or D-H:M:S.",
      "examples": ["04:00:00"]}}},
)json"
                                      R"json(
"Cause": {"type": "object", "required": ["class", "message"],
  "description": "Who or what ended it: the first failure, not its echo.",
  "properties": {
    "class": {"type": "string", "enum": ["user_error", "rank_exit", "rank_signal", "oom", "node_lost",
      "gpu_fault", "hang", "nonfinite_loss", "rendezvous_timeout", "preempted", "time_limit",
      "scheduler", "cancelled_by_user", "internal"]},
    "message": {"type": "string"}, "rank": {"type": "integer"}, "node": {"type": "string"},
    "exit_code": {"type": "integer"}, "signal": {"type": "integer"},
    "log_tail": {"type": "string"}}},
"Generation": {"type": "object", "required": ["number"], "properties": {
    "number": {"type": "integer"},
    "started_at": {"type": "string", "format": "date-time"},
    "running_at": {"type": "string", "format": "date-time"},
    "finished_at": {"type": "string", "format": "date-time"},
    "cause": {"$ref": "#/components/schemas/Cause"},
    "resumed_from_step": {"type": "integer"}}},
"Attempt": {"type": "object", "required": ["number", "state", "nodes", "generations"],
  "properties": {
    "number": {"type": "integer"}, "scheduler_id": {"type": "string"},
    "state": {"type": "string"}, "nodes": {"type": "array", "items": {"type": "string"}},
    "created_at": {"type": "string", "format": "date-time"},
    "started_at": {"type": "string", "format": "date-time"},
    "finished_at": {"type": "string", "format": "date-time"},
    "cause": {"$ref": "#/components/schemas/Cause"},
    "generations": {"type": "array", "items": {"$ref": "#/components/schemas/Generation"}}}},
"JobState": {"type": "string", "enum": ["accepted", "queued", "starting", "running", "restarting",
    "requeued", "held", "succeeded", "failed", "cancelled"]},
"Job": {"type": "object", "description": "Absent means unknown, never 0. Times are RFC 3339, UTC.",
  "required": ["id", "name", "user", "framework", "state", "labels", "resources", "submitted_at",
    "attempts"],
  "properties": {
    "id": {"type": "string", "pattern": "^ls-[0-9A-HJKMNP-TV-Z]{26}$"},
    "name": {"type": "string"}, "user": {"type": "string"}, "framework": {"type": "string"},
    "state": {"$ref": "#/components/schemas/JobState"},
    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    "resources": {"$ref": "#/components/schemas/Resources"},
    "submitted_at": {"type": "string", "format": "date-time"},
    "started_at": {"type": "string", "format": "date-time"},
    "finished_at": {"type": "string", "format": "date-time"},
    "cancel_requested_at": {"type": "string", "format": "date-time"},
    "step": {"type": "integer"}, "total_steps": {"type": "integer"},
    "checkpoint_step": {"type": "integer"},
    "ettr": {"type": "number", "minimum": 0, "maximum": 1,
      "description": "Productive time / wall time since start."},
    "pending_reason": {"type": "string"},
    "cause": {"$ref": "#/components/schemas/Cause"},
    "warnings": {"type": "array", "items": {"type": "string"}},
    "attempts": {"type": "array", "items": {"$ref": "#/components/schemas/Attempt"}}}},
"JobPage": {"type": "object", "required": ["items"], "properties": {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/Job"}},
    "next_cursor": {"type": "string", "description": "Absent on the last page."}}},
"Render": {"type": "object", "required": ["command", "environment", "warnings", "render_hash"],
  "properties": {
    "scheduler": {"type": "string"}, "nodes": {"type": "integer"}, "ranks": {"type": "integer"},
    "command": {"type": "array", "items": {"type": "string"}},
    "environment": {"type": "object", "additionalProperties": {"type": "string"}},
    "script": {"type": "string"},
    "warnings": {"type": "array", "items": {"type": "string"}},
    "render_hash": {"type": "string", "description": "For If-Match of the submission."}}},
"Event": {"type": "object", "required": ["seq", "time", "kind"], "properties": {
    "seq": {"type": "integer"}, "time": {"type": "string", "format": "date-time"},
    "kind": {"type": "string"}, "job": {"type": "string"}, "attempt": {"type": "integer"},
    "generation": {"type": "integer"}, "rank": {"type": "integer"}, "node": {"type": "string"},
    "data": {"type": "object"}}},
"EventPage": {"type": "object", "required": ["items"], "properties": {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/Event"}},
    "next_cursor": {"type": "string", "description": "The after of the next page; absent on the last."}}},
"LooseNumber": {"description": "A number; a value that is none is the word nan, inf or -inf.",
  "oneOf": [{"type": "number"}, {"type": "string", "enum": ["nan", "inf", "-inf"]}]},
"Rank": {"type": "object", "required": ["rank", "local_rank", "node_rank", "state"],
  "properties": {
    "rank": {"type": "integer"}, "local_rank": {"type": "integer"},
    "node_rank": {"type": "integer"}, "node": {"type": "string"}, "address": {"type": "string"},
    "pid": {"type": "integer"},
    "state": {"type": "string", "enum": ["waiting", "running", "succeeded", "failed", "stopped",
      "lost", "never_started"]},
    "step": {"type": "integer"}, "loss": {"$ref": "#/components/schemas/LooseNumber"},
    "step_seconds": {"$ref": "#/components/schemas/LooseNumber"},
    "gpu": {"type": "integer"}, "report_age_seconds": {"type": "number"},
    "exit_code": {"type": "integer"}, "signal": {"type": "integer"}}},
"Ranks": {"type": "object", "required": ["items"], "properties": {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/Rank"}}}},
"Series": {"type": "object", "required": ["metric", "x", "series"], "properties": {
    "metric": {"type": "string"}, "x": {"type": "string", "enum": ["step", "time"]},
    "series": {"type": "array", "items": {"type": "object", "required": ["rank", "points"],
      "properties": {
        "rank": {"type": "integer"},
        "points": {"type": "array", "description": "[x, min, max, last] of each bucket.",
          "items": {"type": "array", "minItems": 4, "maxItems": 4,
            "items": {"type": ["number", "null"]}}},
        "nonfinite": {"type": "array", "description": "[x, nan | inf | -inf]",
          "items": {"type": "array", "minItems": 2, "maxItems": 2}},
        "nonfinite_total": {"type": "integer"}}}}}},
"Identity": {"type": "object", "required": ["user", "role", "scopes"], "properties": {
    "user": {"type": "string"}, "role": {"type": "string", "enum": ["viewer", "user", "admin"]},
    "scopes": {"type": "array", "items": {"type": "string"}}}},
"Health": {"type": "object", "required": ["status"], "properties": {
    "status": {"type": "string"}, "version": {"type": "string"}}}
})json";

}  // namespace

std::string_view openapi_schemas() {
    return kSchemas;
}

}  // namespace lockstep
