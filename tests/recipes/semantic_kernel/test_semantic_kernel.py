"""Semantic Kernel: the plugin of the demo, called by the kernel itself and by an agent."""

from __future__ import annotations

import asyncio
import csv
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import png
import pytest
from openai import AsyncOpenAI
from scripted_model import Answer, Call, Conversation, ScriptedModel
from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import KernelArguments

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/semantic_kernel_sales"
sys.path.insert(0, str(EXAMPLE))
import model_script  # noqa: E402
from agent import QUESTION, ask  # noqa: E402
from code_plugin import CodePlugin  # noqa: E402


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[CodePlugin]:
    plugin = CodePlugin(tmp_path / "charts")
    yield plugin
    plugin.close()


def top_regions(text: str) -> list[tuple[str, float]]:
    """The right answer, computed here without the sandbox."""
    revenue: defaultdict[str, float] = defaultdict(float)
    for row in csv.DictReader(text.splitlines()):
        revenue[row["region"]] += float(row["units"]) * float(row["unit_price"])
    return sorted(revenue.items(), key=lambda item: -item[1])[:3]


@pytest.mark.parametrize("factor", [1, 3], ids=["as-shipped", "other-numbers"])
def test_the_agent_mends_its_code_and_ranks_the_regions_of_the_file_that_it_was_given(
    plugin: CodePlugin, factor: int, capsys: pytest.CaptureFixture[str]
):
    text = (EXAMPLE / "sales.csv").read_text()
    if factor > 1:
        text = text.replace("East,Lamp,75", f"East,Lamp,{75 * factor * 10}")
    answer = asyncio.run(ask(plugin, QUESTION.format(csv=text)))
    for place, (region, revenue) in enumerate(top_regions(text), 1):
        assert f"{place}. {region} with {revenue:,.2f}" in answer
    assert "KeyError" in capsys.readouterr().out
    assert len(plugin.charts) == 1
    assert min(png.size_of(plugin.charts[0].read_bytes())) > 200


def streamed(conversation: Conversation) -> Answer:
    if not conversation.tool_results:
        return Call("run_python", code="total = sum(range(101))\ntotal")
    return f"The sum is {conversation.tool_results[-1]}."


def service(model: ScriptedModel) -> OpenAIChatCompletion:
    client = AsyncOpenAI(base_url=model.base_url, api_key="none")
    return OpenAIChatCompletion(ai_model_id="scripted", service_id="chat", async_client=client)


def test_an_agent_that_streams_puts_calls_and_answers_together(plugin: CodePlugin):
    async def run(model: ScriptedModel) -> str:
        agent = ChatCompletionAgent(service=service(model), name="adder", plugins=[plugin])
        return "".join([str(part.content) async for part in agent.invoke_stream(messages="Sum of 0 to 100?")])

    with ScriptedModel(streamed) as model:
        assert asyncio.run(run(model)) == "The sum is 5050."
        assert all(request["stream"] for request in model.requests)


def test_a_prompt_of_the_kernel_calls_the_plugin_by_itself(plugin: CodePlugin):
    async def run(model: ScriptedModel) -> str:
        kernel = Kernel()
        kernel.add_service(service(model))
        kernel.add_plugin(plugin, plugin_name="code")
        settings = kernel.get_prompt_execution_settings_from_service_id("chat")
        settings.function_choice_behavior = FunctionChoiceBehavior.Auto()
        return str(await kernel.invoke_prompt("Sum of 0 to 100?", arguments=KernelArguments(settings=settings)))

    with ScriptedModel(streamed) as model:
        assert asyncio.run(run(model)) == "The sum is 5050."
        offered = {tool["function"]["name"]: tool["function"] for tool in model.requests[0]["tools"]}
    assert set(offered) == {"code-run_python", "code-write_file"}
    assert "no network" in json.dumps(offered["code-run_python"])


def test_a_cell_that_times_out_is_text_that_a_model_can_act_on(plugin: CodePlugin):
    plugin.run_python("kept = 7")
    plugin.cell_seconds = 1
    assert "timed out" in plugin.run_python("import time; time.sleep(60)")
    assert plugin.run_python("kept") == "7"


def test_a_file_lands_where_the_next_cell_reads_it(plugin: CodePlugin):
    assert plugin.write_file("/work/deep/er/ü.txt", "größe\n") == "wrote 8 bytes to /work/deep/er/ü.txt"
    assert plugin.run_python("open('/work/deep/er/ü.txt').read()") == repr("größe\n")


def test_the_scripted_model_says_so_when_the_tools_fail():
    conversation = Conversation([{"role": "user", "content": "x"}, {"role": "tool", "content": "no disk"}], [])
    assert "no disk" in str(model_script.decide(conversation))
