"""Every setting of `infera launch`, once (infera-wire §9 and §10.2; rulings 4, 7, 22).

All other flags are the engine's, and go to it as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from infera_cli.config import discovery
from infera_cli.config.catalogue import setting
from infera_cli.config.kinds import Choice, Kind, Seconds, Switch, Text

_ENGINE, _WORKER, _LOGS = "Engine", "Worker", "Logs"


class _AnyText(Kind):
    """Text that is never refused: what cannot be understood keeps the default (S26)."""

    metavar = "FIRST-LAST"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings:
    """What `infera launch` runs with, beside the engine's own flags. Times are seconds."""

    discovery_backend: str | None = discovery.discovery_backend()
    etcd_endpoint: tuple[str, ...] = discovery.etcd_endpoint()
    etcd_prefix: str = discovery.etcd_prefix()
    etcd_user: str | None = discovery.etcd_user()
    etcd_password: str | None = discovery.etcd_password()
    etcd_password_file: str | None = discovery.etcd_password_file()
    etcd_ca_file: str | None = discovery.etcd_ca_file()
    etcd_cert_file: str | None = discovery.etcd_cert_file()
    etcd_key_file: str | None = discovery.etcd_key_file()
    lease_time: int = discovery.lease_time("After how much silence the worker is forgotten.")
    request_transport: str = setting(
        "http", Choice(("http",), later=("nats",)), discovery.GROUP,
        "How requests reach the worker.")
    kv_event_transport: str = setting(
        "zmq", Choice(("zmq",), later=("nats",)), discovery.GROUP,
        "How the worker tells what its cache holds.")

    advertise_host: str | None = setting(
        None, Text("HOST"), _WORKER,
        "Address by which routers reach this machine.", unset="POD_IP, the engine's --host, or the way to etcd")
    drain_timeout: float = setting(
        30.0, Seconds(zero=True), _WORKER,
        "How long open requests may go on once the worker is told to stop; 0 = not at all; an hour at most.")
    enable_kv_events: bool = setting(
        True, Switch(both=True), _WORKER,
        "Have the engine publish what its cache holds, where it can.")
    kv_events: str = setting(
        "auto", Choice(("off", "auto"), later=("on",)), _WORKER,
        "Whether the record carries the nested kv block; this version writes none.")

    engine_python: str | None = setting(
        None, Text("FILE"), _ENGINE,
        "Python interpreter that the engine is installed for.", unset="the one that runs infera")
    engine_ready_timeout: float = setting(
        1800.0, Seconds(), _ENGINE,
        "How long the engine may take to become ready.")
    nodeport_range: str = setting(
        "30000-32767", _AnyText(), _ENGINE,
        "Ports that are never chosen, since Kubernetes keeps them; none = no such ports.")
    no_engine: bool = setting(
        False, Switch(), _ENGINE,
        "Start nothing: register the engine that answers at --url.")
    url: str | None = setting(
        None, Text("URL"), _ENGINE,
        "Base URL of the engine that --no-engine registers.")

    launcher_log_level: str = setting(
        "info", Choice(("debug", "info", "warning", "error")), _LOGS,
        "Least level that the launcher itself logs.")
    launcher_log_format: str = setting(
        "text", Choice(("text", "json")), _LOGS,
        "How a log line of the launcher looks.")
