"""Every setting of `infera serve`, once: type, default, kind and one sentence.

(Source: replica-router "Arguments" and §1.2; infera-wire §4.9 and §10.1 for spellings; rulings 1–7, 21, 27.)
"""

from __future__ import annotations

from dataclasses import dataclass

from infera_cli.config import discovery, kv, scheduling
from infera_cli.config.catalogue import setting
from infera_cli.config.kinds import Choice, Integer, Many, Seconds, Size, Switch, Text
from infera_cli.config.launch_settings import LaunchSettings
from infera_cli.config.policies import policy_names

MIB = 1024 * 1024

_ADDRESS, _FLEET, _ROUTING = "Address", "Who is behind it", "Routing"
_CLIENTS = "What clients may ask for"
_HEALTH, _TIME, _LIMITS = "Health and retries", "Time limits", "Size limits"
_ACCESS, _LAUNCH, _LOGS, _SERVER = "Who may", "Launched replicas", "Logs", "Server"

@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """What `infera serve` runs with. Times are seconds, sizes bytes; 0 is "no limit" where it says so."""

    replicas: str | None = setting(
        None, Text("FILE"), _FLEET,
        "JSON file that lists the replicas; SIGHUP reads it again.")
    config: str | None = scheduling.config()
    worker: tuple[str, ...] = setting(
        (), Many(Text("URL")), _FLEET,
        "Base URL of a running engine; repeat for more.")
    sim: int = setting(
        0, Integer(), _FLEET,
        "Start N simulated engines on this machine and route to them.")

    discovery_backend: str | None = discovery.discovery_backend()
    etcd_endpoint: tuple[str, ...] = discovery.etcd_endpoint()
    etcd_prefix: str = discovery.etcd_prefix()
    etcd_user: str | None = discovery.etcd_user()
    etcd_password: str | None = discovery.etcd_password()
    etcd_password_file: str | None = discovery.etcd_password_file()
    etcd_ca_file: str | None = discovery.etcd_ca_file()
    etcd_cert_file: str | None = discovery.etcd_cert_file()
    etcd_key_file: str | None = discovery.etcd_key_file()
    lease_time: int = discovery.lease_time(
        "How long workers are kept that an etcd which lost its data no longer knows.")
    request_transport: str = setting(
        "http", Choice(("http",), later=("nats",)), discovery.GROUP,
        "How requests reach workers.")
    kv_event_transport: str = setting(
        "zmq", Choice(("zmq",), later=("nats",)), discovery.GROUP,
        "How workers tell what their caches hold.")

    host: str = setting(
        "0.0.0.0", Text("HOST"), _ADDRESS,
        "Address to listen on; 127.0.0.1 unless given when --sim is used.")
    port: int = setting(
        8000, Integer("PORT", high=65535), _ADDRESS,
        "Port to listen on; 0 takes a free one and prints it.")
    ssl_certfile: str | None = setting(
        None, Text("FILE"), _ADDRESS,
        "Serve TLS with this certificate chain (PEM); read again when it changes.")
    ssl_keyfile: str | None = setting(
        None, Text("FILE"), _ADDRESS,
        "Private key of --ssl-certfile (PEM).")
    keep_alive_timeout: float = setting(
        75.0, Seconds(), _ADDRESS,
        "How long an idle client connection is kept open.")
    shutdown_timeout: float = setting(
        30.0, Seconds(), _ADDRESS,
        "How long open requests may go on after SIGTERM.")

    router_policy: str = setting(
        "session", Choice(policy_names), _ROUTING,
        "How a worker is chosen.")
    router_mode: str = setting(
        "auto", Choice(("auto", "direct")), _ROUTING,
        "auto: the router chooses; direct: a request may name its worker in X-Worker-Instance-Id.")
    session_ttl: float = setting(
        600.0, Seconds(), _ROUTING,
        "Inactivity after which a conversation loses its pin to a worker.")
    affinity_slack: int = setting(
        8, Integer(), _ROUTING,
        "Open requests a pinned worker may have above the least loaded one; 0 = no affinity.")

    router_tokenizer_path: tuple[str, ...] = kv.router_tokenizer_path()
    kv_overlap_weight: float = kv.kv_overlap_weight()
    kv_prefill_overlap_weight: float | None = kv.kv_overlap_weight_of("prefill")
    kv_decode_overlap_weight: float | None = kv.kv_overlap_weight_of("decode")
    kv_index_max_bytes: int = kv.kv_index_max_bytes()
    session_affinity: bool = kv.session_affinity()
    inject_retention: bool = kv.inject_retention()
    router_default_retention: str = kv.router_default_retention()

    queue_limit: int = scheduling.queue_limit()
    max_kv_usage: float = scheduling.max_kv_usage()
    stall_timeout: float = scheduling.stall_timeout()
    prefix_ignore: tuple[str, ...] = scheduling.prefix_ignore()

    anthropic: str = setting(
        "auto", Choice(("auto", "translate", "passthrough")), _CLIENTS,
        "Anthropic requests: passed on to engines that speak the API themselves (auto), to all, or to none.")
    model_alias: tuple[str, ...] = setting(
        (), Many(Text("NAME=MODEL")), _CLIENTS,
        "Serve MODEL also as NAME, which may be a pattern such as claude-*; repeat for more.")

    enable_profiling: bool = setting(
        False, Switch(), _CLIENTS,
        "Let admins start and stop the workers' profilers.")
    kvd_socket_path: str | None = setting(
        None, Text("PATH"), _CLIENTS,
        "Unix socket of the cache daemon that prewarm hints go to.")

    health_interval: float = setting(
        5.0, Seconds(), _HEALTH,
        "Time between two health probes of a worker.")
    request_max_retries: int = setting(
        1, Integer(), _HEALTH,
        "How often a request is sent again, before its first byte reached the client.")
    breaker_failure_threshold: int = setting(
        3, Integer(), _HEALTH,
        "Faults in a row that take a worker out for a while; 0 = never.")
    breaker_cooldown: float = setting(
        5.0, Seconds(), _HEALTH,
        "How long an open breaker keeps a worker out at first.", aliases=("breaker-cooldown-s",))
    breaker_max_cooldown: float = setting(
        60.0, Seconds(), _HEALTH,
        "Limit of the doubling of --breaker-cooldown.", aliases=("breaker-max-cooldown-s",))

    connect_timeout: float = setting(
        5.0, Seconds(), _TIME,
        "Limit for connecting to a worker, and for a probe, which gets 2 s at least (with --config exactly 2 s).")
    request_timeout: float = setting(
        3600.0, Seconds(zero=True), _TIME,
        "Limit for one request from its head to its last byte; 0 = none, which is the default with discovery.")
    first_byte_timeout: float = setting(
        0.0, Seconds(zero=True), _TIME,
        "Limit for a worker's first byte; 0 = none.")
    idle_timeout: float = setting(
        0.0, Seconds(zero=True), _TIME,
        "Limit for silence inside an answer; 0 = none; 900 is the default with discovery.")
    stream_keepalive: float | None = setting(
        None, Seconds(zero=True), _TIME,
        "Send a sign of life after this much silence in a stream; 0 = never.",
        unset="15 in translated streams, else never")

    max_body_size: int = setting(
        64 * MIB, Size(), _LIMITS,
        "Largest request body; a larger one gets 413.")
    max_header_size: int = setting(
        65536, Size(), _LIMITS,
        "Largest request head; a larger one gets 431.")
    max_header_count: int = setting(
        100, Integer(low=1), _LIMITS,
        "Most header lines in a request; more get 431.")
    max_inflight: int = setting(
        4096, Integer(), _LIMITS,
        "Most relayed requests open at once; more get 429; 0 = no limit.")

    api_key: tuple[str, ...] = setting(
        (), Many(Text("KEY")), _ACCESS,
        "Key that clients must send; repeat for more. Visible in process lists as a flag.", secret=True)
    api_key_file: str | None = setting(
        None, Text("FILE"), _ACCESS,
        "File with one client key a line: KEY [models=NAME,PATTERN-*] [per-minute=N].")
    admin_token: str | None = setting(
        None, Text("TOKEN"), _ACCESS,
        "Token for the admin routes. Visible in process lists as a flag.", secret=True)
    admin_token_file: str | None = setting(
        None, Text("FILE"), _ACCESS,
        "File that holds the admin token.")
    admin_open: bool = setting(
        False, Switch(), _ACCESS,
        "Without a token, let every peer use the admin routes, not only this machine.")
    worker_api_key_file: str | None = setting(
        None, Text("FILE"), _ACCESS,
        "File with the key that is sent to workers, in requests and probes.")

    initial_replicas: int | None = setting(
        None, Integer(), _LAUNCH,
        "Replicas to launch at start-up.", unset="1 with hosts, else 0")
    max_replicas: int | None = setting(
        None, Integer(low=1), _LAUNCH,
        "Most replicas to launch.", unset="all declared devices")
    launch_timeout: float = setting(
        600.0, Seconds(), _LAUNCH,
        "How long a launch may take to become ready.")
    drain_timeout: float = setting(
        300.0, Seconds(), _LAUNCH,
        "How long to wait for open requests before a replica is stopped.")
    replace_after: float = setting(
        30.0, Seconds(), _LAUNCH,
        "How long a replica that was serving may be gone before it is replaced.")
    no_replace_dead: bool = setting(
        False, Switch(), _LAUNCH,
        "Leave a dead replica where it is, devices and all.")
    state_file: str | None = setting(
        None, Text("FILE"), _LAUNCH,
        "Record launched replicas here, so that a restart adopts them.")
    on_exit: str | None = setting(
        None, Choice(("stop", "keep")), _LAUNCH,
        "What happens to launched replicas at the end.", unset="keep with --state-file, else stop")
    ssh_host_keys: str = setting(
        "strict", Choice(("strict", "accept-new")), _LAUNCH,
        "Whether the key of a machine never seen before is refused or noted.")

    log_level: str = setting(
        "info", Choice(("debug", "info", "warning", "error")), _LOGS,
        "Least level that is logged.")
    log_format: str = setting(
        "text", Choice(("text", "json")), _LOGS,
        "How a log line looks.")
    access_log: bool = setting(
        True, Switch(both=True), _LOGS,
        "Log one line per relayed request.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How commands such as `infera workers` reach a running server."""

    server: str = setting(
        "http://127.0.0.1:8000", Text("URL"), _SERVER,
        "Address of the running server.")
    admin_token: str | None = setting(
        None, Text("TOKEN"), _SERVER,
        "Admin token of that server. Visible in process lists as a flag.", secret=True)
    admin_token_file: str | None = setting(
        None, Text("FILE"), _SERVER,
        "File that holds the admin token.")
    timeout: float = setting(
        10.0, Seconds(), _SERVER,
        "Limit for one call to the server.")


SECTIONS: dict[str, type] = {"serve": ServeSettings, "launch": LaunchSettings, "client": ClientSettings}
"""The tables of a settings file and what they may hold."""
