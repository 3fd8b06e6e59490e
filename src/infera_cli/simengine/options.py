"""The flags of the simulated engine."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field

from infera_cli.simengine.kv_events import FORMS, HASHES, KvEventsConfig, config_of
from infera_cli.simulator.engine import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One engine: where it listens, what it calls itself, how fast it is. Times in seconds."""

    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ("sim",)
    model: str = "sim"
    max_model_len: int = 32768
    profile: Profile = field(default_factory=Profile)
    output_tokens: int = 64
    load_seconds: float = 0.0
    keep_alive: float = 5.0
    ready_file: str | None = None
    announce_fd: int | None = None
    exit_with_parent: bool = False
    prompt_tokens_details: bool = True
    kv_events: KvEventsConfig | None = None


def parser() -> argparse.ArgumentParser:
    """The command line; names follow vLLM where it has the flag."""
    made = argparse.ArgumentParser(
        prog="python -m infera_cli.simengine", allow_abbrev=False,
        description="A simulated LLM engine with vLLM's interface.",
    )
    add = made.add_argument
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--port", type=int, default=0, help="port to listen on; 0 takes a free one and prints it")
    add("--model", default="sim", help="what /v1/models calls the root of the model")
    add("--served-model-name", nargs="+", metavar="NAME", help="names of the model, default: --model")
    add("--max-model-len", type=int, default=32768, help="most tokens of prompt and answer together")
    add("--prefill-rate", type=float, default=20_000.0, help="prompt tokens computed per second; 0: at once")
    add("--itl-ms", type=float, default=8.0, help="milliseconds between two tokens of a lone stream")
    add("--sequence-ms", type=float, default=0.1, help="milliseconds that each further stream adds to a step")
    add("--max-num-seqs", type=int, default=128, help="sequences that run at once")
    add("--max-num-batched-tokens", type=int, default=8192, help="tokens computed in a step")
    add("--block-size", type=int, default=16, help="tokens in a KV block")
    add("--num-gpu-blocks-override", "--blocks", dest="blocks", type=int, default=8192, help="KV blocks")
    add("--output-tokens", type=int, default=64, help="mean length of an answer that nobody limits")
    add("--load-seconds", type=float, default=0.0, help="connections are refused for so long after the start")
    add("--time-scale", type=float, default=1.0, help="everything is so many times as fast")
    add("--keep-alive", type=float, default=5.0, help="seconds that an idle connection is kept")
    add("--ready-file", help="file to write the port to once requests are taken")
    add("--announce-fd", type=int, help="file descriptor to write the port to once requests are taken")
    add("--exit-with-parent", action="store_true", help="stop when standard input ends")
    add("--no-prompt-tokens-details", action="store_true", help="leave cached tokens out of usage")
    add("--kv-events-config", metavar="JSON", help="publish KV events, as vLLM's flag of that name")
    add("--kv-events-form", choices=FORMS, default="map", help="how events are written")
    add("--kv-events-hashes", choices=HASHES, default="int", help="how block hashes are written")
    return made


def parse(argv: Sequence[str] | None = None) -> Options:
    """Options from a command line; a wrong one ends the program with status 2."""
    made = parser()
    flags = made.parse_args(argv)
    if flags.time_scale <= 0:
        made.error("--time-scale must be above 0")
    try:
        profile = _profile(flags).at_speed(flags.time_scale)
        events = config_of(flags.kv_events_config, flags.kv_events_form, flags.kv_events_hashes)
    except ValueError as wrong:
        made.error(str(wrong))
    return Options(
        host=flags.host, port=flags.port, model=flags.model, profile=profile,
        names=tuple(flags.served_model_name or [flags.model]),
        max_model_len=min(flags.max_model_len, profile.tokens), output_tokens=flags.output_tokens,
        load_seconds=flags.load_seconds / flags.time_scale, keep_alive=flags.keep_alive,
        ready_file=flags.ready_file, announce_fd=flags.announce_fd, exit_with_parent=flags.exit_with_parent,
        prompt_tokens_details=not flags.no_prompt_tokens_details,
        kv_events=events,
    )


def _profile(flags: argparse.Namespace) -> Profile:
    """The engine's speed and size; without a time between tokens, further streams cost nothing either."""
    return Profile(
        prefill_rate=flags.prefill_rate, step_ms=flags.itl_ms,
        sequence_ms=flags.sequence_ms if flags.itl_ms else 0, max_num_seqs=flags.max_num_seqs,
        max_batched_tokens=max(flags.max_num_batched_tokens, flags.max_num_seqs + 1),
        block_size=flags.block_size, blocks=flags.blocks,
    )
