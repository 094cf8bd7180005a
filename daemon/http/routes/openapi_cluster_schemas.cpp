// What is answered of the cluster, its nodes, tokens and the daemon itself.
#include "daemon/http/routes/openapi.hpp"

namespace lockstep {

namespace {

constexpr std::string_view kClusterSchemas = R"json(
"Cluster": {"type": "object", "required": ["scheduler", "reachable", "partitions"],
  "properties": {
  "scheduler": {"type": "string", "enum": ["local", "slurm", "slurmrestd"], "description": "The scheduler that places jobs."},
  "name": {"type": "string", "description": "The cluster's name, or this machine's."},
  "shared_account": {"type": "boolean", "description": "true: the jobs of all users run as the single Unix user named in account (--shared-account). Absent: they do not."},
  "account": {"type": "string", "description": "That Unix user."},
  "version": {"type": "string", "description": "The scheduler's version."},
  "reachable": {"type": "boolean", "description": "The scheduler answers."},
  "problem": {"type": "string", "description": "Why it is not reachable."},
  "seen_at": {"type": "string", "format": "date-time",
    "description": "When its nodes were last queried. Absent: not yet; retry later."},
  "nodes": {"$ref": "#/components/schemas/NodeCount", "description": "How many nodes there are."},
  "cpus": {"$ref": "#/components/schemas/Use", "description": "CPUs of the usable nodes."},
  "gpus": {"$ref": "#/components/schemas/Use", "description": "GPUs of the usable nodes."},
  "partitions": {"type": "array", "description": "Its partitions; none with the local scheduler.",
    "items": {"type": "object", "required": ["name", "state", "default"],
      "properties": {
      "name": {"type": "string", "description": "The partition's name."},
      "state": {"type": "string", "examples": ["UP"], "description": "State as the scheduler names it."},
      "default": {"type": "boolean", "description": "Used for jobs that name no partition."},
      "max_time": {"type": "string",
        "description": "The longest that a job may ask for, as D-HH:MM:SS. Absent: unlimited."},
      "default_time": {"type": "string", "description": "Time limit of a job that requests none, as D-HH:MM:SS."},
      "max_nodes_per_job": {"type": "integer", "minimum": 1, "description": "Number of nodes that one job may have."},
      "nodes": {"$ref": "#/components/schemas/NodeCount", "description": "How many nodes it has."},
      "cpus": {"$ref": "#/components/schemas/Use", "description": "CPUs of its usable nodes."},
      "gpus": {"$ref": "#/components/schemas/Use", "description": "GPUs of its usable nodes."}}}}}},
"NodeCount": {"type": "object",
  "properties": {
  "total": {"type": "integer", "minimum": 0, "description": "Number of nodes."},
  "usable": {"type": "integer", "minimum": 0, "description": "Number of nodes that answer and take jobs."},
  "idle": {"type": "integer", "minimum": 0, "description": "Number of usable nodes without a job."}},
  "description": "How many nodes of each kind."},
"Use": {"type": "object", "description": "How many the usable nodes have, and how many are in use.",
  "properties": {
  "usable": {"type": "integer", "minimum": 0, "description": "How many there are."},
  "used": {"type": "integer", "minimum": 0, "description": "How many are in use."}}},
"NodePage": {"type": "object", "required": ["items"],
  "properties": {
  "seen_at": {"type": "string", "format": "date-time",
    "description": "When the scheduler was last queried. Absent: not yet; retry later."},
  "next_cursor": {"type": "string", "description": "For the next page; absent on the last."},
  "items": {"type": "array", "description": "The nodes, by name.", "items": {"$ref": "#/components/schemas/Node"}}}},
"Node": {"type": "object",
  "required": ["name", "state", "usable", "partitions", "cpus", "cpus_used", "gpus", "gpus_used", "jobs"],
  "properties": {
  "name": {"type": "string", "description": "The node's name."},
  "state": {"type": "string", "description": "State as the scheduler names it."},
  "usable": {"type": "boolean", "description": "It answers and takes jobs."},
  "reason": {"type": "string", "description": "Why it is down or drained."},
  "partitions": {"type": "array", "description": "Names of the partitions it belongs to.", "items": {"type": "string"}},
  "cpus": {"type": "integer", "minimum": 0, "description": "Number of CPUs it has, as the scheduler counts them."},
  "cpus_used": {"type": "integer", "minimum": 0, "description": "Number of CPUs that jobs have."},
  "memory_mb": {"type": "integer", "minimum": 0, "description": "Its memory in MiB."},
  "gpus": {"type": "integer", "minimum": 0, "description": "Number of GPUs it has."},
  "gpus_used": {"type": "integer", "minimum": 0, "description": "Number of GPUs that jobs have."},
  "jobs": {"type": "array", "items": {"type": "string"}, "description": "Unfinished jobs here that the caller may see."},
  "history": {"$ref": "#/components/schemas/NodeHistory"}}},
"NodeHistory": {"type": "object",
  "required": ["since", "attempts", "faults", "faults_7d", "by_kind", "slow", "excluded"],
  "description": "What lockstepd recorded about the node over the last 90 days, for the jobs of all users. Absent: nothing. For information only; scheduling does not depend on it.",
  "properties": {
  "since": {"type": "string", "format": "date-time", "description": "Start of the records."},
  "attempts": {"type": "integer", "minimum": 0,
    "description": "How many attempts have ended with an agent on the node, since then."},
  "faults": {"type": "integer", "minimum": 0,
    "description": "Number of faults of the last 90 days, at most the newest 1,000."},
  "faults_7d": {"type": "integer", "minimum": 0, "description": "Number of faults of the last 7 days."},
  "by_kind": {"type": "object", "description": "Number of faults by kind; see NodeFault.",
    "additionalProperties": {"type": "integer"}},
  "slow": {"type": "integer", "minimum": 0,
    "description": "How often ranks there computed longer than the others (straggler, slow_node), each once a generation; no fault."},
  "excluded": {"type": "integer", "minimum": 0,
    "description": "How many attempts went without it because it had failed the one before."},
  "last_fault_at": {"type": "string", "format": "date-time", "description": "When it was last at fault."},
  "healthy_at": {"type": "string", "format": "date-time",
    "description": "When an attempt that ran ranks there last ended without the node being at fault; now, while ranks run there. Absent: never."}}},
"NodeFault": {"type": "object", "required": ["time", "kind"],
  "description": "For a job that the caller may not see, only time and kind are given.",
  "properties": {
  "time": {"type": "string", "format": "date-time", "description": "When it was."},
  "kind": {"type": "string",
    "enum": ["node_lost", "preflight", "gpu_fault", "gpu_xid", "hang", "straggler", "slow_node", "excluded"],
    "description": "node_lost: it was silent, gone, or could not start or stop its ranks. preflight, gpu_fault: what the pre-flight found; gpu_fault also: an error of a GPU of the job that ended its ranks. gpu_xid: the GPU driver reported an error not caused by a program. hang: the rank that held the others up was there. straggler, slow_node: no fault; a rank there, or half of the node's, computed longer than the others. excluded: no fault; the job's next attempt went without it."},
  "job": {"type": "string", "description": "Id of the job."},
  "user": {"type": "string", "description": "Whose job it was."},
  "attempt": {"type": "integer", "minimum": 1, "description": "Number of the attempt."},
  "generation": {"type": "integer", "minimum": 1, "description": "Number of the generation. Absent: none had begun."},
  "gpu": {"type": "integer", "minimum": 0, "description": "Number of the GPU on the node, from 0."},
  "message": {"type": "string", "description": "One-line, human-readable description."}}},
"NodeDetail": {"allOf": [{"$ref": "#/components/schemas/Node"},
    {"type": "object", "required": ["faults"],
      "properties": {
      "faults": {"type": "array", "items": {"$ref": "#/components/schemas/NodeFault"},
        "description": "The newest 50, newest first."}}}]},
"Identity": {"type": "object", "required": ["user", "role", "scopes"],
  "properties": {
  "user": {"type": "string", "description": "The caller."},
  "role": {"type": "string", "enum": ["viewer", "user", "admin"], "description": "What the user may do."},
  "identity": {"type": "string", "enum": ["self", "slurmrestd", "lockstep-exec"],
    "description": "The Unix user a submitted job runs as. self: lockstepd's own user; slurmrestd: the caller, by the caller's Slurm token; lockstep-exec: the caller, who must sign the submission."},
  "signing": {"type": "object", "description": "With identity lockstep-exec: the parameters of a signature.", "required": ["audience", "gres"], "properties": {
    "audience": {"type": "string", "description": "The cluster's name in what is signed."},
    "gres": {"type": "boolean", "description": "Slurm is asked for GPUs by --gres."}}},
  "shared_account": {"type": "boolean", "description": "true: the jobs of all users run as the single Unix user named in account, with all of its rights over each other (--shared-account). Absent: they do not."},
  "account": {"type": "string", "description": "That Unix user."},
  "scopes": {"type": "array", "items": {"type": "string", "enum": ["metrics", "read", "write", "secrets", "admin"]},
    "description": "The subset of the role's rights that this token or session has."},
  "token": {"type": "string", "description": "Its id."},
  "session": {"type": "string", "description": "Id of the browser session, if the caller was identified by a cookie."},
  "expires_at": {"type": "string", "format": "date-time", "description": "Absent: never."},
  "grafana_url": {"type": "string",
    "description": "Base address of Grafana for links (--grafana-url). Absent: none."},
  "slurm_token": {"type": "object", "description": "The user's Slurm token that lockstepd holds.",
    "properties": {
    "expires_at": {"type": "string", "format": "date-time", "description": "Absent: never."}}}}},
"SignInCode": {"type": "object", "required": ["code", "expires_at"],
  "properties": {
  "code": {"type": "string", "description": "Single-use code for POST /v1/session."},
  "expires_at": {"type": "string", "format": "date-time",
    "description": "When the code expires: one minute after its creation."}}},
"SignIn": {"type": "object", "additionalProperties": false, "description": "One of the two, not both.",
  "properties": {
  "code": {"type": "string", "maxLength": 256, "description": "A code from POST /v1/session/codes."},
  "token": {"type": "string", "maxLength": 512, "description": "A bearer token."}}},
"SlurmToken": {"type": "object", "required": ["token"], "additionalProperties": false,
  "properties": {
  "token": {"type": "string", "maxLength": 8192,
    "description": "The output of `scontrol token`, with or without the prefix SLURM_JWT=. If the token names a user, that must be the caller."}}},
"SecretValue": {"type": "object", "required": ["value"], "additionalProperties": false,
  "properties": {
  "value": {"type": "string", "minLength": 1, "maxLength": 32768,
    "description": "What the variable is set to; UTF-8 of at most 32 KiB."}}},
"Secret": {"type": "object", "required": ["name", "set_at"],
  "properties": {
  "name": {"type": "string", "description": "Name of the secret and of the environment variable it sets."},
  "set_at": {"type": "string", "format": "date-time", "description": "When it was set last."}}},
"SecretPage": {"type": "object", "required": ["items"],
  "properties": {
  "items": {"type": "array", "description": "The caller's secrets, by name; never their values.",
    "items": {"$ref": "#/components/schemas/Secret"}}}},
"TokenRequest": {"type": "object", "required": ["name"], "additionalProperties": false,
  "properties": {
  "name": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
    "description": "What it is for; need not be unique."},
  "user": {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9._@-]{0,63}$",
    "description": "The owner; the caller if not given. Only administrators may name another user."},
  "role": {"type": "string", "enum": ["viewer", "user", "admin"], "default": "user",
    "description": "user: own jobs; viewer: reads every job, changes none; admin: all. Only administrators may give a role other than their own."},
  "scopes": {"type": "array", "minItems": 1, "maxItems": 5,
    "description": "A subset of the role's rights; all of them if not given.",
    "items": {"type": "string", "enum": ["metrics", "read", "write", "secrets", "admin"]}},
  "expires_in": {"type": "integer", "minimum": 1, "maximum": 315360000,
    "description": "Seconds until it expires. A token cannot create one that expires later than itself, unless it is an administrator's.",
    "default": 2592000}}},
"Token": {"type": "object", "required": ["id", "name", "user", "role", "scopes", "created_at"],
  "properties": {
  "id": {"type": "string", "description": "For DELETE /v1/tokens/{id}."},
  "name": {"type": "string", "description": "What it is for."},
  "user": {"type": "string", "description": "The owner."},
  "role": {"type": "string", "enum": ["viewer", "user", "admin"], "description": "What its user may do."},
  "scopes": {"type": "array", "description": "The subset of the role's rights that this token has.", "items": {"type": "string"}},
  "made_with": {"type": "string", "description": "Id of the token it was created with; it is revoked together with that one. Absent for the first token and for tokens created by older versions."},
  "created_at": {"type": "string", "format": "date-time", "description": "When it was made."},
  "expires_at": {"type": "string", "format": "date-time", "description": "Absent: never."},
  "last_used_at": {"type": "string", "format": "date-time",
    "description": "When it was last used, to the minute. Absent: never."},
  "revoked_at": {"type": "string", "format": "date-time", "description": "When it was revoked. Absent: it is not."}}},
"NewToken": {"allOf": [{"$ref": "#/components/schemas/Token"},
    {"type": "object", "required": ["token"],
      "properties": {
      "token": {"type": "string", "description": "The secret; it is not kept and not shown again."}}}]},
"TokenPage": {"type": "object", "required": ["items"],
  "properties": {
  "items": {"type": "array", "description": "The tokens, newest first; never their secrets.",
    "items": {"$ref": "#/components/schemas/Token"}},
  "next_cursor": {"type": "string", "description": "For the next page; absent on the last."}}},
"ScrapeTargets": {"type": "array",
  "description": "As Prometheus' http_sd_configs reads it: always the whole list, [] if there is none.",
  "items": {"type": "object", "required": ["targets", "labels"],
    "properties": {
    "targets": {"type": "array", "items": {"type": "string"},
      "description": "The address that this list was asked for at."},
    "labels": {"type": "object", "additionalProperties": {"type": "string"},
      "description": "__metrics_path__, __param_shard (of a job in several parts), instance (id/part), and __meta_lockstep_job, _name, _user, _framework, _allocation, _shard for relabelling."}}}},
"Health": {"type": "object", "required": ["status"],
  "properties": {
  "status": {"type": "string", "description": "ok: it answers; ready: it takes jobs."},
  "version": {"type": "string", "description": "lockstepd's version."}}}
)json";

}  // namespace

std::string_view openapi_cluster_schemas() {
    return kClusterSchemas;
}

}  // namespace lockstep
