"""A model folder that all tests here share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tokens import models, templates


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokenizer and ChatML template."""
    return models.write(tmp_path_factory.mktemp("model"), templates.THINKING)
