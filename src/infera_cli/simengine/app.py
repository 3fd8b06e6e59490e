"""The routes of the simulated engine (engines §1.4, §1.5, §8)."""

from __future__ import annotations

import asyncio
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import xxhash

from infera_cli.simengine import ask, faults, metrics
from infera_cli.simengine.ask import Refused
from infera_cli.simengine.driver import Driver
from infera_cli.simengine.faults import Fault
from infera_cli.simengine.generation import Context, Generation
from infera_cli.simengine.http import Exchange
from infera_cli.simengine.kv_events import KvEvents
from infera_cli.simengine.options import Options
from infera_cli.simengine.styles import Chat, Completion, Messages, Style
from infera_cli.simengine.tools import ChatCall, MessagesCall, forced_tool
from infera_cli.simulator import text
from infera_cli.simulator.engine import EngineModel

VERSION = "0.32.0"
_GENERATING = ("/v1/chat/completions", "/v1/completions", "/v1/messages")


class App:
    """Answers exchanges; holds the engine and the faults that are set for everyone."""

    def __init__(self, options: Options) -> None:
        self.options = options
        events = options.kv_events
        self.events = KvEvents(events, options.profile.block_size) if events is not None else None
        self.driver = Driver(EngineModel(options.profile, record=events is not None), self.events)
        self.metrics = metrics.Metrics(self.driver.engine, options)
        self.on_refuse: Callable[[float], None] = lambda _seconds: None
        self.stats: Callable[[], dict[str, Any]] = dict
        self.requests = 0
        self._context = Context(self.driver, self.metrics, options)
        self._created = int(time.time())
        self._fault = faults.NONE
        self._fault_left = 0
        self._profiling = False
        self._health: int | str = 200
        self._live: set[Generation] = set()
        self._held: set[Exchange] = set()        # exchanges that a fault keeps waiting
        self._routes: dict[tuple[str, str], Callable[[Exchange], None]] = {
            ("GET", "/health"): self._get_health, ("GET", "/ping"): self._get_health,
            ("POST", "/ping"): self._get_health, ("GET", "/load"): self._get_load,
            ("GET", "/kv_event_sources"): self._get_sources,
            ("GET", "/version"): lambda exchange: exchange.json(200, {"version": VERSION}),
            ("GET", "/metrics"): self._get_metrics, ("GET", "/v1/models"): self._get_models,
            ("POST", "/tokenize"): self._tokenize, ("POST", "/detokenize"): self._detokenize,
            ("POST", "/v1/messages/count_tokens"): self._count_tokens,
            ("POST", "/v1/embeddings"): self._embeddings,
            ("POST", "/reset_prefix_cache"): self._reset_cache,
            ("POST", "/start_profile"): self._start_profile, ("POST", "/stop_profile"): self._stop_profile,
            ("GET", "/sim/stats"): self._get_stats, ("POST", "/sim/faults"): self._set_faults,
            **{("POST", path): self._generate for path in _GENERATING},
        }
        self._paths = {path for _, path in self._routes}

    def __call__(self, exchange: Exchange) -> None:
        """Answer one request; whatever is wrong with it becomes an error of the route's shape."""
        request = exchange.request
        route = self._routes.get((request.method, request.path))
        if route is None:
            known = request.path in self._paths
            exchange.json(405 if known else 404, {"detail": "Method Not Allowed" if known else "Not Found"})
            return
        self._answer(exchange, lambda: route(exchange))

    def _answer(self, exchange: Exchange, work: Callable[[], None]) -> None:
        """Do `work`; what goes wrong becomes an error in the shape of the route."""
        shape = "messages" if exchange.request.path.startswith("/v1/messages") else "vllm"
        try:
            work()
        except Refused as no:
            body = faults.error_body(no.status, no.message, shape, kind=no.kind, param=no.param)
            exchange.json(no.status, body)
        except Exception as bug:  # noqa: BLE001 - a bug of ours is a 500, as it would be in an engine
            traceback.print_exc()
            exchange.json(500, faults.error_body(500, f"{type(bug).__name__}: {bug}", shape))

    def stop(self) -> None:
        """End every open answer with finish_reason "abort", as vLLM does on SIGTERM (engines §1.13)."""
        for generation in list(self._live):
            generation.abort()
        if self.events is not None:
            self.events.close()

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────
    def _get_health(self, exchange: Exchange) -> None:
        if self._health == "hang":
            self._held.add(exchange)
            exchange.on_gone = lambda: self._held.discard(exchange)
            return
        exchange.reply(int(self._health), b"", "")

    def _get_load(self, exchange: Exchange) -> None:
        exchange.json(200, {"server_load": len(self._live)})

    def _get_sources(self, exchange: Exchange) -> None:
        exchange.json(200, self.events.sources() if self.events is not None else {})

    def _get_metrics(self, exchange: Exchange) -> None:
        exchange.reply(200, self.metrics.exposition(), metrics.CONTENT_TYPE)

    def _get_models(self, exchange: Exchange) -> None:
        exchange.json(200, {"object": "list", "data": [self._card(name) for name in self.options.names]})

    def _card(self, name: str) -> dict[str, Any]:
        allowed = {f"allow_{what}": what in {"sampling", "logprobs", "view"} for what in (
            "create_engine", "sampling", "logprobs", "search_indices", "view", "fine_tuning")}
        permission = {"id": f"modelperm-{name}", "object": "model_permission", "created": self._created,
                      **allowed, "organization": "*", "group": None, "is_blocking": False}
        return {"id": name, "object": "model", "created": self._created, "owned_by": "vllm",
                "root": self.options.model, "parent": None, "max_model_len": self.options.max_model_len,
                "permission": [permission]}

    # ── tokens ───────────────────────────────────────────────────────────────────────────────────────
    def _tokenize(self, exchange: Exchange) -> None:
        body = self._body(exchange)
        ids = ask.chat_prompt(body) if "messages" in body else ask.completion_prompts(body)[0]
        strings = [text.decode([number]) for number in ids] if body.get("return_token_strs") else None
        exchange.json(200, {"count": len(ids), "max_model_len": self.options.max_model_len, "tokens": ids,
                            "token_strs": strings})

    def _detokenize(self, exchange: Exchange) -> None:
        tokens = self._body(exchange).get("tokens")
        if not isinstance(tokens, list) or not all(isinstance(number, int) for number in tokens):
            raise Refused(400, "tokens: Input should be a valid list of integers", kind="Bad Request")
        exchange.json(200, {"prompt": text.decode(tokens)})

    def _count_tokens(self, exchange: Exchange) -> None:
        exchange.json(200, {"input_tokens": len(ask.messages_prompt(self._body(exchange)))})

    def _embeddings(self, exchange: Exchange) -> None:
        body = self._body(exchange)
        prompts = ask.completion_prompts({"prompt": body.get("input")})
        data = [{"object": "embedding", "index": index, "embedding": _vector(ids)}
                for index, ids in enumerate(prompts)]
        count = sum(map(len, prompts))
        usage = {"prompt_tokens": count, "total_tokens": count, "completion_tokens": 0,
                 "prompt_tokens_details": None}
        exchange.json(200, {"id": f"embd-{_name(exchange)}", "object": "list", "created": int(time.time()),
                            "model": self.options.names[0], "data": data, "usage": usage})

    def _reset_cache(self, exchange: Exchange) -> None:
        cleared = self.driver.engine.cache.clear()
        if cleared and self.events is not None:
            self.driver.engine.cache.events()                     # one event says it all
            self.events.cleared()
        exchange.json(200, {"success": cleared})

    # ── generating ───────────────────────────────────────────────────────────────────────────────────
    def _generate(self, exchange: Exchange) -> None:
        self.requests += 1
        fault = self._fault_of(exchange.request.headers.get("x-sim-fault"))
        if fault.delay:
            asyncio.get_running_loop().call_later(fault.delay, self._go, exchange, replace(fault, delay=0.0))
        else:
            self._go(exchange, fault)

    def _go(self, exchange: Exchange, fault: Fault) -> None:
        if exchange.open:
            self._answer(exchange, lambda: self._check(exchange, fault))

    def _check(self, exchange: Exchange, fault: Fault) -> None:
        body = self._body(exchange)
        if body.get("sim_fault"):
            fault = _parse_fault(str(body["sim_fault"]))
        if not self._spoiled(exchange, fault):
            self._begin(exchange, body, fault)

    def _begin(self, exchange: Exchange, body: Mapping[str, Any], fault: Fault) -> None:
        path = exchange.request.path
        name = _name(exchange)
        if path == "/v1/completions":
            prompts = ask.completion_prompts(body)
        else:
            prompts = [ask.chat_prompt(body) if path == "/v1/chat/completions" else ask.messages_prompt(body)]
        asked = ask.ask(body, prompts, self.options)
        style = self._style(path, name, asked)
        generation = Generation(f"{name}-{self.requests}", exchange, asked, style, self._context, fault=fault)
        self._live.add(generation)
        exchange.on_end = lambda: self._live.discard(generation)
        generation.start()

    def _style(self, path: str, name: str, asked: ask.Ask) -> Style:
        model, now = self.options.names[0], int(time.time())
        tool = None if path == "/v1/completions" else forced_tool(asked.body)
        if path == "/v1/messages":
            return Messages(name, model) if tool is None else MessagesCall(name, model, tool)
        if tool is not None:
            return ChatCall(name, model, now, tool, include_usage=asked.usage, every_chunk=asked.usage_in_chunks)
        kind = Chat if path == "/v1/chat/completions" else Completion
        return kind(name, model, now, include_usage=asked.usage, every_chunk=asked.usage_in_chunks)

    def _body(self, exchange: Exchange) -> dict[str, Any]:
        body = ask.read_json(exchange.request.body)
        ask.check_model(body, self.options)
        return body

    # ── profiling ────────────────────────────────────────────────────────────────────────────────────
    def _start_profile(self, exchange: Exchange) -> None:
        """A second start before a stop is a conflict (engines §1.11); nothing is written."""
        if self._profiling:
            exchange.json(409, faults.error_body(409, "Profiling is already running.", kind="Conflict"))
            return
        self._profiling = True
        exchange.reply(200, b"", "")

    def _stop_profile(self, exchange: Exchange) -> None:
        self._profiling = False
        exchange.reply(200, b"", "")

    # ── faults ───────────────────────────────────────────────────────────────────────────────────────
    def _fault_of(self, header: str | None) -> Fault:
        if header is not None:
            return _parse_fault(header)
        fault = self._fault
        if self._fault_left:
            self._fault_left -= 1
            if not self._fault_left:
                self._fault = faults.NONE
        return fault

    def _spoiled(self, exchange: Exchange, fault: Fault) -> bool:
        """Do what happens instead of an answer, if anything."""
        if fault.status:
            retry = [("Retry-After", fault.retry_after)] if fault.retry_after else []
            said = f"simulated fault {fault.status}"
            exchange.json(fault.status, faults.error_body(fault.status, said, fault.shape), retry)
        elif fault.before == "reset":
            exchange.reset()
        elif fault.before == "close":
            exchange.close()
        elif fault.before == "garbage":
            exchange.raw(b"\x00\x01 this is not HTTP\r\n\r\n")
            exchange.close()
        elif fault.before == "stall":
            self._held.add(exchange)
            exchange.on_gone = lambda: self._held.discard(exchange)
        return bool(fault.status or fault.before)

    def _set_faults(self, exchange: Exchange) -> None:
        """`{"fault": text or null, "times": N, "health": status or "hang", "refuse": seconds}`, each
        optional."""
        body = ask.read_json(exchange.request.body)
        if "fault" in body:
            self._fault = _parse_fault(str(body["fault"] or ""))
            self._fault_left = int(body.get("times") or 0)
        if "health" in body:
            self._health = body["health"] or 200
        if body.get("refuse"):
            self.on_refuse(float(body["refuse"]))
        # The listener is closed by the next turns of the loop; who reads the answer finds it so.
        asyncio.get_running_loop().call_later(0.02, exchange.json, 200, {"ok": True})

    def _get_stats(self, exchange: Exchange) -> None:
        engine = self.driver.engine
        exchange.json(200, {"requests": self.requests, "live": len(self._live), "running": engine.running,
                            "waiting": engine.waiting, "aborted": engine.counters.aborted, **self.stats()})


def _parse_fault(given: str) -> Fault:
    try:
        return faults.parse(given)
    except ValueError as wrong:
        raise Refused(400, f"x-sim-fault: {wrong}") from None


def _name(exchange: Exchange) -> str:
    return exchange.request.headers.get("x-request-id") or uuid.uuid4().hex


def _vector(ids: list[int], size: int = 8) -> list[float]:
    """A deterministic vector of length one, made from the prompt."""
    raw = [xxhash.xxh3_64_intdigest(repr(ids).encode(), seed=place) / 2**63 - 1 for place in range(size)]
    length = sum(value * value for value in raw) ** 0.5 or 1.0
    return [value / length for value in raw]
