"""Anthropic's Messages API over engines that speak OpenAI's chat: both ways, as pure values (infera-wire §7).

The cases of issue trackers win over the sheet in order, block indexes and endings (rulings 19).
"""
