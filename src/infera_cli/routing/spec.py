"""One engine as it was configured or registered; what is live about it lives elsewhere (style.md 8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["mixed", "prefill", "decode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """One engine as it was configured or registered; what is live about it lives elsewhere.

    `models` are declared names (empty: learn them from the engine); where they are not `binding`, the engine may list
    more: aliases, adapters. `api_key` is sent to this worker instead
    of the client's credentials and is never shown. `address` is what the router dials where it differs from
    `host`. `kv_events_endpoint` is the ZMQ address of the first rank's KV events, None where it must be asked
    for, `kv_replay_endpoint` where missed ones can be had again; `kv_block_size` is the engine's page in tokens.
    `dp_size` ranks answer behind this address, or it is itself rank `dp_rank` of its engine
    (infera-wire §1.2, §4.3).
    """

    id: str
    host: str
    port: int
    scheme: Literal["http", "https"] = "http"
    path_prefix: str = ""
    address: str | None = None
    models: tuple[str, ...] = ()
    binding: bool = True
    role: Role = "mixed"
    engine: str = ""
    source: str = ""
    api_key: str | None = None
    ca_file: str | None = None
    kv_events_endpoint: str | None = None
    kv_replay_endpoint: str | None = None
    kv_block_size: int | None = None
    dp_rank: int | None = None
    dp_size: int | None = None

    @property
    def ranks(self) -> int:
        """How many ranks a request may be addressed to behind this one address; 0: none to choose (§4.3)."""
        return self.dp_size if self.dp_size is not None and self.dp_size > 1 and self.dp_rank is None else 0

    @property
    def authority(self) -> str:
        """`host:port`, IPv6 hosts in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Base URL without a trailing slash."""
        return f"{self.scheme}://{self.authority}{self.path_prefix}"

    def __repr__(self) -> str:
        return f"WorkerSpec({self.id!r}, {self.url!r})"
