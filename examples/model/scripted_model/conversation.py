"""What a script sees, and what it may answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ScriptError(Exception):
    """The script cannot go on with this conversation, or asks for something that the client does not offer."""


class Call:
    """A call of one tool: its name without the prefix that a framework adds, and its arguments."""

    def __init__(self, tool: str, /, **arguments: Any) -> None:
        self.tool = tool
        self.arguments = arguments

    def __repr__(self) -> str:
        return f"Call({self.tool!r}, {', '.join(self.arguments)})"


# A sentence ends the turn; calls ask the client to run tools and come back.
Answer = str | Call | Sequence[Call]


class Conversation:
    """The messages of one request and the tools on offer, read in the terms that a script needs."""

    def __init__(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> None:
        self.messages = messages
        self.tool_names = [tool["function"]["name"] for tool in tools if tool.get("type") == "function"]

    @property
    def request(self) -> str:
        """The text of the last message by a user."""
        texts = [text_of(message) for message in self.messages if message.get("role") == "user"]
        return texts[-1] if texts else ""

    @property
    def tool_results(self) -> list[str]:
        """What the tools answered since the last message by a user, oldest first."""
        results: list[str] = []
        for message in self.messages:
            if message.get("role") == "user":
                results = []
            elif message.get("role") == "tool":
                results.append(text_of(message))
        return results

    def offered(self, tool: str) -> str:
        """The full name under which the client offers `tool`.

        Frameworks join a plugin's name in front, as in `code-run_python`, so the end of the name decides.
        """
        for name in self.tool_names:
            if name == tool or name.endswith(("-" + tool, "_" + tool, "." + tool)):
                return name
        raise ScriptError(f"the script calls {tool!r}, and the client offers {self.tool_names or 'no tools'}")


def text_of(message: dict[str, Any]) -> str:
    """The text of a message, whose content may be a string, a list of parts or absent."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
