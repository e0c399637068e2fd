"""autogen-agentchat: a plain function as the tool of an `AssistantAgent`, everything async."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import png
import pytest
import statistics_script
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_core.models import ModelFamily
from autogen_ext.models.openai import OpenAIChatCompletionClient
from sandbox_tool import PythonTool
from scripted_model import Answer, Call, Conversation, ScriptedModel


@pytest.fixture
def tool() -> Iterator[PythonTool]:
    tool = PythonTool()
    yield tool
    tool.close()


async def ask(tool: PythonTool, model: ScriptedModel, task: str, stream: bool) -> TaskResult:
    """One task to an agent that may call its tool ten times."""
    client = OpenAIChatCompletionClient(
        model="scripted",
        base_url=model.base_url,
        api_key="none",
        model_info={
            "vision": False,
            "function_calling": True,
            "json_output": False,
            "structured_output": False,
            "family": ModelFamily.UNKNOWN,
        },
    )
    agent = AssistantAgent(
        name="analyst",
        model_client=client,
        tools=[tool.run_python],
        system_message="Use run_python to execute code in the sandbox.",
        max_tool_iterations=10,
        model_client_stream=stream,
    )
    try:
        return await agent.run(task=task)
    finally:
        await client.close()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_agent_mends_its_code_and_reports_what_the_sandbox_computed(tool: PythonTool, stream: bool):
    with ScriptedModel(statistics_script.decide) as model:
        result = asyncio.run(ask(tool, model, statistics_script.QUESTION, stream))
    mean, percentile = statistics_script.printed(tool.run_python(statistics_script.REFERENCE))
    assert f"mean is {mean} and the 95th percentile is {percentile}" in result.messages[-1].content
    assert any("NameError" in str(message.content) for message in result.messages)
    assert [bool(request.get("stream")) for request in model.requests] == [stream] * 4
    assert len(tool.charts) == 1
    assert min(png.size_of(tool.charts[0])) > 200


def mean_of_a_list(conversation: Conversation) -> Answer:
    """Computes in the sandbox, then says what came back."""
    if not conversation.tool_results:
        return Call("run_python", code="numbers = [3, 1, 4, 1, 5, 9, 2, 6]\nsum(numbers) / len(numbers)")
    return f"The mean is {conversation.tool_results[-1].removeprefix('[result] ')}."


def test_the_value_of_a_last_expression_reaches_the_answer(tool: PythonTool):
    with ScriptedModel(mean_of_a_list) as model:
        result = asyncio.run(ask(tool, model, "Compute the mean of [3, 1, 4, 1, 5, 9, 2, 6].", stream=False))
    assert result.messages[-1].content == "The mean is 3.875."
