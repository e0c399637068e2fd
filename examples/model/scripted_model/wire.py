"""The JSON of chat completions: one answer whole, or the same answer in pieces."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from typing import Any

from .conversation import Answer, Call, Conversation, ScriptError, text_of

# Length of the pieces of a streamed answer, in characters. Short, so that clients must put pieces together.
PIECE = 48


class Reply:
    """An answer of the script as the wire wants it."""

    def __init__(self, answer: Answer, conversation: Conversation, model: str) -> None:
        self.id = "chatcmpl-" + secrets.token_hex(12)
        self.created = int(time.time())
        self.model = model
        self.text: str | None = None
        self.calls: list[dict[str, Any]] = []
        if isinstance(answer, str):
            self.text = answer
        else:
            calls = [answer] if isinstance(answer, Call) else list(answer)
            if not calls:
                raise ScriptError("the script answered with neither a sentence nor a call")
            self.calls = [self._call(call, conversation) for call in calls]
        self.usage = self._usage(conversation)

    @staticmethod
    def _call(call: Call, conversation: Conversation) -> dict[str, Any]:
        function = {"name": conversation.offered(call.tool), "arguments": json.dumps(call.arguments)}
        return {"id": "call_" + secrets.token_hex(12), "type": "function", "function": function}

    def _usage(self, conversation: Conversation) -> dict[str, int]:
        """Token counts by the rule of thumb of four characters a token; nothing is billed by them."""
        prompt = sum(len(text_of(message)) for message in conversation.messages) // 4
        answer = len(self.text or "") // 4 + sum(len(call["function"]["arguments"]) for call in self.calls) // 4
        return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}

    @property
    def finish_reason(self) -> str:
        return "tool_calls" if self.calls else "stop"

    def whole(self) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text, "refusal": None}
        if self.calls:
            message["tool_calls"] = self.calls
        choice = {"index": 0, "message": message, "finish_reason": self.finish_reason, "logprobs": None}
        return self._envelope("chat.completion", [choice]) | {"usage": self.usage}

    def pieces(self, include_usage: bool) -> Iterator[dict[str, Any]]:
        """The events of a streamed answer."""
        yield self._piece({"role": "assistant", "content": "" if self.text is not None else None})
        for part in cut(self.text or ""):
            yield self._piece({"content": part})
        for index, call in enumerate(self.calls):
            head = call | {"index": index, "function": call["function"] | {"arguments": ""}}
            yield self._piece({"tool_calls": [head]})
            for part in cut(call["function"]["arguments"]):
                yield self._piece({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
        yield self._piece({}, self.finish_reason)
        if include_usage:
            yield self._envelope("chat.completion.chunk", []) | {"usage": self.usage}

    def _piece(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        return self._envelope("chat.completion.chunk", [choice])

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}


def cut(text: str) -> Iterator[str]:
    """`text` in pieces."""
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))
