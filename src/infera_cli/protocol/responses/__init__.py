"""OpenAI's Responses API over engines that speak chat alone: text and tools, both ways, as pure values."""
