"""Datasets by name: reads files, loads a tokenizer where one is given, and hands the rest to `workload`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from infera_cli.errors import ConfigError
from infera_cli.loadtest.job import DatasetSpec
from infera_cli.workload import files, synthetic, traces
from infera_cli.workload.items import Dataset, Listed
from infera_cli.workload.names import MADE_UP, resolve
from infera_cli.workload.requests import Dialect, own
from infera_cli.workload.synthetic import Lengths
from infera_cli.workload.text import Count

SHARED = frozenset({"prefix", "multi-turn", "conversations", "mooncake"})


def repeats_prefixes(spec: DatasetSpec) -> bool:
    """Whether prefix-cache hits are meant to happen in this dataset."""
    return spec.name in SHARED or spec.prefix_len > 0 or spec.multi_turn


def load(spec: DatasetSpec, seed: int, count: Count | None = None) -> Dataset:
    """The dataset that `spec` names. Raises ConfigError, with the line where one is at fault."""
    name = resolve(spec.name)
    if name in MADE_UP:
        return _synthetic(name, spec, seed, count)
    if not spec.path:
        raise ConfigError(f"the dataset {name} is a file: give --dataset-path", param="--dataset-path")
    return _from_file(name, spec, seed, count)


def _synthetic(name: str, spec: DatasetSpec, seed: int, count: Count | None) -> Dataset:
    prompt = Lengths(spec.input_len, spec.range_ratio)
    output = Lengths(spec.output_len or 128, spec.range_ratio)
    if name == "random":
        return synthetic.RandomLengths(seed, prompt, output, prefix=spec.prefix_len, count=count)
    if name == "prefix":
        return synthetic.SharedPrefixes(
            seed, prompt, output, groups=spec.groups, prefix=spec.prefix_len or 256, alpha=spec.zipf,
            count=count,
        )
    return synthetic.Conversations(
        seed, prompt, output, turns=Lengths(spec.turns, spec.turns_ratio), system=spec.prefix_len,
        think=spec.think, count=count,
    )


def _from_file(name: str, spec: DatasetSpec, seed: int, count: Count | None) -> Dataset:
    origin = spec.path or name
    content = spec.content if spec.content is not None else read(origin)
    if name == "sharegpt":
        return files.sharegpt(
            content, origin, output=spec.output_len, multi_turn=spec.multi_turn, count=count
        )
    lines = content.split("\n")     # and at nothing else: JSON holds other ends of lines as text
    readers: dict[str, Callable[[], Dataset]] = {
        "openai": partial(files.openai_jsonl, lines, origin, output=spec.output_len),
        "conversations": partial(files.conversations, lines, origin, output=spec.output_len, count=count),
        "mooncake": partial(traces.mooncake, lines, origin, seed, block=spec.block, count=count),
        "azure": partial(traces.azure, lines, origin, seed, count=count),
        "burstgpt": partial(traces.burstgpt, lines, origin, seed, count=count),
    }
    return readers[name]()


def check(dataset: Dataset, origin: str, dialect: Dialect) -> None:
    """Raises ConfigError for a request of the dataset's own that cannot be sent to such an endpoint."""
    if not isinstance(dataset, Listed):
        return
    for index in range(dataset.size or 0):
        request = dataset.item(index).body
        try:
            own(dialect, request or {"prompt": ""})
        except ConfigError as error:
            raise ConfigError(f"{origin}: request {index + 1} {error.message}", param="--endpoint") from None


def kept(spec: DatasetSpec, *, elsewhere: bool = False) -> DatasetSpec:
    """`spec` with the content of a file that is not there again to read: a pipe, or any on another machine. Raises
    ConfigError."""
    if spec.path is None or spec.content is not None or (Path(spec.path).is_file() and not elsewhere):
        return spec
    return msgspec.structs.replace(spec, content=read(spec.path))


def read(path: str) -> str:
    """The text of a dataset file. Raises ConfigError."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"cannot read the dataset {path}: {reason}", param="--dataset-path") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the dataset {path} is not UTF-8 text", param="--dataset-path") from None


def tokenizer(path: str | None) -> Count | None:
    """Counts tokens with the tokenizer.json at `path` (or in that folder), without special tokens."""
    if path is None:
        return None
    from tokenizers import Tokenizer  # noqa: PLC0415  # 50 MB that most runs do not need

    place = Path(path)
    place = place / "tokenizer.json" if place.is_dir() else place
    try:
        content = place.read_bytes()    # ourselves, since the library names no cause that people would know
    except OSError as error:
        raise ConfigError(f"cannot read the tokenizer {place}: {error.strerror}", param="--tokenizer") from None
    try:
        loaded = Tokenizer.from_buffer(content)
    except Exception as error:  # noqa: BLE001  # the library raises a bare Exception
        raise ConfigError(f"cannot load the tokenizer {place}: {error}", param="--tokenizer") from None
    return lambda text: len(loaded.encode(text, add_special_tokens=False).ids)
