"""AG2: a caller that may call the tool and an executor that runs it, wired by function and by decorators."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import png
import pytest
import statistics_script
from autogen import ConversableAgent, LLMConfig, register_function
from sandbox_tool import PythonTool
from scripted_model import ScriptedModel

Wire = Callable[[PythonTool, ConversableAgent, ConversableAgent], None]


def by_function(tool: PythonTool, analyst: ConversableAgent, runner: ConversableAgent) -> None:
    """The wiring with `register_function`, which takes plain functions only."""

    def run_python(code: str) -> str:
        return tool.run_python(code)

    register_function(
        run_python,
        caller=analyst,
        executor=runner,
        name="run_python",
        description="Run Python code in an isolated sandbox and return its output.",
    )


def by_decorators(tool: PythonTool, analyst: ConversableAgent, runner: ConversableAgent) -> None:
    """The wiring with two decorators on a function."""

    @runner.register_for_execution()
    @analyst.register_for_llm(description="Run Python code in an isolated sandbox and return its output.")
    def run_python(code: str) -> str:
        return tool.run_python(code)


@pytest.fixture
def tool() -> Iterator[PythonTool]:
    tool = PythonTool()
    yield tool
    tool.close()


@pytest.mark.parametrize("wire", [by_function, by_decorators])
def test_the_agents_mend_their_code_and_report_what_the_sandbox_computed(wire: Wire, tool: PythonTool):
    with ScriptedModel(statistics_script.decide) as model:
        config = LLMConfig({"api_type": "openai", "model": "scripted", "base_url": model.base_url, "api_key": "none"})
        analyst = ConversableAgent(
            name="analyst",
            llm_config=config,
            human_input_mode="NEVER",
            system_message="Compute with run_python, mend your code after errors, end with TERMINATE.",
        )
        runner = ConversableAgent(
            name="code_runner",
            llm_config=False,
            human_input_mode="NEVER",
            is_termination_msg=lambda message: "TERMINATE" in (message.get("content") or ""),
        )
        wire(tool, analyst, runner)
        chat = runner.initiate_chat(analyst, message=statistics_script.QUESTION, max_turns=8)

    said = [str(message.get("content")) for message in chat.chat_history]
    assert any("NameError" in text for text in said), "the first attempt was to fail"
    mean, percentile = statistics_script.printed(tool.run_python(statistics_script.REFERENCE))
    assert f"mean is {mean} and the 95th percentile is {percentile}" in said[-1]
    assert 49 < float(mean) < 51 and 61 < float(percentile) < 66
    assert len(tool.charts) == 1
    assert min(png.size_of(tool.charts[0])) > 200
