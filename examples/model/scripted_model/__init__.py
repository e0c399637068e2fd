"""A chat model whose part is played by a script, behind the HTTP interface that OpenAI clients speak.

A script is one function, `decide(conversation)`. It is called for every request with the whole conversation and gives
back a sentence, or one or more `Call`s of the tools that the client offered. It keeps no state: like a real model it
knows only what the conversation says, so its next step depends on what the tools really answered.

    from scripted_model import Call, ScriptedModel

    def decide(conversation):
        if not conversation.tool_results:
            return Call("run_python", code="print(6 * 7)")
        return f"It is {conversation.tool_results[-1].strip()}."

    with ScriptedModel(decide) as model:
        print(model.base_url)

Only the standard library is used, so that any agent framework can be tried against it from its own environment.
"""

from .conversation import Answer, Call, Conversation, ScriptError
from .server import ScriptedModel

__all__ = ["Answer", "Call", "Conversation", "ScriptError", "ScriptedModel"]
