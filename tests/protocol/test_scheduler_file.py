"""The scheduler's YAML file: every row of replica-router §2.3."""

from __future__ import annotations

import pytest

from infera_cli.errors import ConfigError
from infera_cli.protocol.hardware import HARDWARE
from infera_cli.protocol.scheduler_file import SchedulerFile, parse

NODE = """
  - id: a
    hardware: a100-80g
    backend: vllm
    endpoint: http://10.0.0.1:8000
    models: [m]
"""
OTHER = NODE.replace("id: a", "id: b").replace("10.0.0.1", "10.0.0.2")


def read(text: str) -> SchedulerFile:
    return parse(text.encode(), path="f.yaml")


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as fault:
        read(text)
    assert fault.value.exit_code == 1
    assert fault.value.message.startswith("f.yaml: ")
    return fault.value.message.removeprefix("f.yaml: ")


def test_the_seed_schema_is_read() -> None:
    """The example of the documentation means what it says, key by key."""
    file = read("""
scheduler:
  port: 9000
  host: "0.0.0.0"
  log_level: info
  request_timeout_ms: 30000
nodes:
  - id: node-a100-01
    hardware: a100-80g
    backend: vllm
    endpoint: http://10.0.0.1:8000
    models: [meta-llama/Llama-3-8B-Instruct]
    weight: 0.5
  - id: my-node
    hardware: custom
    hardware_profile:
      memory_bandwidth_gbps: 900
      vram_gb: 48
      nvlink: false
    backend: tgi
    endpoint: https://gpu.example/llm/v1/
    models: [m]
kv_cache:
  policy: adaptive
  pin_system_prompts: false
  eviction_threshold_pct: 80
batching:
  strategy: static
  max_batch_size: 16
  prefill_decode_split: false
""")
    assert (file.server.port, file.server.host, file.server.log_level) == (9000, "0.0.0.0", "info")
    assert file.server.request_timeout == 30.0
    first, second = file.nodes
    assert (first.id, first.hardware, first.backend, first.weight) == ("node-a100-01", "a100-80g", "vllm", 0.5)
    assert (first.scheme, first.host, first.port, first.path_prefix) == ("http", "10.0.0.1", 8000, "")
    assert first.models == ("meta-llama/Llama-3-8B-Instruct",)
    assert first.profile == HARDWARE["a100-80g"]
    assert (second.scheme, second.port, second.path_prefix) == ("https", 443, "/llm")
    assert (second.profile.vram_gb, second.profile.bandwidth_gbps, second.profile.nvlink) == (48, 900, False)
    assert second.profile.tflops == pytest.approx(180)
    assert (file.cache.policy, file.cache.pin_system_prompts, file.cache.threshold) == ("adaptive", False, 0.8)
    assert (file.batching.strategy, file.batching.cap, file.batching.split) == ("static", 16, False)
    assert file.warnings == ()


def test_defaults_are_the_documented_ones() -> None:
    """A file of nodes alone: port 9000 everywhere, lru, pinned prompts, 90 %, continuous, no cap."""
    file = read("nodes:" + NODE)
    assert (file.server.port, file.server.host, file.server.log_level) == (9000, "0.0.0.0", "info")
    assert file.server.request_timeout is None
    assert (file.cache.policy, file.cache.pin_system_prompts, file.cache.threshold) == ("lru", True, 0.9)
    assert (file.batching.strategy, file.batching.cap, file.batching.split) == ("continuous", None, False)
    assert (file.batching.flush, file.nodes[0].weight, file.nodes[0].role) == (2.0, 1.0, "both")


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("h100-80g", (80, 3350, 989.4, True)), ("a100-80g", (80, 2039, 312, True)),
        ("a100-40g", (40, 1555, 312, True)), ("rtx-4090", (24, 1008, 165.2, False)),
        ("a6000", (48, 768, 154.8, False)),
    ],
)  # fmt: skip
def test_hardware_has_its_documented_figures(name: str, row: tuple[float, float, float, bool]) -> None:
    """VRAM, bandwidth, bf16 TFLOPS and NVLink of each identifier (replica-router §2.4)."""
    assert tuple(HARDWARE[name]) == row


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodes: []", "nodes must be a list with at least one node"),
        ("{}", "nodes must be a list with at least one node"),
        ("[]", "the file must be a block of keys (scheduler, nodes, kv_cache, batching), not a list"),
        ("nodes:" + NODE + "kv-cache: {}", 'unknown key "kv-cache" (did you mean "kv_cache"?)'),
        ("nodes:" + NODE + "    wieght: 1", 'nodes[0]: unknown key "wieght" (did you mean "weight"?)'),
        ("scheduler: {prot: 1}\nnodes:" + NODE, 'scheduler: unknown key "prot" (did you mean "port"?)'),
        ("scheduler: {port: 70000}\nnodes:" + NODE,
         "scheduler.port must be a whole number from 1 to 65535, not 70000"),
        ("scheduler: {port: true}\nnodes:" + NODE, "scheduler.port must be a whole number from 1 to 65535, not true"),
        ('scheduler: {port: "9000"}\nnodes:' + NODE,
         'scheduler.port must be a whole number from 1 to 65535, not "9000"'),
        ("scheduler: {log_level: warning}\nnodes:" + NODE,
         'scheduler.log_level must be one of debug, info, warn, error, not "warning"'),
        ("scheduler: {request_timeout_ms: 0}\nnodes:" + NODE,
         "scheduler.request_timeout_ms must be a whole number of at least 1, not 0"),
        ("scheduler: {host: ''}\nnodes:" + NODE, "scheduler.host must be text, not empty"),
        ("scheduler: 5\nnodes:" + NODE,
         "scheduler must be a block of keys (port, host, log_level, request_timeout_ms, admin_key_file), not 5"),
        ("nodes:" + NODE + NODE.replace("10.0.0.1", "10.0.0.2"),
         'nodes[1].id "a" is taken by nodes[0]; ids are unique'),
        ("nodes:" + NODE + NODE.replace("id: a", "id: b"),
         "nodes[1].endpoint is that of nodes[0]; a node is one endpoint"),
        ("nodes:" + NODE.replace("id: a", "id: a/b"), 'nodes[0].id must be 1 to 64 of A-Z a-z 0-9 . _ -, not "a/b"'),
        ("nodes:" + NODE.replace("id: a\n", "id: 5\n"), "nodes[0].id must be text, not 5"),
        ("nodes:" + NODE.replace("a100-80g", "a100"),
         'nodes[0].hardware must be one of a100-80g, a100-40g, h100-80g, rtx-4090, a6000, custom, not "a100"'),
        ("nodes:" + NODE.replace("vllm", "sglang"),
         'nodes[0].backend must be one of vllm, tgi, custom, not "sglang"'),
        ("nodes:" + NODE.replace("    backend: vllm\n", ""),
         "nodes[0].backend is missing; it is one of vllm, tgi, custom"),
        ("nodes:" + NODE.replace("[m]", "[]"), "nodes[0].models must be a list of texts, not empty, not an empty list"),
        ("nodes:" + NODE.replace("[m]", "m"), 'nodes[0].models must be a list of texts, not empty, not "m"'),
        ("nodes:" + NODE.replace("[m]", "[m, m]"), 'nodes[0].models names "m" twice'),
        ("nodes:" + NODE + "    weight: 1.5", "nodes[0].weight must be a number from 0 to 1, not 1.5"),
        ("nodes:" + NODE + "    weight: true", "nodes[0].weight must be a number from 0 to 1, not true"),
        ("nodes:" + NODE + "    weight: .nan", "nodes[0].weight must be a number from 0 to 1, not nan"),
        ("nodes:" + NODE + "    role: mixed", 'nodes[0].role must be one of prefill, decode, both, not "mixed"'),
        ("nodes:" + NODE.replace("a100-80g", "custom"),
         "nodes[0].hardware_profile is missing; hardware: custom needs memory_bandwidth_gbps and vram_gb"),
        ("nodes:" + NODE + "    hardware_profile: {vram_gb: 1}",
         "nodes[0].hardware_profile goes with hardware: custom only, not with a100-80g"),
        ("nodes:" + NODE.replace("a100-80g", "custom\n    hardware_profile: {vram_gb: 1}"),
         "nodes[0].hardware_profile.memory_bandwidth_gbps is missing; it is a number above 0"),
        ("nodes:" + NODE.replace("a100-80g", "custom\n    hardware_profile: {vram_gb: 0, memory_bandwidth_gbps: 9}"),
         "nodes[0].hardware_profile.vram_gb must be a number above 0, not 0"),
        ("nodes:" + NODE.replace("a100-80g", "custom\n    hardware_profile: {vram: 1}"),
         'nodes[0].hardware_profile: unknown key "vram" (did you mean "vram_gb"?)'),
        ("nodes:" + NODE + "kv_cache: {policy: LRU}",
         'kv_cache.policy must be one of lru, prefix-aware, adaptive, not "LRU"'),
        ("nodes:" + NODE + "kv_cache: {pin_system_prompts: 1}",
         "kv_cache.pin_system_prompts must be true or false, not 1"),
        ("nodes:" + NODE + "kv_cache: {eviction_threshold_pct: 101}",
         "kv_cache.eviction_threshold_pct must be a whole number from 0 to 100, not 101"),
        ("nodes:" + NODE + "kv_cache: {eviction_threshold_pct: 0.9}",
         "kv_cache.eviction_threshold_pct must be a whole number from 0 to 100, not 0.9"),
        ("nodes:" + NODE + "kv_cache: {prefix_ignore: ['(']}",
         'kv_cache.prefix_ignore holds "(", no regular expression'),
        ("nodes:" + NODE + "batching: {strategy: dynamic}",
         'batching.strategy must be one of continuous, static, not "dynamic"'),
        ("nodes:" + NODE + "batching: {max_batch_size: 0}",
         "batching.max_batch_size must be a whole number of at least 1, not 0"),
        ("nodes:" + NODE + "batching: {prefill_decode_split: 'yes'}",
         'batching.prefill_decode_split must be true or false, not "yes"'),
        ("nodes:" + NODE + "    role: prefill\nbatching: {prefill_decode_split: true}",
         'batching.prefill_decode_split is true, but no node of "m" has role decode or both'),
        ("nodes: 1\nnodes: 2", "is not valid YAML: 'nodes' stands twice, line 2 column 1"),
        ("nodes: [", "is not valid YAML: "),
        ("1: 2", "is not valid YAML: a key has to be text, not 1"),
        ("nodes: !!python/object:os.system {}", "is not valid YAML: "),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named_by_its_dotted_path(text: str, says: str) -> None:
    """The first fault stops the program with exit status 1: path of the key, and what it accepts."""
    assert refusal(text).startswith(says)


@pytest.mark.parametrize(
    "url",
    ["10.0.0.1:8000", "ftp://h:1", "http://", "http://h:1?x=1", "http://h:1#f", "http://h:0", "http://h:99999",
     "http://h:"],
)
def test_an_endpoint_is_an_absolute_http_url(url: str) -> None:
    """No other scheme, no query, no fragment, a port that exists."""
    said = refusal("nodes:" + NODE.replace("http://10.0.0.1:8000", f"'{url}'"))
    assert said.startswith("nodes[0].endpoint must be a URL like http://10.0.0.2:8000")


def test_credentials_of_an_endpoint_are_not_repeated() -> None:
    """A secret in a URL is refused without being shown."""
    said = refusal("nodes:" + NODE.replace("http://10", "http://user:hush@10"))
    assert "hush" not in said
    assert "--worker-api-key-file" in said


def test_static_without_a_size_is_eight_with_a_warning() -> None:
    """`strategy: static` without `max_batch_size` is told at the start (replica-router §2.8)."""
    file = read("nodes:" + NODE + "batching: {strategy: static}")
    assert file.warnings == ("batching.strategy is static without max_batch_size: batches of 8",)


def test_a_split_needs_both_pools_for_every_model() -> None:
    """Prefill and decode nodes of a model make a split possible; `both` counts for either."""
    two = NODE + "    role: prefill" + OTHER + "    role: decode"
    assert read("nodes:" + two + "\nbatching: {prefill_decode_split: true}").batching.split is True
    assert read("nodes:" + NODE + "batching: {prefill_decode_split: true}").batching.split is True
