"""The hardware that node files name, as data (replica-router §2.4).

Vendor peak figures, dense bf16 with fp32 accumulation. H100 and A100 are the SXM parts: the PCIe cards are slower
and want `hardware: custom`. The A6000's optional two-card bridge is left out: a node is one endpoint.
"""

from __future__ import annotations

from typing import NamedTuple


class Hardware(NamedTuple):
    """What one device can do: gigabytes, gigabytes a second, 10¹² operations a second."""

    vram_gb: float
    bandwidth_gbps: float
    tflops: float
    nvlink: bool = False


HARDWARE: dict[str, Hardware] = {
    "a100-80g": Hardware(80, 2039, 312, nvlink=True),
    "a100-40g": Hardware(40, 1555, 312, nvlink=True),
    "h100-80g": Hardware(80, 3350, 989.4, nvlink=True),
    "rtx-4090": Hardware(24, 1008, 165.2),
    "a6000": Hardware(48, 768, 154.8),
}
"""By the identifier of the node file, in the order of its documentation."""

CUSTOM = "custom"
NAMES = (*HARDWARE, CUSTOM)

TFLOPS_PER_GBPS = 0.2
"""A custom profile without `bf16_tflops` computes so much for each GB/s it reads (replica-router §2.3)."""

ASSUMED = HARDWARE["a100-80g"]
"""Stands for workers of which no file says what they run on; all alike, so that only load tells them apart."""
